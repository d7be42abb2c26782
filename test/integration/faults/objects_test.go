// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	// sharedBucket has the folders of all BackupEntries.
	sharedBucket = "shared"
	zone         = "local.gardener.cloud"
	extension    = "local-ext-seed"
)

// kind makes the objects of a kind, of which there is one in each group, that is, shoot.
type kind struct {
	name string
	make func(group string) extensionsv1alpha1.Object
	// folder is where the data of the object is; empty if it has none.
	folder func(group string) string
}

var kinds = []kind{
	{"BackupBucket", func(group string) extensionsv1alpha1.Object {
		return newBucket("bucket-" + group)
	}, func(group string) string { return "bucket-" + group }},
	{"BackupEntry", func(group string) extensionsv1alpha1.Object {
		return &extensionsv1alpha1.BackupEntry{ObjectMeta: metav1.ObjectMeta{Name: entryName(group)}, Spec: extensionsv1alpha1.BackupEntrySpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"}, Region: "local", BucketName: sharedBucket,
			SecretRef: corev1.SecretReference{Namespace: gardenNamespace, Name: "backup"},
		}}
	}, func(group string) string { return filepath.Join(sharedBucket, entryName(group)) }},
	{"DNSRecord", func(group string) extensionsv1alpha1.Object {
		return &extensionsv1alpha1.DNSRecord{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(group), Name: "external"}, Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"}, SecretRef: corev1.SecretReference{Namespace: gardenNamespace, Name: "backup"},
			Name: domainOf(group), RecordType: extensionsv1alpha1.DNSRecordTypeA,
		}}
	}, nil},
	{"Extension", func(group string) extensionsv1alpha1.Object {
		return &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(group), Name: extension}, Spec: extensionsv1alpha1.ExtensionSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: extension},
		}}
	}, nil},
}

func newBucket(name string) *extensionsv1alpha1.BackupBucket {
	seed := extensionsv1alpha1.ExtensionClassSeed
	return &extensionsv1alpha1.BackupBucket{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: extensionsv1alpha1.BackupBucketSpec{
		DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local", Class: &seed}, Region: "local",
		SecretRef: corev1.SecretReference{Namespace: gardenNamespace, Name: "backup"},
	}}
}

func namespaceOf(group string) string { return "shoot--local--" + group }
func entryName(group string) string   { return namespaceOf(group) + "--0a1b2c3d" }
func domainOf(group string) string    { return "api." + group + "." + zone }

// step is something that Gardener, or an etcd that writes its backups, does with an object.
type step string

const (
	creation step = "create"
	change   step = "change"
	deletion step = "delete"
)

// lives are what may happen to an object.
var lives = [][]step{
	{creation}, {creation, change}, {creation, change, change}, {creation, deletion}, {creation, change, deletion}, {creation, change, deletion, creation},
}

// object is one that is watched, and what there has to be of it once all of its steps have been done.
type object struct {
	kind
	group string
	steps []step

	exists bool
	// version counts creations and changes; it determines what a record points to, and what is in a folder.
	version int
	// filled tells that there is data in the folder.
	filled bool
}

func (o *object) id() string { return o.name + " " + o.group }

// address is what the record points to.
func (o *object) address() string { return fmt.Sprintf("10.0.0.%d", o.version) }

// fleet are the objects of a spec.
type fleet struct {
	objects []*object
}

// newFleet creates the shoots of n objects, and the bucket for all of their BackupEntries. At the end of the spec, everything is
// deleted, and nothing may be left, which needs an instance that runs.
func newFleet(ctx context.Context, prefix string, n int) *fleet {
	GinkgoHelper()
	f := &fleet{}
	for i := range n {
		group := fmt.Sprintf("%s-%d", prefix, i/len(kinds))
		if i%len(kinds) == 0 {
			suite.CreateShoot(ctx, c, suite.NewCluster(namespaceOf(group), nil))
		}
		f.objects = append(f.objects, &object{kind: kinds[i%len(kinds)], group: group})
	}
	Expect(c.Create(ctx, newBucket(sharedBucket))).To(Succeed())
	return f
}

