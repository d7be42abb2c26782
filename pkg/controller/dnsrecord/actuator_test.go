// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsrecord

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

type fakeProvider struct {
	err     error
	applied []dns.Request
	removed []dns.Request
	// saves is what it saves before it is done.
	saves *localv1alpha1.DNSRecordStatus
}

func (f *fakeProvider) Apply(ctx context.Context, request dns.Request) error {
	f.applied = append(f.applied, request)
	if f.saves != nil {
		if err := request.Save(ctx, *f.saves); err != nil {
			return err
		}
	}
	return f.err
}

func (f *fakeProvider) Remove(_ context.Context, request dns.Request) error {
	f.removed = append(f.removed, request)
	return f.err
}

func (f *fakeProvider) owners() []types.NamespacedName {
	var owners []types.NamespacedName
	for _, request := range f.removed {
		owners = append(owners, request.Record.Owner)
	}
	return owners
}

const (
	coreDNS = configv1alpha1.DNSProviderCoreDNS
	updates = configv1alpha1.DNSProviderRFC2136
)

var owner = types.NamespacedName{Namespace: "garden", Name: "api"}

func object() *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name},
		Spec:       extensionsv1alpha1.DNSRecordSpec{Name: "api.local.gardener.cloud", RecordType: "A", Values: []string{"1.2.3.4"}, SecretRef: corev1.SecretReference{Namespace: "garden", Name: "secret"}},
	}
}

