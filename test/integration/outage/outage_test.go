// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package outage_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	// each is how many BackupBuckets, and how many DNSRecords, of each class are treated in the same way.
	each = 10
	// buckets is how many BackupBuckets that are.
	buckets = 2 * each
)

var _ = Describe("An API server", func() {
	// all calls a function for each instance.
	all := func(do func(*instance)) {
		for _, i := range instances {
			do(i)
		}
	}
	// count remembers numbers of all instances, and returns a function that waits until each has grown by more than least.
	count := func(of func(*instance) int, least int, timeout time.Duration, reason string) func() {
		before := map[*instance]int{}
		all(func(i *instance) { before[i] = of(i) })
		return func() {
			all(func(i *instance) {
				Eventually(func() int { return of(i) - before[i] }).WithTimeout(timeout).Should(BeNumerically(">", least), "class %s: %s", i.class, reason)
			})
		}
	}
	hindered := func(i *instance) int { return i.proxy.Hindered() }
	// set returns a function that has the proxies fail until the condition holds.
	set := func(fault environment.Fault, until func() func()) func() {
		return func() {
			wait := until()
			all(func(i *instance) { i.proxy.Set(fault) })
			wait()
			all(func(i *instance) { i.proxy.Set(environment.NoFault) })
		}
	}
	// felt is met at once: the fault is shorter than the Lease.
	felt := func() func() { return count(hindered, 0, time.Minute, "it asks the API server") }
	// ended is met when the instances have given up: the fault is longer than the Lease.
	ended := func() func() {
		return count(func(i *instance) int { return int(i.ends.Load()) }, 0, 90*time.Second, "it ends when it cannot renew its Lease")
	}

	DescribeTable("loses no object, makes none twice and lets none be stuck for the instances, though it",
		func(ctx SpecContext, name string, disturb func()) {
			kept, asked, deleted, created := newObjects(name+"-kept"), newObjects(name+"-asked"), newObjects(name+"-deleted"), newObjects(name+"-created")
			DeferCleanup(func(ctx SpecContext) {
				all(func(i *instance) { i.proxy.Set(environment.NoFault) })
				Expect(c.DeleteAllOf(ctx, &extensionsv1alpha1.BackupBucket{})).To(Succeed())
				Expect(c.DeleteAllOf(ctx, &extensionsv1alpha1.DNSRecord{}, client.InNamespace(gardenNamespace))).To(Succeed())
				Eventually(succeeded).WithContext(ctx).WithTimeout(2 * time.Minute).Should(BeEmpty())
				Expect(folders()).To(BeEmpty())
				Expect(secrets(ctx)).To(BeEmpty())
			})

			By("creating objects")
			create(ctx, kept, asked, deleted)
			Eventually(succeeded).WithContext(ctx).WithTimeout(2 * time.Minute).Should(ConsistOf(names(kept, asked, deleted)))
			for _, folder := range folders() {
				Expect(os.WriteFile(filepath.Join(folder, "backup"), []byte(filepath.Base(folder)), 0o600)).To(Succeed())
			}
			before := secrets(ctx)
			Expect(before).To(HaveLen(3 * buckets))

			By("creating, changing and deleting objects while the API server is away")
			disturbed := make(chan struct{})
			go func() {
				defer GinkgoRecover()
				defer close(disturbed)
				disturb()
			}()
			create(ctx, created)
			for _, obj := range asked {
				ask(ctx, obj)
			}
			for _, obj := range deleted {
				Expect(c.Delete(ctx, obj)).To(Succeed())
			}
			Eventually(disturbed).WithTimeout(2 * time.Minute).Should(BeClosed())

			By("looking at what has become of them")
			Eventually(succeeded).WithContext(ctx).WithTimeout(3 * time.Minute).Should(ConsistOf(names(kept, asked, created)))
			Expect(folders()).To(HaveLen(3 * buckets))
			for _, obj := range append(bucketsOf(kept), bucketsOf(asked)...) {
				Expect(backup(obj)).To(BeEquivalentTo(obj), "its data is as it was")
			}
			after := secrets(ctx)
			Expect(after).To(HaveLen(3 * buckets))
			for _, obj := range append(bucketsOf(kept), bucketsOf(asked)...) {
				Expect(after).To(HaveKeyWithValue("generated-bucket-"+obj, before["generated-bucket-"+obj]), "it is the same Secret")
			}
			AddReportEntry("watched", fmt.Sprintf("%d objects", 4*len(kept)), ReportEntryVisibilityAlways)
		},
		Entry("refuses connections for a moment", "refused", set(environment.Refused, felt)),
		Entry("refuses connections for longer than the Lease", "restarting", set(environment.Refused, ended)),
		Entry("does not answer for a moment", "held", set(environment.Held, felt)),
		Entry("does not answer for longer than the Lease", "partitioned", set(environment.Held, ended)),
		Entry("answers late", "delayed", set(environment.Delayed, func() func() { return count(hindered, 50, time.Minute, "it asks the API server") })),
		Entry("never answers on the connections that there were", "stranded", func() {
			wait := felt()
			all(func(i *instance) { i.proxy.Strand() })
			wait()
		}),
		Entry("sends nothing on the watches that there are, whose connections are in order", "hung", func() {
			wait := count(func(i *instance) int { return i.http.Hung() }, 0, time.Minute, "a watch hangs")
			all(func(i *instance) { i.http.HangWatches() })
			wait()
		}),
	)
})