// live gives each object a life by random.
func (f *fleet) live(random *rand.Rand) {
	for _, o := range f.objects {
		o.steps = lives[random.IntN(len(lives))]
	}
}

// do does the steps with all objects at once.
func (f *fleet) do(ctx context.Context, objects []*object, steps ...step) {
	GinkgoHelper()
	for _, s := range steps {
		for _, o := range objects {
			o.steps = []step{s}
			Eventually(o.next).WithContext(ctx).Should(BeTrue(), "%s %s", s, o.id())
		}
	}
}

// some returns one third of the objects.
func (f *fleet) some(third int) []*object {
	var out []*object
	for i, o := range f.objects {
		if i/len(kinds)%3 == third {
			out = append(out, o)
		}
	}
	return out
}

// next does the next step of an object, and returns false if it is too early: an object of its name is about to go.
func (o *object) next(ctx context.Context) bool {
	GinkgoHelper()
	obj := o.make(o.group)
	switch o.steps[0] {
	case creation:
		o.ask(obj, o.version+1)
		err := c.Create(ctx, obj)
		if apierrors.IsAlreadyExists(err) {
			return false
		}
		Expect(err).NotTo(HaveOccurred(), o.id())
		o.exists, o.version = true, o.version+1
	case change:
		Expect(c.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed(), o.id())
		before := obj.DeepCopyObject().(client.Object)
		o.version++
		o.ask(obj, o.version)
		Expect(c.Patch(ctx, obj, client.MergeFrom(before))).To(Succeed(), o.id())
		// No etcd writes a backup before the instance has begun with the bucket.
		if len(obj.GetFinalizers()) > 0 {
			o.fill()
		}
	case deletion:
		Expect(c.Delete(ctx, obj)).To(Succeed(), o.id())
		o.exists, o.filled = false, false
	}
	o.steps = o.steps[1:]
	return true
}

// ask asks for a reconcile as Gardener does.
func (o *object) ask(obj client.Object, version int) {
	if record, ok := obj.(*extensionsv1alpha1.DNSRecord); ok {
		record.Spec.Values = []string{fmt.Sprintf("10.0.0.%d", version)}
	}
	obj.SetAnnotations(map[string]string{"gardener.cloud/operation": "reconcile", "gardener.cloud/timestamp": time.Now().UTC().Format(time.RFC3339Nano)})
}

// fill writes a backup into the folder of the object, if it has one.
func (o *object) fill() {
	GinkgoHelper()
	if o.folder == nil {
		return
	}
	folder := filepath.Join(buckets, o.folder(o.group))
	Expect(os.MkdirAll(folder, 0o770)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, "backup"), []byte(o.id()), 0o600)).To(Succeed())
	o.filled = true
}

// isAsWanted waits until everything is there that has to be, as it has to be, and nothing else.
func (f *fleet) isAsWanted(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		f.checkObjects(ctx, g)
		f.checkDNS(ctx, g)
		f.checkFolders(g)
		f.checkSecrets(ctx, g)
		f.checkManagedResources(ctx, g)
	}).WithContext(ctx).WithTimeout(3*time.Minute).WithPolling(500*time.Millisecond).Should(Succeed(), "nothing is lost, duplicated or stuck")
}

// wanted returns what make says of the objects of a kind that have to be there.
func (f *fleet) wanted(name string, describe func(*object) string) []string {
	out := []string{}
	for _, o := range f.objects {
		if o.exists && o.name == name {
			out = append(out, describe(o))
		}
	}
	return out
}