func servedBy(provider configv1alpha1.DNSProvider) *extensionsv1alpha1.DNSRecord {
	out := object()
	out.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"provider": "` + string(provider) + `"}`)}
	return out
}

func written() localv1alpha1.DNSRecordStatus {
	return localv1alpha1.DNSRecordStatus{Provider: "rfc2136", Written: []localv1alpha1.WrittenRecord{
		{Server: "ns:53", Zone: "local.gardener.cloud", Name: "api.local.gardener.cloud", Type: "A", Values: []string{"1.2.3.4"}, TTL: 60},
	}}
}

// scenario is an actuator with fake providers and a fake API server.
type scenario struct {
	*actuator
	client           client.WithWatch
	coreDNS, updates *fakeProvider
	object           *extensionsv1alpha1.DNSRecord
	patches          int
}

func newScenario(t *testing.T, object *extensionsv1alpha1.DNSRecord, status ...localv1alpha1.DNSRecordStatus) *scenario {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	s := &scenario{coreDNS: &fakeProvider{}, updates: &fakeProvider{}, object: object}
	s.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(object).WithObjects(object).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, subResource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			s.patches++
			return c.SubResource(subResource).Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	s.actuator = newActuator(Options{
		Providers:       map[configv1alpha1.DNSProvider]dns.Provider{coreDNS: s.coreDNS, updates: s.updates},
		DefaultProvider: coreDNS,
		DefaultTTL:      60,
	}, s.client, s.client)
	for _, status := range status {
		keepStatus(object, status)
		g.Expect(s.save(t.Context())).To(Succeed())
	}
	s.patches = 0
	return s
}

// attempt is at an operation on the object, without a Cluster.
func (s *scenario) attempt() *attempt {
	return &attempt{Log: logr.Discard(), Object: s.object, SaveStatus: s.save}
}

func mustMarshal(status extensionsv1alpha1.DNSRecordStatus) []byte {
	data, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	return data
}

// save writes the status if it has changed.
func (s *scenario) save(ctx context.Context) error {
	stored := &extensionsv1alpha1.DNSRecord{}
	if err := s.client.Get(ctx, owner, stored); err != nil {
		return err
	}
	changed, err := jsonpatch.CreateMergePatch(mustMarshal(stored.Status), mustMarshal(s.object.Status))
	if err != nil || string(changed) == "{}" {
		return err
	}
	before := stored.DeepCopy()
	stored.Status = *s.object.Status.DeepCopy()
	return s.client.Status().Patch(ctx, stored, client.MergeFrom(before))
}

// reconcile has the status written in the end, as the reconciler does it.
func (s *scenario) reconcile(t *testing.T) error {
	err := s.Reconcile(t.Context(), s.attempt())
	NewWithT(t).Expect(s.save(t.Context())).To(Succeed())
	return err
}

// status is what the API server has.
func (s *scenario) status(t *testing.T) extensionsv1alpha1.DNSRecordStatus {
	t.Helper()
	actual := &extensionsv1alpha1.DNSRecord{}
	NewWithT(t).Expect(s.client.Get(t.Context(), owner, actual)).To(Succeed())
	return actual.Status
}

func TestReconcileHandsTheRecordToTheProvider(t *testing.T) {
	g := NewWithT(t)
	s := newScenario(t, object())
	g.Expect(s.Reconcile(t.Context(), s.attempt())).To(Succeed())
	g.Expect(s.coreDNS.applied).To(ConsistOf(HaveField("Record", And(
		HaveField("Owner", owner), HaveField("Name", "api.local.gardener.cloud"), HaveField("TTL", int64(60))))))
	g.Expect(s.updates.applied).To(BeEmpty())
	g.Expect(s.updates.removed).To(BeEmpty())
	g.Expect(s.patches).To(BeZero())
}

func TestTheProviderConfigTellsTheProvider(t *testing.T) {
	g := NewWithT(t)
	s := newScenario(t, servedBy(updates), written())
	g.Expect(s.reconcile(t)).To(Succeed())
	g.Expect(s.coreDNS.applied).To(BeEmpty())
	g.Expect(s.updates.applied).To(ConsistOf(And(
		HaveField("Config.Provider", "rfc2136"),
		HaveField("Secret", corev1.SecretReference{Namespace: "garden", Name: "secret"}),
		HaveField("Serving", "rfc2136"),
		HaveField("Written", written().Written),
	)))
}

func TestAfterAChangeOfTheConfigurationARecordIsDueThatSucceeded(t *testing.T) {
	for name, test := range map[string]struct {
		object *extensionsv1alpha1.DNSRecord
		served localv1alpha1.DNSRecordStatus
		change func(*Options)
		due    bool
	}{
		"not without a change":                     {object(), localv1alpha1.DNSRecordStatus{}, func(*Options) {}, false},
		"not of one that servers have":             {servedBy(updates), written(), func(o *Options) { o.Zones = nil }, false},
		"to another provider":                      {object(), localv1alpha1.DNSRecordStatus{}, func(o *Options) { o.DefaultProvider = updates }, true},
		"and back":                                 {object(), written(), func(*Options) {}, true},
		"but not if it names its provider":         {servedBy(coreDNS), localv1alpha1.DNSRecordStatus{}, func(o *Options) { o.DefaultProvider = updates }, false},
		"that takes its zone away":                 {object(), localv1alpha1.DNSRecordStatus{}, func(o *Options) { o.Zones = []string{"example.org"} }, true},
		"that no longer runs its provider":         {servedBy(coreDNS), localv1alpha1.DNSRecordStatus{}, func(o *Options) { delete(o.Providers, coreDNS) }, true},
		"that reserves its domain":                 {object(), localv1alpha1.DNSRecordStatus{}, func(o *Options) { o.ReservedDomains = []string{"local.gardener.cloud"} }, true},
		"with which its providerConfig is invalid": {servedBy("none"), localv1alpha1.DNSRecordStatus{}, func(*Options) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			opts := Options{DefaultProvider: coreDNS, DefaultTTL: 60, Zones: []string{"local.gardener.cloud"}}
			opts.Providers = map[configv1alpha1.DNSProvider]dns.Provider{coreDNS: &fakeProvider{}, updates: &fakeProvider{}}
			test.change(&opts)
			test.object.Namespace = "shoot--p--s"
			test.object.Spec.Type = dns.Type
			keepStatus(test.object, test.served)
			test.object.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateSucceeded, LastUpdateTime: metav1.Now()}
			classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
			g.Expect(err).NotTo(HaveOccurred())
			opts.Shared = reconciler.Shared{Classes: classes}
			starts := predicate.And(newReconciler(fakeManager{}, opts).Predicates()...)
			g.Expect(starts.Create(event.CreateEvent{Object: test.object})).To(Equal(test.due))
		})
	}
}

func TestAProviderThatDoesNotRunIsToldWithARemedy(t *testing.T) {
	g := NewWithT(t)
	s := newScenario(t, object())
	delete(s.Providers, coreDNS)
	g.Expect(s.reconcile(t)).To(MatchError(ContainSubstring("set spec.providerConfig.provider to another")))
	g.Expect(s.Delete(t.Context(), s.attempt())).To(Succeed(), "there is nothing to remove")
}

func TestErrorsHaveTheCodeOfTheirCauseAndAreNotRetriedHot(t *testing.T) {
	wrong, unknown := object(), object()
	wrong.Spec.RecordType = "AAAA"
	unknown.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"porvider": "rfc2136"}`)}
	for _, test := range []struct {
		name   string
		object *extensionsv1alpha1.DNSRecord
		err    error
		code   gardencorev1beta1.ErrorCode
		after  time.Duration
		says   string
	}{
		{"a mistake of the user", wrong, nil, gardencorev1beta1.ErrorConfigurationProblem, reconciler.RetryMistake, "AAAA record needs an IPv6"},
		{"a mistake in the providerConfig", unknown, nil, gardencorev1beta1.ErrorConfigurationProblem, reconciler.RetryMistake, `unknown field "porvider"`},
		{"a conflict", object(), dns.Record{}.Conflict(dns.Holder{}, types.NamespacedName{}, "it is newer"), gardencorev1beta1.ErrorConfigurationProblem, reconciler.RetryMissing, "it is newer"},
		{"a mistake that the provider finds", object(), dns.ConfigurationProblem(errors.New("no zone")), gardencorev1beta1.ErrorConfigurationProblem, reconciler.RetryMissing, "no zone"},
		{"a key that is not taken", object(), v1beta1helper.NewErrorWithCodes(errors.New("BADKEY"), gardencorev1beta1.ErrorInfraUnauthorized), gardencorev1beta1.ErrorInfraUnauthorized, reconciler.RetryMissing, "BADKEY"},
		{"a server that doesn't answer", object(), errors.New("timeout"), gardencorev1beta1.ErrorRetryableInfraDependencies, retryServer, "timeout"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScenario(t, test.object)
			s.coreDNS.err = test.err
			var requeue *reconcilerutils.RequeueAfterError
			g.Expect(errors.As(s.reconcile(t), &requeue)).To(BeTrue())
			g.Expect(requeue.RequeueAfter).To(Equal(test.after))
			g.Expect(requeue.Cause).To(MatchError(ContainSubstring(test.says)))
			g.Expect(v1beta1helper.ExtractErrorCodes(requeue.Cause)).To(ConsistOf(test.code))
			if test.err == nil {
				g.Expect(s.coreDNS.applied).To(BeEmpty())
			}
		})
	}
}

