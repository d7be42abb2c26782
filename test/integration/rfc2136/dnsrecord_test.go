// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136_test

import (
	"context"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/rfc2136"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

var _ = Describe("Records", func() {
	for _, test := range []struct {
		recordType, name string
		before, after    []string
		served, changed  []string
	}{
		{"A", "a." + updateZone, []string{"192.0.2.2", "192.0.2.1"}, []string{"192.0.2.3"}, []string{"77 192.0.2.1", "77 192.0.2.2"}, []string{"77 192.0.2.3"}},
		{"AAAA", "aaaa." + updateZone, []string{"2001:db8:0::1"}, []string{"2001:db8::2"}, []string{"77 2001:db8::1"}, []string{"77 2001:db8::2"}},
		{"CNAME", "cname." + updateZone, []string{"LB.example.net"}, []string{"other.example.net"}, []string{"77 lb.example.net."}, []string{"77 other.example.net."}},
		{"TXT", "txt." + updateZone, []string{`say "hi" \ é`}, []string{strings.Repeat("x", 300)}, []string{`77 "say \"hi\" \\ \195\169"`}, []string{`77 "` + strings.Repeat("x", 255) + `" "` + strings.Repeat("x", 45) + `"`}},
		{"A", "*.wildcard." + updateZone, []string{"192.0.2.1"}, []string{"192.0.2.2"}, []string{"77 192.0.2.1"}, []string{"77 192.0.2.2"}},
	} {
		It("serves, changes and deletes "+test.recordType+" "+test.name, func(ctx SpecContext) {
			record := newRecord(gardenNamespace, test.name, test.recordType, test.before...)
			create(ctx, record)
			asked := strings.Replace(test.name, "*", "any", 1)
			Expect(named.values(ctx, asked, test.recordType)).To(ConsistOf(test.served))

			serial := named.serial(ctx, updateZone)
			change(ctx, record, func() { record.Spec.Region = new("anywhere") })
			Expect(named.serial(ctx, updateZone)).To(Equal(serial), "what is right is not written again")

			change(ctx, record, func() { record.Spec.Values = test.after })
			Expect(named.values(ctx, asked, test.recordType)).To(ConsistOf(test.changed))
			change(ctx, record, func() { record.Spec.TTL = new(int64(5)) })
			Expect(named.values(ctx, asked, test.recordType)).To(HaveEach(HavePrefix("5 ")))

			remove(ctx, record)
			Expect(named.values(ctx, asked, test.recordType)).To(ConsistOf("NXDOMAIN"))
		})
	}

	It("renames a record in one change", func(ctx SpecContext) {
		record := newRecord(gardenNamespace, "before."+updateZone, "A", "192.0.2.1")
		create(ctx, record)
		serial := named.serial(ctx, updateZone)
		change(ctx, record, func() { record.Spec.Name = "after." + updateZone })
		Expect(named.values(ctx, "before."+updateZone, "A")).To(ConsistOf("NXDOMAIN"))
		Expect(named.values(ctx, "after."+updateZone, "A")).To(ConsistOf("77 192.0.2.1"))
		Expect(named.serial(ctx, updateZone)).To(Equal(serial + 1))
	})

	It("serves a record of a shoot", func(ctx SpecContext) {
		record := newRecord(sourceNamespace, "shoot."+updateZone, "A", "192.0.2.1")
		create(ctx, record)
		Expect(named.values(ctx, "shoot."+updateZone, "A")).To(ConsistOf("77 192.0.2.1"))
		remove(ctx, record)
		Expect(named.values(ctx, "shoot."+updateZone, "A")).To(ConsistOf("NXDOMAIN"))
	})

	It("refuses an alias beside an address", func(ctx SpecContext) {
		create(ctx, newRecord(gardenNamespace, "taken."+updateZone, "A", "192.0.2.1"))
		alias := newRecord(gardenNamespace, "taken."+updateZone, "CNAME", "lb.example.net")
		alias.Name = "alias"
		attempt(ctx, alias, matchers.HaveConfigurationProblem("an alias (CNAME) can't stand beside any"))
		remove(ctx, alias)
		Expect(named.values(ctx, "taken."+updateZone, "A")).To(ConsistOf("77 192.0.2.1"))
	})

	It("refuses an address where there is an alias, but not below a wildcard that is one", func(ctx SpecContext) {
		create(ctx, newRecord(gardenNamespace, "alias."+updateZone, "CNAME", "lb.example.net"))
		address := newRecord(gardenNamespace, "alias."+updateZone, "A", "192.0.2.1")
		attempt(ctx, address, matchers.HaveConfigurationProblem("the name is an alias (CNAME)"))
		remove(ctx, address)
		Expect(named.values(ctx, "alias."+updateZone, "CNAME")).To(ConsistOf("77 lb.example.net."))

		create(ctx, newRecord(gardenNamespace, "*.wild."+updateZone, "CNAME", "lb.example.net"))
		create(ctx, newRecord(gardenNamespace, "a.wild."+updateZone, "A", "192.0.2.1"))
		Expect(named.values(ctx, "a.wild."+updateZone, "A")).To(ConsistOf("77 192.0.2.1"))
		Expect(named.values(ctx, "b.wild."+updateZone, "CNAME")).To(ConsistOf("77 lb.example.net."))
	})

	It("sends updates without a key unsigned", func(ctx SpecContext) {
		secret := newSecret(gardenNamespace, "unsigned", "")
		Expect(c.Create(ctx, secret)).To(Succeed())
		record := newRecord(gardenNamespace, "a."+openZone, "A", "192.0.2.1")
		record.Name, record.Spec.SecretRef.Name = "unsigned", secret.Name
		create(ctx, record)
		Expect(named.values(ctx, "a."+openZone, "A")).To(ConsistOf("77 192.0.2.1"))
	})

	for _, algorithm := range algorithms {
		It("signs by "+algorithm, func(ctx SpecContext) {
			secret := newSecret(gardenNamespace, "key-"+algorithm, algorithm)
			Expect(c.Create(ctx, secret)).To(Succeed())
			record := newRecord(gardenNamespace, algorithm+"."+updateZone, "A", "192.0.2.1")
			record.Spec.SecretRef.Name = secret.Name
			create(ctx, record)
			Expect(named.values(ctx, algorithm+"."+updateZone, "A")).To(ConsistOf("77 192.0.2.1"))
			remove(ctx, record)
			Expect(named.values(ctx, algorithm+"."+updateZone, "A")).To(ConsistOf("NXDOMAIN"))
		})
	}
})

var _ = Describe("Mistakes", func() {
	for _, test := range []struct {
		name   string
		domain string
		change func(secret *corev1.Secret, record *extensionsv1alpha1.DNSRecord)
		code   gardencorev1beta1.ErrorCode
		says   string
	}{
		{"a key that BIND doesn't know", "unknown-key." + updateZone, func(secret *corev1.Secret, _ *extensionsv1alpha1.DNSRecord) {
			secret.Data[rfc2136.KeyTSIGKeyName] = []byte("nobody")
		}, gardencorev1beta1.ErrorInfraUnauthorized, "BADKEY"},
		{"a key that is another", "wrong-key." + updateZone, func(secret *corev1.Secret, _ *extensionsv1alpha1.DNSRecord) {
			secret.Data[rfc2136.KeyTSIGSecret] = []byte(secretOf("other"))
		}, gardencorev1beta1.ErrorInfraUnauthorized, "BADSIG"},
		{"a key that may not update", "powerless-key." + updateZone, func(secret *corev1.Secret, _ *extensionsv1alpha1.DNSRecord) {
			secret.Data[rfc2136.KeyTSIGKeyName] = []byte("powerless")
		}, gardencorev1beta1.ErrorInfraUnauthorized, "answers REFUSED"},
		{"a key with another algorithm", "wrong-algorithm." + updateZone, func(secret *corev1.Secret, _ *extensionsv1alpha1.DNSRecord) {
			secret.Data[rfc2136.KeyTSIGSecretAlgorithm] = []byte("hmac-sha512")
		}, gardencorev1beta1.ErrorInfraUnauthorized, "BADKEY"},
		{"no key", "no-key." + updateZone, func(secret *corev1.Secret, _ *extensionsv1alpha1.DNSRecord) {
			secret.Data = nil
		}, gardencorev1beta1.ErrorInfraUnauthorized, "with unsigned messages"},
		{"a zone that BIND hasn't", "a.example.com", func(secret *corev1.Secret, _ *extensionsv1alpha1.DNSRecord) {
			secret.Data[rfc2136.KeyZone] = []byte("example.com.")
		}, gardencorev1beta1.ErrorInfraUnauthorized, "does not serve the zone"},
		{"a zone that is none of the server's", "deep.sub." + updateZone, func(_ *corev1.Secret, record *extensionsv1alpha1.DNSRecord) {
			record.Spec.ProviderConfig = providerConfig(`"provider": "rfc2136", "rfc2136": {"zones": ["sub.` + updateZone + `"]}`)
		}, gardencorev1beta1.ErrorConfigurationProblem, "answers NOTAUTH"},
		{"a name in no zone", "a.example.net", func(*corev1.Secret, *extensionsv1alpha1.DNSRecord) {
		}, gardencorev1beta1.ErrorConfigurationProblem, "in none of the zones"},
		{"an unknown field", "field." + updateZone, func(_ *corev1.Secret, record *extensionsv1alpha1.DNSRecord) {
			record.Spec.ProviderConfig = providerConfig(`"provider": "rfc2136", "rfc2136": {"sever": "127.0.0.1"}`)
		}, gardencorev1beta1.ErrorConfigurationProblem, `unknown field "rfc2136.sever"`},
	} {
		It("are told and can be put right: "+test.name, func(ctx SpecContext) {
			name := strings.ReplaceAll(test.domain, ".", "-")
			secret := newSecret(gardenNamespace, name, "hmac-sha256")
			record := newRecord(gardenNamespace, test.domain, "A", "192.0.2.1")
			record.Spec.SecretRef.Name = name
			test.change(secret, record)
			Expect(c.Create(ctx, secret)).To(Succeed())
			attempt(ctx, record, haveError(test.code, test.says))

			right := newSecret(gardenNamespace, name, "hmac-sha256")
			Expect(c.Update(ctx, right)).To(Succeed())
			change(ctx, record, func() {
				record.Spec.Name, record.Spec.ProviderConfig = name+"."+updateZone, providerConfig(`"provider": "rfc2136"`)
			})
			Expect(named.values(ctx, name+"."+updateZone, "A")).To(ConsistOf("77 192.0.2.1"))
			remove(ctx, record)
		})
	}

	It("of a Secret that is missing do not hold up the deletion", func(ctx SpecContext) {
		record := newRecord(gardenNamespace, "missing."+updateZone, "A", "192.0.2.1")
		record.Spec.SecretRef.Name = "missing"
		attempt(ctx, record, matchers.HaveConfigurationProblem("garden/missing"))
		remove(ctx, record)
	})
})

var _ = Describe("Trouble", Serial, func() {
	It("waits for a server that is down and recovers by itself", func(ctx SpecContext) {
		existing := newRecord(gardenNamespace, "existing."+updateZone, "A", "192.0.2.1")
		create(ctx, existing)
		named.stop()
		record := newRecord(gardenNamespace, "down."+updateZone, "A", "192.0.2.1")
		attempt(ctx, record, haveError(gardencorev1beta1.ErrorRetryableInfraDependencies, "no answer of server"))
		Expect(c.Delete(ctx, existing)).To(Succeed())
		Eventually(get).WithContext(ctx).WithArguments(existing).Should(haveError(gardencorev1beta1.ErrorRetryableInfraDependencies, "no answer of server"))

		named.start(ctx)
		Eventually(get).WithContext(ctx).WithArguments(record).Should(matchers.HaveSucceeded())
		Expect(named.values(ctx, "down."+updateZone, "A")).To(ConsistOf("77 192.0.2.1"))
		Eventually(isGone).WithContext(ctx).WithArguments(existing).Should(BeTrue())
		Expect(named.values(ctx, "existing."+updateZone, "A")).To(ConsistOf("NXDOMAIN"))
	})

	It("goes on after a restart of the instance half-way", func(ctx SpecContext) {
		record := newRecord(gardenNamespace, "old."+updateZone, "A", "192.0.2.1")
		create(ctx, record)

		By("having the server hang while the name changes")
		named.signal(syscall.SIGSTOP)
		DeferCleanup(func() { named.signal(syscall.SIGCONT) })
		record.Spec.Name = "new." + updateZone
		ask(ctx, record, v1beta1constants.GardenerOperationReconcile)
		Eventually(get).WithContext(ctx).WithArguments(record).Should(haveError(gardencorev1beta1.ErrorRetryableInfraDependencies, "no answer of server"))
		source.Stop()
		named.signal(syscall.SIGCONT)

		source.start()
		Eventually(get).WithContext(ctx).WithArguments(record).Should(matchers.HaveSucceeded())
		Expect(named.values(ctx, "new."+updateZone, "A")).To(ConsistOf("77 192.0.2.1"))
		Expect(named.values(ctx, "old."+updateZone, "A")).To(ConsistOf("NXDOMAIN"))
	})
})

var _ = Describe("Moves", func() {
	It("leave the record of the destination seed when the source deletes its own", func(ctx SpecContext) {
		old := newRecord(sourceNamespace, "api."+updateZone, "A", "192.0.2.1")
		create(ctx, old)

		By("migrating, which leaves the name served")
		ask(ctx, old, v1beta1constants.GardenerOperationMigrate)
		Eventually(get).WithContext(ctx).WithArguments(old).Should(And(matchers.HaveSucceeded(), HaveField("Status.LastOperation.Type", gardencorev1beta1.LastOperationTypeMigrate)))
		Expect(named.values(ctx, "api."+updateZone, "A")).To(ConsistOf("77 192.0.2.1"))

		By("restoring, which replaces it")
		moved := newRecord(destinationNamespace, "api."+updateZone, "A", "192.0.2.2")
		moved.Annotations = map[string]string{v1beta1constants.GardenerOperation: v1beta1constants.GardenerOperationRestore}
		create(ctx, moved)
		Expect(named.values(ctx, "api."+updateZone, "A")).To(ConsistOf("77 192.0.2.2"))

		By("deleting at the source")
		remove(ctx, old)
		Expect(named.values(ctx, "api."+updateZone, "A")).To(ConsistOf("77 192.0.2.2"))
		remove(ctx, moved)
		Expect(named.values(ctx, "api."+updateZone, "A")).To(ConsistOf("NXDOMAIN"))
	})

	for operation, force := range map[string]bool{"deletes it without having migrated it": false, "deletes it by force": true} {
		It("leave the record of the destination seed when the source "+operation, func(ctx SpecContext) {
			old := newRecord(sourceNamespace, "lost."+updateZone, "A", "192.0.2.1")
			create(ctx, old)
			moved := newRecord(destinationNamespace, "lost."+updateZone, "A", "192.0.2.2")
			create(ctx, moved)
			if force {
				forceDeletion(ctx, sourceNamespace)
			}
			remove(ctx, old)
			Expect(named.values(ctx, "lost."+updateZone, "A")).To(ConsistOf("77 192.0.2.2"))
			remove(ctx, moved)
		})
	}

	It("take a record from CoreDNS to BIND and back", func(ctx SpecContext) {
		name := "provider." + updateZone
		inCoreDNS := func() []string {
			GinkgoHelper()
			values, err := matchers.Resolve(ctx, "tcp", coreDNS.Address, name, 1)
			Expect(err).NotTo(HaveOccurred())
			return values
		}
		record := newRecord(gardenNamespace, name, "A", "192.0.2.1")
		record.Spec.ProviderConfig = providerConfig(`"provider": "coredns"`)
		create(ctx, record)
		Expect(inCoreDNS()).To(ConsistOf("192.0.2.1"))
		Expect(named.values(ctx, name, "A")).To(ConsistOf("NXDOMAIN"))
		Expect(record.Status.ProviderStatus).To(BeNil())

		change(ctx, record, func() { record.Spec.ProviderConfig = providerConfig(`"provider": "rfc2136"`) })
		Expect(named.values(ctx, name, "A")).To(ConsistOf("77 192.0.2.1"))
		Eventually(inCoreDNS).Should(ConsistOf("NXDOMAIN"))

		source.Stop()
		source.start()
		change(ctx, record, func() { record.Spec.Region = new("anywhere") })
		Expect(inCoreDNS()).To(ConsistOf("NXDOMAIN"), "it does not come back by a restart")

		change(ctx, record, func() { record.Spec.ProviderConfig = providerConfig(`"provider": "coredns"`) })
		Expect(inCoreDNS()).To(ConsistOf("192.0.2.1"))
		Expect(named.values(ctx, name, "A")).To(ConsistOf("NXDOMAIN"))
		Expect(get(ctx, record)).To(HaveField("Status.ProviderStatus", BeNil()))
		remove(ctx, record)
		Eventually(inCoreDNS).Should(ConsistOf("NXDOMAIN"))
	})
})

// newRecord returns a DNSRecord to be served by BIND, which is the default of the destination seed only.
func newRecord(namespace, domain, recordType string, values ...string) *extensionsv1alpha1.DNSRecord {
	name := strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(domain, "*", "any"), ".", "-") + "-" + recordType)
	record := &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: localv1alpha1.Type},
			SecretRef:   corev1.SecretReference{Namespace: namespace, Name: "dns"},
			Name:        domain, RecordType: extensionsv1alpha1.DNSRecordType(recordType), Values: values,
		},
	}
	if namespace != destinationNamespace {
		record.Spec.ProviderConfig = providerConfig(`"provider": "rfc2136"`)
	}
	if namespace == gardenNamespace {
		record.Spec.Class = new(extensionsv1alpha1.ExtensionClassGarden)
	}
	return record
}