// checkObjects looks whether exactly the wanted objects are there and Gardener takes them for ready.
func (f *fleet) checkObjects(ctx context.Context, g Gomega) {
	wanted := []string{"bucket " + sharedBucket}
	for _, o := range f.objects {
		if o.exists {
			obj := o.make(o.group)
			wanted = append(wanted, describe(obj))
		}
	}
	found := []string{}
	for _, list := range []client.ObjectList{&extensionsv1alpha1.BackupBucketList{}, &extensionsv1alpha1.BackupEntryList{}, &extensionsv1alpha1.DNSRecordList{}, &extensionsv1alpha1.ExtensionList{}} {
		g.Expect(c.List(ctx, list)).To(Succeed())
		for _, obj := range items(list) {
			g.Expect(obj).To(matchers.HaveSucceeded(), describe(obj))
			found = append(found, describe(obj))
		}
	}
	g.Expect(found).To(ConsistOf(wanted))
}

func describe(obj client.Object) string {
	switch obj := obj.(type) {
	case *extensionsv1alpha1.BackupBucket:
		return "bucket " + obj.Name
	case *extensionsv1alpha1.BackupEntry:
		return "entry " + obj.Name
	case *extensionsv1alpha1.DNSRecord:
		return "record " + obj.Namespace + "/" + obj.Name
	default:
		return "extension " + obj.GetNamespace() + "/" + obj.GetName()
	}
}

func items(list client.ObjectList) []extensionsv1alpha1.Object {
	var out []extensionsv1alpha1.Object
	switch list := list.(type) {
	case *extensionsv1alpha1.BackupBucketList:
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	case *extensionsv1alpha1.BackupEntryList:
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	case *extensionsv1alpha1.DNSRecordList:
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	case *extensionsv1alpha1.ExtensionList:
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	}
	return out
}

// ofRecords are the labels of the ConfigMaps that CoreDNS reads.
var ofRecords = client.MatchingLabels{"local.provider.extensions.gardener.cloud/dns-config": "true"}

// deleteRecords deletes these ConfigMaps. Who leads writes them again.
func deleteRecords(ctx context.Context) {
	GinkgoHelper()
	Expect(c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(coreDNSNamespace), ofRecords)).To(Succeed())
}

// checkDNS looks whether the ConfigMaps have each wanted record once and no other, and CoreDNS answers accordingly.
func (f *fleet) checkDNS(ctx context.Context, g Gomega) {
	configMaps := &corev1.ConfigMapList{}
	g.Expect(c.List(ctx, configMaps, client.InNamespace(coreDNSNamespace), ofRecords)).To(Succeed())
	written := []string{}
	for _, configMap := range configMaps.Items {
		for key, data := range configMap.Data {
			if strings.HasPrefix(key, zone) {
				for line := range strings.Lines(data) {
					// NAME TTL IN A ADDRESS
					fields := strings.Fields(line)
					written = append(written, strings.TrimSuffix(fields[0], ".")+" "+fields[len(fields)-1])
				}
			}
		}
	}
	g.Expect(written).To(ConsistOf(f.wanted("DNSRecord", func(o *object) string { return domainOf(o.group) + " " + o.address() })), "what the ConfigMaps have")

	for _, o := range f.objects {
		if o.name != "DNSRecord" {
			continue
		}
		answer := []string{"NXDOMAIN"}
		if o.exists {
			answer = []string{o.address()}
		}
		g.Expect(resolve(ctx, dnsAddress(), o)).To(Equal(answer), domainOf(o.group))
	}
}