func TestAShootDoesNotChooseANameInAReservedDomain(t *testing.T) {
	cluster := extensioncluster.From(&extensionscontroller.Cluster{
		Shoot: &gardencorev1beta1.Shoot{Status: gardencorev1beta1.ShootStatus{TechnicalID: "shoot--p--s"}},
		Seed: &gardencorev1beta1.Seed{Spec: gardencorev1beta1.SeedSpec{
			DNS:     gardencorev1beta1.SeedDNS{Internal: &gardencorev1beta1.SeedDNSProviderConfig{Domain: "internal.local.gardener.cloud"}},
			Ingress: &gardencorev1beta1.Ingress{Domain: "ingress.local.seed.local.gardener.cloud"},
		}},
	})
	for _, test := range []struct {
		name    string
		change  func(*extensionsv1alpha1.DNSRecord)
		refused bool
	}{
		{"the API server of the garden", func(o *extensionsv1alpha1.DNSRecord) { o.Spec.Name = "api.virtual-garden.local.gardener.cloud" }, true},
		{"the Ingress domain of the seed", func(o *extensionsv1alpha1.DNSRecord) { o.Spec.Name = "*.ingress.local.seed.local.gardener.cloud" }, true},
		{"the internal domain of another shoot", func(o *extensionsv1alpha1.DNSRecord) {
			o.Spec.Name = "api.victim.p.internal.local.gardener.cloud"
			o.Labels = map[string]string{"role": "external"}
		}, true},
		{"its own internal domain", func(o *extensionsv1alpha1.DNSRecord) {
			o.Spec.Name = "api.s.p.internal.local.gardener.cloud"
			o.Labels = map[string]string{"role": "internal"}
		}, false},
		{"the host of an Ingress in the seed", func(o *extensionsv1alpha1.DNSRecord) {
			o.Spec.Name = "gu-p--s.ingress.local.seed.local.gardener.cloud"
			o.Labels = map[string]string{dns.LabelIngress: "plutono"}
		}, false},
		{"a domain of its own", func(o *extensionsv1alpha1.DNSRecord) { o.Spec.Name = "api.s.p.external.local.gardener.cloud" }, false},
	} {
		for _, provider := range []configv1alpha1.DNSProvider{coreDNS, updates} {
			t.Run(test.name+" by "+string(provider), func(t *testing.T) {
				g := NewWithT(t)
				object := servedBy(provider)
				object.Namespace = "shoot--p--s"
				object.Status.Conditions = []gardencorev1beta1.Condition{{Type: "Created", Status: "True"}}
				test.change(object)
				s := newScenario(t, object)
				s.ReservedDomains = []string{"virtual-garden.local.gardener.cloud"}
				keepStatus(object, written())
				attempt := s.attempt()
				attempt.Cluster = cluster
				err := s.apply(t.Context(), attempt)
				applied := slices.Concat(s.coreDNS.applied, s.updates.applied)
				if !test.refused {
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(applied).To(ConsistOf(HaveField("TechnicalID", "shoot--p--s")))
					return
				}
				g.Expect(err).To(MatchError(ContainSubstring("is reserved")))
				var requeue *reconcilerutils.RequeueAfterError
				g.Expect(errors.As(err, &requeue)).To(BeTrue())
				g.Expect(v1beta1helper.ExtractErrorCodes(requeue.Cause)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
				g.Expect(applied).To(BeEmpty())
				g.Expect(s.coreDNS.removed).To(HaveLen(1), "what was served before the domain was reserved")
				g.Expect(s.updates.removed).To(HaveLen(1))
				g.Expect(object.Status.ProviderStatus).To(BeNil())
				g.Expect(isNeverWritten(object)).To(BeTrue(), "a restart does not bring it back")
			})
		}
	}
}

func TestARecordWhoseProviderChangedIsRemovedFromTheOldOne(t *testing.T) {
	g := NewWithT(t)
	s := newScenario(t, servedBy(coreDNS), written())
	s.updates.err = errors.New("no answer")
	g.Expect(s.reconcile(t)).To(MatchError(And(ContainSubstring("no answer"), ContainSubstring("served by coredns"))))
	g.Expect(s.status(t).ProviderStatus).NotTo(BeNil(), "it is to be removed yet")

	s.updates.err = nil
	g.Expect(s.reconcile(t)).To(Succeed())
	g.Expect(s.coreDNS.applied).To(HaveLen(2))
	g.Expect(s.updates.removed).To(HaveEach(HaveField("Written", written().Written)))
	g.Expect(s.status(t).ProviderStatus).To(BeNil())
	g.Expect(s.patches).To(Equal(1))

	g.Expect(s.reconcile(t)).To(Succeed())
	g.Expect(s.updates.removed).To(HaveLen(2), "once is enough")
}

func TestTheOldProviderKeepsARecordThatTheNewOneCannotServe(t *testing.T) {
	g := NewWithT(t)
	s := newScenario(t, servedBy(coreDNS), written())
	s.coreDNS.err = errors.New("no answer")
	g.Expect(s.reconcile(t)).NotTo(Succeed())
	g.Expect(s.updates.removed).To(BeEmpty())
}

func TestWhatMayBeWrittenIsDeletedThoughTheFirstReconcileFails(t *testing.T) {
	for _, test := range []struct {
		name   string
		before []gardencorev1beta1.Condition
		after  gardencorev1beta1.ConditionStatus
	}{
		{"in the first reconcile", nil, gardencorev1beta1.ConditionUnknown},
		{"after a reconcile that wrote nothing", []gardencorev1beta1.Condition{{Type: "Created", Status: "False"}}, gardencorev1beta1.ConditionUnknown},
		{"after a success", []gardencorev1beta1.Condition{{Type: "Created", Status: "True"}}, gardencorev1beta1.ConditionTrue},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			object := servedBy(updates)
			object.Status.Conditions = test.before
			s := newScenario(t, object)
			s.updates.err = errors.New("no answer")
			s.updates.saves = new(written())
			g.Expect(s.reconcile(t)).NotTo(Succeed())
			g.Expect(s.status(t).Conditions).To(ConsistOf(And(HaveField("Type", gardencorev1beta1.ConditionType("Created")), HaveField("Status", test.after))))
			g.Expect(localv1alpha1.DecodeDNSRecordStatus(s.status(t).ProviderStatus).Written).To(Equal(written().Written))
			g.Expect(s.patches).To(Equal(1))

			g.Expect(s.reconcile(t)).NotTo(Succeed())
			g.Expect(s.patches).To(Equal(1), "what is saved is not saved again")

			s.updates.err = nil
			g.Expect(s.Delete(t.Context(), s.attempt())).To(Succeed())
			g.Expect(s.updates.removed).To(HaveLen(1))
		})
	}
}