func newObjects(prefix string) []extensionsv1alpha1.Object {
	var out []extensionsv1alpha1.Object
	for _, i := range instances {
		spec := extensionsv1alpha1.DefaultSpec{Type: "local", Class: &i.class}
		mock := extensionsv1alpha1.DefaultSpec{Type: "mock", Class: &i.class}
		for n := range each {
			name := fmt.Sprintf("%s-%s-%d", prefix, i.class, n)
			out = append(out,
				&extensionsv1alpha1.BackupBucket{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: extensionsv1alpha1.BackupBucketSpec{
					DefaultSpec: spec, Region: "local", SecretRef: corev1.SecretReference{Namespace: gardenNamespace, Name: "backup"},
				}},
				&extensionsv1alpha1.DNSRecord{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: name}, Spec: extensionsv1alpha1.DNSRecordSpec{
					DefaultSpec: mock, Name: name + ".example.org",
					RecordType: extensionsv1alpha1.DNSRecordTypeA, Values: []string{"192.0.2.1"}, SecretRef: corev1.SecretReference{Namespace: gardenNamespace, Name: "backup"},
				}},
			)
		}
	}
	return out
}

// name tells objects of different kinds apart.
func name(obj client.Object) string { return fmt.Sprintf("%T %s", obj, obj.GetName()) }

func names(objects ...[]extensionsv1alpha1.Object) []string {
	var out []string
	for _, some := range objects {
		for _, obj := range some {
			out = append(out, name(obj))
		}
	}
	return out
}

func bucketsOf(objects []extensionsv1alpha1.Object) []string {
	var out []string
	for _, obj := range objects {
		if _, ok := obj.(*extensionsv1alpha1.BackupBucket); ok {
			out = append(out, obj.GetName())
		}
	}
	return out
}

func create(ctx context.Context, objects ...[]extensionsv1alpha1.Object) {
	GinkgoHelper()
	for _, some := range objects {
		for _, obj := range some {
			Expect(c.Create(ctx, obj)).To(Succeed())
		}
	}
}

// ask asks for a reconcile as Gardener does.
func ask(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"gardener.cloud/operation":"reconcile","gardener.cloud/timestamp":%q}}}`, time.Now().Format(time.RFC3339Nano))
	Expect(c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// succeeded returns the names of all objects, and what is wrong of one that Gardener does not take for ready.
func succeeded(ctx context.Context) ([]string, error) {
	records, found := &extensionsv1alpha1.DNSRecordList{}, &extensionsv1alpha1.BackupBucketList{}
	if err := c.List(ctx, records, client.InNamespace(gardenNamespace)); err != nil {
		return nil, err
	}
	if err := c.List(ctx, found); err != nil {
		return nil, err
	}
	var objects []extensionsv1alpha1.Object
	for i := range records.Items {
		objects = append(objects, &records.Items[i])
	}
	for i := range found.Items {
		objects = append(objects, &found.Items[i])
	}

	var out []string
	for _, obj := range objects {
		if ready, err := matchers.HaveSucceeded().Match(obj); err != nil {
			return nil, err
		} else if !ready {
			out = append(out, name(obj)+" is not ready")
			continue
		}
		out = append(out, name(obj))
	}
	return out, nil
}

// folders returns those of the buckets, and of what is left of them.
func folders() []string {
	GinkgoHelper()
	var out []string
	for _, i := range instances {
		entries, err := os.ReadDir(i.buckets)
		Expect(err).NotTo(HaveOccurred())
		for _, entry := range entries {
			out = append(out, filepath.Join(i.buckets, entry.Name()))
		}
	}
	return out
}

// backup returns what is in a bucket.
func backup(bucket string) ([]byte, error) {
	for _, folder := range folders() {
		if filepath.Base(folder) == bucket {
			return os.ReadFile(filepath.Join(folder, "backup"))
		}
	}
	return nil, os.ErrNotExist
}

// secrets returns the UIDs of those that were generated for buckets.
func secrets(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	list := &corev1.SecretList{}
	Expect(c.List(ctx, list)).To(Succeed())
	out := map[string]types.UID{}
	for _, secret := range list.Items {
		if strings.HasPrefix(secret.Name, "generated-bucket-") {
			out[secret.Name] = secret.UID
		}
	}
	return out
}