// checkFolders looks whether exactly the wanted folders are there, with the data that is not deleted.
func (f *fleet) checkFolders(g Gomega) {
	g.Expect(entriesOf(g, "")).To(ConsistOf(append(f.wanted("BackupBucket", func(o *object) string { return "bucket-" + o.group }), sharedBucket)), "the folders of buckets")
	filled := []string{}
	for _, o := range f.objects {
		if o.folder == nil {
			continue
		}
		if o.filled && o.name == "BackupEntry" {
			filled = append(filled, entryName(o.group))
		}
		data, err := os.ReadFile(filepath.Join(buckets, o.folder(o.group), "backup"))
		if o.filled {
			g.Expect(string(data), err).To(Equal(o.id()), "its backup")
		} else {
			g.Expect(err).To(MatchError(os.ErrNotExist), "the backup of %s, which was deleted or never there", o.id())
		}
	}
	// Nobody makes the folder of an entry but who writes a backup.
	g.Expect(entriesOf(g, sharedBucket)).To(ConsistOf(filled), "the folders of entries")
}

func entriesOf(g Gomega, folder string) []string {
	entries, err := os.ReadDir(filepath.Join(buckets, folder))
	g.Expect(err).NotTo(HaveOccurred())
	out := []string{}
	for _, entry := range entries {
		out = append(out, entry.Name())
	}
	return out
}

// checkSecrets looks whether exactly the wanted Secrets are there. Those of ManagedResources belong to others.
func (f *fleet) checkSecrets(ctx context.Context, g Gomega) {
	list := &corev1.SecretList{}
	g.Expect(c.List(ctx, list)).To(Succeed())
	found := []string{}
	for _, secret := range list.Items {
		isOurs := secret.Namespace == gardenNamespace || strings.HasPrefix(secret.Namespace, namespaceOf(""))
		if isOurs && secret.Labels["resources.gardener.cloud/garbage-collectable-reference"] != "true" {
			found = append(found, secret.Namespace+"/"+secret.Name+" "+string(secret.Data["bucketName"]))
		}
	}
	g.Expect(found).To(ConsistOf(slices.Concat(
		[]string{"garden/backup ", "garden/generated-bucket-" + sharedBucket + " " + sharedBucket},
		f.wanted("BackupBucket", func(o *object) string { return "garden/generated-bucket-bucket-" + o.group + " bucket-" + o.group }),
		f.wanted("BackupEntry", func(o *object) string { return namespaceOf(o.group) + "/etcd-backup " + sharedBucket }),
	)))
}

// checkManagedResources looks whether exactly the wanted ManagedResources, and what they deploy, are there.
func (f *fleet) checkManagedResources(ctx context.Context, g Gomega) {
	resources, accounts := &resourcesv1alpha1.ManagedResourceList{}, &corev1.ServiceAccountList{}
	g.Expect(c.List(ctx, resources)).To(Succeed())
	g.Expect(c.List(ctx, accounts)).To(Succeed())
	var found, deployed []string
	for _, mr := range resources.Items {
		if mr.Name == extension {
			found = append(found, mr.Namespace)
		}
	}
	for _, account := range accounts.Items {
		if account.Name == extension {
			deployed = append(deployed, account.Namespace)
		}
	}
	wanted := f.wanted("Extension", func(o *object) string { return namespaceOf(o.group) })
	g.Expect(found).To(ConsistOf(wanted), "ManagedResources")
	g.Expect(deployed).To(ConsistOf(wanted), "what they deploy")
}

// remove deletes all, and expects that nothing is left, nor anything that keeps the Secret of all buckets and entries from going.
func (f *fleet) remove(ctx context.Context) {
	GinkgoHelper()
	for _, o := range f.objects {
		if o.exists {
			o.steps = []step{deletion}
			Expect(o.next(ctx)).To(BeTrue())
		}
	}
	f.isAsWanted(ctx)
	Expect(c.Delete(ctx, newBucket(sharedBucket))).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKey{Name: sharedBucket}, &extensionsv1alpha1.BackupBucket{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		g.Expect(entriesOf(g, "")).To(BeEmpty())
		secret := &corev1.Secret{}
		g.Expect(c.Get(ctx, client.ObjectKey{Namespace: gardenNamespace, Name: "backup"}, secret)).To(Succeed())
		g.Expect(secret.Finalizers).To(BeEmpty())
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed(), "nothing is left")
}