func TestOnlyTheFirstAttemptWritesItsStatusJustOnce(t *testing.T) {
	for created, saves := range map[gardencorev1beta1.ConditionStatus]int{"": 0, "False": 1, "Unknown": 1, "True": 1} {
		t.Run("created "+string(created), func(t *testing.T) {
			g := NewWithT(t)
			object := servedBy(updates)
			if created != "" {
				object.Status.Conditions = []gardencorev1beta1.Condition{{Type: "Created", Status: created}}
			}
			s := newScenario(t, object)
			s.updates.saves = new(written())
			g.Expect(s.Reconcile(t.Context(), s.attempt())).To(Succeed())
			g.Expect(s.patches).To(Equal(saves), "before it is sent")
		})
	}
}

func TestDeletionRemovesTheRecordEvenIfItIsNotValid(t *testing.T) {
	g := NewWithT(t)
	invalid := object()
	invalid.Spec.Values = nil
	s := newScenario(t, invalid)
	g.Expect(s.Delete(t.Context(), s.attempt())).To(Succeed())
	g.Expect(s.coreDNS.owners()).To(ConsistOf(owner))
	g.Expect(s.updates.removed).To(BeEmpty())

	s.coreDNS.err = errors.New("no answer")
	g.Expect(s.Delete(t.Context(), s.attempt())).NotTo(Succeed())
}