// newSecret returns a Secret with the key of an algorithm, or without any.
func newSecret(namespace, name, algorithm string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if algorithm != "" {
		secret.Data = map[string][]byte{
			rfc2136.KeyTSIGKeyName:         []byte(algorithm),
			rfc2136.KeyTSIGSecret:          []byte(secretOf("")),
			rfc2136.KeyTSIGSecretAlgorithm: []byte(algorithm),
		}
	}
	return secret
}

func providerConfig(fields string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"apiVersion": "` + localv1alpha1.SchemeGroupVersion.String() + `", "kind": "DNSRecordConfig", ` + fields + `}`)}
}

// haveError matches an object whose last operation ended in an error with a code and a text.
func haveError(code gardencorev1beta1.ErrorCode, says string) gomegatypes.GomegaMatcher {
	return HaveField("Status.LastError", HaveValue(And(HaveField("Codes", ConsistOf(code)), HaveField("Description", ContainSubstring(says)))))
}

func get(ctx context.Context, record *extensionsv1alpha1.DNSRecord) (*extensionsv1alpha1.DNSRecord, error) {
	return record, c.Get(ctx, client.ObjectKeyFromObject(record), record)
}

func isGone(ctx context.Context, record *extensionsv1alpha1.DNSRecord) (bool, error) {
	err := c.Get(ctx, client.ObjectKeyFromObject(record), &extensionsv1alpha1.DNSRecord{})
	return client.IgnoreNotFound(err) == nil && err != nil, client.IgnoreNotFound(err)
}

// attempt creates a DNSRecord and waits for an outcome.
func attempt(ctx context.Context, record *extensionsv1alpha1.DNSRecord, outcome gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	Expect(c.Create(ctx, record)).To(Succeed())
	Eventually(get).WithContext(ctx).WithArguments(record).Should(outcome)
}

func create(ctx context.Context, record *extensionsv1alpha1.DNSRecord) {
	GinkgoHelper()
	attempt(ctx, record, matchers.HaveSucceeded())
}

// change changes the spec of a DNSRecord as gardenlet does and waits until it is reconciled.
func change(ctx context.Context, record *extensionsv1alpha1.DNSRecord, mutate func()) {
	GinkgoHelper()
	Expect(get(ctx, record)).NotTo(BeNil())
	mutate()
	ask(ctx, record, v1beta1constants.GardenerOperationReconcile)
	Eventually(get).WithContext(ctx).WithArguments(record).Should(matchers.HaveSucceeded())
}

// ask writes a DNSRecord and asks for an operation. The instance may write its status meanwhile.
func ask(ctx context.Context, record *extensionsv1alpha1.DNSRecord, operation string) {
	GinkgoHelper()
	wanted := record.DeepCopy()
	Eventually(func() error {
		if _, err := get(ctx, record); err != nil {
			return err
		}
		record.Spec = *wanted.Spec.DeepCopy()
		metav1.SetMetaDataAnnotation(&record.ObjectMeta, v1beta1constants.GardenerOperation, operation)
		return c.Update(ctx, record)
	}).Should(Succeed())
}

// remove deletes a DNSRecord and waits until it is gone.
func remove(ctx context.Context, record *extensionsv1alpha1.DNSRecord) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(c.Delete(ctx, record))).To(Succeed())
	Eventually(isGone).WithContext(ctx).WithArguments(record).Should(BeTrue())
}

// forceDeletion has a shoot deleted by force until the spec ends.
func forceDeletion(ctx context.Context, namespace string) {
	GinkgoHelper()
	cluster := &extensionsv1alpha1.Cluster{}
	Expect(c.Get(ctx, client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
	before := cluster.Spec.Shoot
	cluster.Spec.Shoot.Raw = []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","metadata":{"name":"local","annotations":{"confirmation.gardener.cloud/force-deletion":"true"}},"spec":{},"status":{"technicalID":"shoot--local--local"}}`)
	Expect(c.Update(ctx, cluster)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		cluster.Spec.Shoot = before
		Expect(c.Update(ctx, cluster)).To(Succeed())
	})
}