func TestDeletionGoesByWhatWasWritten(t *testing.T) {
	invalid := servedBy("bind")
	for _, test := range []struct {
		name             string
		object           *extensionsv1alpha1.DNSRecord
		status           []localv1alpha1.DNSRecordStatus
		coreDNS, updates int
	}{
		{"dynamic updates", servedBy(updates), []localv1alpha1.DNSRecordStatus{written()}, 0, 1},
		{"dynamic updates whose status got lost", servedBy(updates), nil, 0, 1},
		{"an invalid providerConfig", invalid, []localv1alpha1.DNSRecordStatus{written()}, 0, 1},
		{"an invalid providerConfig and nothing known", invalid.DeepCopy(), nil, 1, 0},
		{"half-way from dynamic updates to CoreDNS", servedBy(coreDNS), []localv1alpha1.DNSRecordStatus{written()}, 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScenario(t, test.object, test.status...)
			g.Expect(s.Delete(t.Context(), s.attempt())).To(Succeed())
			g.Expect(s.coreDNS.removed).To(HaveLen(test.coreDNS))
			g.Expect(s.updates.removed).To(HaveLen(test.updates))
		})
	}
}

func TestDeletionLeavesWhatAnotherDNSRecordOfTheHolderWants(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*extensionsv1alpha1.DNSRecord)
		left   bool
	}{
		"the same":                 {func(o *extensionsv1alpha1.DNSRecord) { o.Spec.Name = "API.local.gardener.cloud." }, true},
		"other values":             {func(o *extensionsv1alpha1.DNSRecord) { o.Spec.Values = []string{"1.2.3.5"} }, false},
		"another type":             {func(o *extensionsv1alpha1.DNSRecord) { o.Spec.RecordType, o.Spec.Values = "TXT", []string{"1.2.3.4"} }, false},
		"another Secret":           {func(o *extensionsv1alpha1.DNSRecord) { o.Spec.SecretRef.Name = "other" }, false},
		"one of another class":     {func(o *extensionsv1alpha1.DNSRecord) { o.Spec.Class = new(extensionsv1alpha1.ExtensionClassGarden) }, false},
		"one in another namespace": {func(o *extensionsv1alpha1.DNSRecord) { o.Namespace = "other" }, false},
		"one that was never served": {func(o *extensionsv1alpha1.DNSRecord) {
			o.Status.Conditions = []gardencorev1beta1.Condition{{Type: "Created", Status: "False"}}
		}, false},
		"one that is being deleted": {func(o *extensionsv1alpha1.DNSRecord) {
			o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"a/b"}
		}, false},
	} {
		for _, status := range [][]localv1alpha1.DNSRecordStatus{{written()}, nil} {
			t.Run(name, func(t *testing.T) {
				g := NewWithT(t)
				sibling := servedBy(updates)
				sibling.Name = "sibling"
				test.change(sibling)
				s := newScenario(t, servedBy(updates), status...)
				c := fake.NewClientBuilder().WithScheme(s.client.Scheme()).WithObjects(servedBy(updates), sibling).Build()
				s.actuator.client = c
				g.Expect(s.Delete(t.Context(), s.attempt())).To(Succeed())
				if test.left {
					g.Expect(s.updates.removed).To(BeEmpty())
				} else {
					g.Expect(s.updates.removed).To(HaveLen(1))
				}
			})
		}
	}
}

func TestANewNameLeavesTheFormerOneToAnotherDNSRecordThatWantsIt(t *testing.T) {
	g := NewWithT(t)
	renamed, sibling := servedBy(updates), servedBy(updates)
	renamed.Spec.Name, sibling.Name = "new.local.gardener.cloud", "sibling"
	s := newScenario(t, renamed, written())
	g.Expect(s.client.Create(t.Context(), sibling)).To(Succeed())
	g.Expect(s.reconcile(t)).To(Succeed())
	g.Expect(s.updates.applied).To(ConsistOf(HaveField("Written", BeEmpty())))
}

func TestDeletionByForceIsNotHeldUp(t *testing.T) {
	g := NewWithT(t)
	for _, provider := range []configv1alpha1.DNSProvider{coreDNS, updates} {
		s := newScenario(t, servedBy(provider))
		s.coreDNS.err, s.updates.err = errors.New("no answer"), errors.New("no answer")
		g.Expect(s.ForceDelete(t.Context(), s.attempt())).To(Succeed())
		g.Expect(append(s.coreDNS.owners(), s.updates.owners()...)).To(ConsistOf(owner))
	}
}

func TestMigrationRemovesWhatTheOtherSeedWillServe(t *testing.T) {
	shoot := func(workers ...gardencorev1beta1.Worker) *extensionscontroller.Cluster {
		return &extensionscontroller.Cluster{Shoot: &gardencorev1beta1.Shoot{Spec: gardencorev1beta1.ShootSpec{Provider: gardencorev1beta1.Provider{Workers: workers}}}}
	}
	for _, test := range []struct {
		name    string
		object  *extensionsv1alpha1.DNSRecord
		cluster *extensionscontroller.Cluster
		removes bool
	}{
		{"a shoot", object(), shoot(gardencorev1beta1.Worker{Name: "worker"}), true},
		{"a shoot on a server that the seeds share", servedBy(updates), shoot(gardencorev1beta1.Worker{Name: "worker"}), false},
		{"a self-hosted shoot", object(), shoot(gardencorev1beta1.Worker{Name: "control-plane", ControlPlane: &gardencorev1beta1.WorkerControlPlane{}}), false},
		{"no Cluster", object(), nil, false},
		{"a Cluster without a Shoot", object(), &extensionscontroller.Cluster{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScenario(t, test.object)
			migration := s.attempt()
			migration.Cluster = extensioncluster.From(test.cluster)
			g.Expect(s.Migrate(t.Context(), migration)).To(Succeed())
			g.Expect(s.coreDNS.removed).To(HaveLen(map[bool]int{true: 1, false: 0}[test.removes]))
			g.Expect(s.updates.removed).To(BeEmpty())
		})
	}
}

func TestAServerThatStaysAwayIsAskedLessAndLessOften(t *testing.T) {
	g := NewWithT(t)
	s := newScenario(t, object())
	wait := func() time.Duration {
		var requeue *reconcilerutils.RequeueAfterError
		g.Expect(errors.As(s.reconcile(t), &requeue)).To(BeTrue())
		return requeue.RequeueAfter
	}

	s.coreDNS.err = errors.New("connection refused")
	g.Expect([]time.Duration{wait(), wait(), wait(), wait(), wait()}).To(HaveExactElements(
		5*time.Second, 10*time.Second, 20*time.Second, 30*time.Second, 30*time.Second))

	s.coreDNS.err = nil
	g.Expect(s.reconcile(t)).To(Succeed())
	s.coreDNS.err = errors.New("connection refused")
	g.Expect(wait()).To(Equal(5 * time.Second))
}
