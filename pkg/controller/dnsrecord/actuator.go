// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package dnsrecord holds the controller for DNSRecords of type local. It checks what a DNSRecord asks for, hands it to
// the dns.Provider that is to serve it and reports what that says; whatever is done about a record is the provider's
// matter.
package dnsrecord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/dnsrecord"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/rfc2136"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Providers serve the records, see NewProviders; DefaultProvider those whose providerConfig doesn't say by which.
	Providers       map[configv1alpha1.DNSProvider]dns.Provider
	DefaultProvider configv1alpha1.DNSProvider
	// DefaultTTL is the TTL in seconds of a record without one.
	DefaultTTL int64
	// Zones are those that CoreDNS serves.
	Zones []string
	// ReservedDomains are domains that shoots may not choose names in, beside those of their seed.
	ReservedDomains []string
}

// AddToManager adds the controller to a manager. Permissions that it needs, besides those of the providers: get, list,
// watch and patch of dnsrecords, patch of dnsrecords/status, and with class shoot get, list and watch of clusters and get of
// namespaces.
func AddToManager(mgr manager.Manager, opts Options) error {
	return newReconciler(mgr, opts).AddToManager(mgr, dnsrecord.ControllerName)
}

func newReconciler(mgr manager.Manager, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.DNSRecord] {
	actuator := newActuator(opts, mgr.GetClient(), mgr.GetAPIReader())
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.DNSRecord]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Types:     []string{dns.Type},
		ExistsFor: class.All(),
		Finalizer: dnsrecord.FinalizerName,
		Actuator:  actuator,
		IsAmiss:   actuator.isAmiss,
	})
}

// NewProviders returns the providers that an instance has by its configuration: dynamic updates always, and CoreDNS,
// which it adds to the manager, unless neither DNSRecords go there by default nor the instance deploys it. Permissions
// that they need: those of package coredns, and get of secrets.
func NewProviders(mgr manager.Manager, opts coredns.SetupOptions) (map[configv1alpha1.DNSProvider]dns.Provider, error) {
	updates, err := rfc2136.New(rfc2136.Options{
		Reader:         mgr.GetAPIReader(),
		Server:         opts.DNS.RFC2136.Server,
		AllowedServers: opts.DNS.RFC2136.AllowedServers,
		Zones:          opts.DNS.RFC2136.Zones,
		Timeout:        opts.DNS.RFC2136.Timeout.Duration,
	})
	if err != nil {
		return nil, err
	}
	providers := map[configv1alpha1.DNSProvider]dns.Provider{
		configv1alpha1.DNSProviderRFC2136: dns.Observed(updates, configv1alpha1.DNSProviderRFC2136, opts.Metrics),
	}
	if opts.DNS.Provider == configv1alpha1.DNSProviderRFC2136 && !*opts.DNS.CoreDNS.Deploy {
		return providers, nil
	}

	provider, err := coredns.AddToManager(mgr, opts)
	if err != nil {
		return nil, err
	}
	providers[configv1alpha1.DNSProviderCoreDNS] = dns.Observed(provider, configv1alpha1.DNSProviderCoreDNS, opts.Metrics)
	return providers, nil
}

const (
	// retryServer is how long a record waits at first whose server doesn't answer as it should, retryServerMax how long it
	// waits at most: all records of a server fail with it.
	retryServer    = 5 * time.Second
	retryServerMax = 30 * time.Second
)

// attempt is one at an operation on a DNSRecord.
type attempt = reconciler.Operation[*extensionsv1alpha1.DNSRecord]

type actuator struct {
	Options
	// client reads from the cache, reader asks the API server.
	client, reader client.Reader
	// retry says when to try again. It remembers the DNSRecords that fail, and no others.
	retry workqueue.TypedRateLimiter[types.NamespacedName]
}

func newActuator(opts Options, c, reader client.Reader) *actuator {
	return &actuator{
		Options: opts, client: c, reader: reader,
		retry: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryServer, retryServerMax),
	}
}

// isAmiss tells of a DNSRecord that was served whether the configuration of the instance has another provider for it by now, or none.
func (a *actuator) isAmiss(_ context.Context, object *extensionsv1alpha1.DNSRecord) bool {
	name, _, err := dns.ProviderOf(object, a.DefaultProvider)
	record, errRecord := dns.Parse(object, a.DefaultTTL)
	if err != nil || errRecord != nil || a.Providers[name] == nil || record.CheckReserved(a.ReservedDomains) != nil {
		return true
	}
	byUpdates := name == configv1alpha1.DNSProviderRFC2136
	_, err = record.Zone(a.Zones)
	return !byUpdates && err != nil || byUpdates != (localv1alpha1.DecodeDNSRecordStatus(object.Status.ProviderStatus).Provider == localv1alpha1.DNSProviderRFC2136)
}

// Reconcile implements reconciler.Actuator: a DNSRecord is Succeeded once it resolves, and nothing is left where it was
// before.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	err := reconciler.CheckCluster(ctx, a.reader, op.Object, op.Cluster)
	if err == nil {
		err = a.apply(ctx, op)
	}
	setCreated(op.Object, err)
	return err
}

func (a *actuator) apply(ctx context.Context, op *attempt) error {
	object := op.Object
	name, config, err := dns.ProviderOf(object, a.DefaultProvider)
	if err != nil {
		return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}
	provider, ok := a.Providers[name]
	if !ok {
		return reconciler.ConfigurationProblem(fmt.Errorf("DNS provider %s does not run in this instance: set spec.providerConfig.provider to another, or dns.provider or dns.coreDNS.deploy in the configuration of the instance", name), reconciler.RetryMistake)
	}
	record, err := dns.Parse(object, a.DefaultTTL)
	if err != nil {
		return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}

	request := a.request(op, record, config)
	isFormer := func(written localv1alpha1.WrittenRecord) bool {
		return written.Name != record.Name || written.Type != record.Type
	}
	if slices.ContainsFunc(request.Written, isFormer) {
		isShared, err := a.shared(ctx, object)
		if err != nil {
			return err
		}
		request.Written = slices.DeleteFunc(slices.Clone(request.Written), func(written localv1alpha1.WrittenRecord) bool { return isFormer(written) && isShared(written) })
	}
	if err := record.CheckReserved(a.reserved(op.Cluster.Seed())); err != nil {
		return a.outcome(request, errors.Join(err, a.withdraw(ctx, op, request)))
	}
	if err := provider.Apply(ctx, request); err != nil || name == configv1alpha1.DNSProviderRFC2136 {
		return a.outcome(request, err)
	}
	if err := a.removeWritten(ctx, request); err != nil {
		return a.outcome(request, fmt.Errorf("the record is served by %s, but not removed from where it was before: %w", name, err))
	}
	request.Keep(localv1alpha1.DNSRecordStatus{})
	return a.outcome(request, nil)
}

// reserved returns the domains that a shoot may not choose names in: those in the configuration, and those of its seed.
func (a *actuator) reserved(seed *gardencorev1beta1.Seed) []string {
	domains := slices.Clone(a.ReservedDomains)
	if seed == nil {
		return domains
	}
	if internal := seed.Spec.DNS.Internal; internal != nil {
		domains = append(domains, internal.Domain)
	}
	if ingress := seed.Spec.Ingress; ingress != nil {
		domains = append(domains, ingress.Domain)
	}
	return domains
}

// withdraw removes a record that was served before its domain was reserved, so that a restart doesn't bring it back either.
func (a *actuator) withdraw(ctx context.Context, op *attempt, request dns.Request) error {
	errs := []error{a.removeWritten(ctx, request)}
	if provider, ok := a.Providers[configv1alpha1.DNSProviderCoreDNS]; ok {
		errs = append(errs, provider.Remove(ctx, request))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	request.Keep(localv1alpha1.DNSRecordStatus{})
	changeCreated(op.Object, gardencorev1beta1.ConditionFalse, dns.ReasonReserved, "The record is in a reserved domain")
	return nil
}

// Delete implements reconciler.Actuator. It deletes what was written, not what the spec says, which may have
// become invalid since. A record that was never written has nothing to delete.
func (a *actuator) Delete(ctx context.Context, op *attempt) error {
	if isNeverWritten(op.Object) {
		a.retry.Forget(client.ObjectKeyFromObject(op.Object))
		return nil
	}
	object := op.Object
	name, config := a.serving(object)
	record, err := dns.Parse(object, a.DefaultTTL)
	if err != nil {
		record = dns.Record{Owner: client.ObjectKeyFromObject(object)}
	}
	request := a.request(op, record, config)

	var errs []error
	if name == configv1alpha1.DNSProviderRFC2136 {
		isShared, err := a.shared(ctx, object)
		if err != nil {
			return err
		}
		own := localv1alpha1.WrittenRecord{Name: record.Name, Type: record.Type, Values: record.Values}
		wasWritten := len(request.Written) > 0
		request.Written = slices.DeleteFunc(slices.Clone(request.Written), isShared)
		if len(request.Written) == 0 && (wasWritten || isShared(own)) {
			return a.outcome(request, nil)
		}
	} else {
		errs = append(errs, a.removeWritten(ctx, request))
	}
	// An instance that has the provider no more has nothing there either.
	if provider, ok := a.Providers[name]; ok {
		errs = append(errs, provider.Remove(ctx, request))
	}
	return a.outcome(request, errors.Join(errs...))
}

// ForceDelete implements reconciler.Actuator. What can't be removed now CoreDNS drops once the DNSRecord is gone; another
// server keeps it.
func (a *actuator) ForceDelete(ctx context.Context, op *attempt) error {
	if err := a.Delete(ctx, op); err != nil {
		op.Log.Error(err, "Leaving a record behind, as it is deleted by force")
		a.retry.Forget(client.ObjectKeyFromObject(op.Object))
	}
	return nil
}

// Migrate implements reconciler.Actuator. The seed that a shoot moves to serves its names, so this one forgets them: its
// CoreDNS, that is, as a server that takes dynamic updates is the same for both seeds, and the other one replaces there
// what is still needed until then. A shoot that runs its own control plane takes its machines along, which still need
// the names that they know, and a DNSRecord without a Cluster belongs to the garden or the seed itself, which don't move.
func (a *actuator) Migrate(ctx context.Context, op *attempt) error {
	object, shoot := op.Object, op.Cluster.Shoot()
	if shoot == nil || v1beta1helper.IsShootSelfHosted(shoot.Spec.Provider.Workers) {
		return nil
	}
	provider, ok := a.Providers[configv1alpha1.DNSProviderCoreDNS]
	if name, _ := a.serving(object); name != configv1alpha1.DNSProviderCoreDNS || !ok {
		return nil
	}
	request := dns.Request{Record: dns.Record{Owner: client.ObjectKeyFromObject(object)}}
	return a.outcome(request, provider.Remove(ctx, request))
}

// serving returns who has to serve a DNSRecord, or who last did if its providerConfig is invalid.
func (a *actuator) serving(object *extensionsv1alpha1.DNSRecord) (configv1alpha1.DNSProvider, *localv1alpha1.DNSRecordConfig) {
	name, config, err := dns.ProviderOf(object, a.DefaultProvider)
	if err != nil {
		name = cmp.Or(configv1alpha1.DNSProvider(localv1alpha1.DecodeDNSRecordStatus(object.Status.ProviderStatus).Provider), a.DefaultProvider)
		config = &localv1alpha1.DNSRecordConfig{}
	}
	return name, config
}

// shared returns whether another DNSRecord of the holder wants the same record on the same server, so that it isn't removed there with
// this one: the server has it once. CoreDNS has what each of them wants.
func (a *actuator) shared(ctx context.Context, object *extensionsv1alpha1.DNSRecord) (func(localv1alpha1.WrittenRecord) bool, error) {
	list := &extensionsv1alpha1.DNSRecordList{}
	if err := a.client.List(ctx, list, client.InNamespace(object.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing DNSRecords in %s: %w", object.Namespace, err)
	}
	isSibling := func(other *extensionsv1alpha1.DNSRecord, written localv1alpha1.WrittenRecord) bool {
		return other.Name != object.Name && other.DeletionTimestamp == nil && !isNeverWritten(other) && other.Spec.Type == object.Spec.Type && other.Spec.SecretRef == object.Spec.SecretRef &&
			string(other.Spec.RecordType) == written.Type && strings.EqualFold(strings.TrimSuffix(other.Spec.Name, "."), written.Name)
	}
	return func(written localv1alpha1.WrittenRecord) bool {
		return slices.ContainsFunc(list.Items, func(other extensionsv1alpha1.DNSRecord) bool {
			if !isSibling(&other, written) {
				return false
			}
			record, err := dns.Parse(&other, a.DefaultTTL)
			return err == nil && slices.Equal(record.Values, written.Values) && record.Holder() == dns.Identify(object).Holder()
		})
	}, nil
}

// removeWritten removes what was sent to servers, which only dynamic updates are.
func (a *actuator) removeWritten(ctx context.Context, request dns.Request) error {
	provider, ok := a.Providers[configv1alpha1.DNSProviderRFC2136]
	if !ok || len(request.Written) == 0 {
		return nil
	}
	return provider.Remove(ctx, request)
}

func (a *actuator) request(op *attempt, record dns.Record, config *localv1alpha1.DNSRecordConfig) dns.Request {
	object := op.Object
	status := localv1alpha1.DecodeDNSRecordStatus(object.Status.ProviderStatus)
	// What the first attempt writes is found by the spec if it is cut off, so its status is written once, in the end.
	isFirst := object.Status.ProviderStatus == nil && createdOf(object) == ""
	technicalID := ""
	if shoot := op.Cluster.Shoot(); shoot != nil {
		technicalID = shoot.Status.TechnicalID
	}
	return dns.Request{
		Record:      record,
		TechnicalID: technicalID,
		Config:      *config,
		Secret:      object.Spec.SecretRef,
		Serving:     status.Provider,
		Written:     status.Written,
		Save: func(ctx context.Context, status localv1alpha1.DNSRecordStatus) error {
			keepStatus(object, status)
			if isFirst {
				return nil
			}
			return op.SaveStatus(ctx)
		},
		Keep: func(status localv1alpha1.DNSRecordStatus) { keepStatus(object, status) },
	}
}

// outcome gives an error of a provider the code of its cause and an interval for the next try.
func (a *actuator) outcome(request dns.Request, err error) error {
	owner := request.Record.Owner
	switch {
	case err == nil:
		a.retry.Forget(owner)
		return nil
	case len(v1beta1helper.ExtractErrorCodes(err)) > 0:
		return reconciler.RetrySlowly(err)
	default:
		return reconciler.WithCode(err, gardencorev1beta1.ErrorRetryableInfraDependencies, a.retry.When(owner))
	}
}

// keepStatus puts the providerStatus into the status of a DNSRecord; an empty one is none.
//
// The deletion of a DNSRecord whose condition Created is False is skipped, which it is if the first reconcile ends in an
// error. Once something may have been written that is not so certain any more, so the condition is Unknown from then on
// until the record resolves.
func keepStatus(object *extensionsv1alpha1.DNSRecord, status localv1alpha1.DNSRecordStatus) {
	status.TypeMeta = metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.DNSRecordStatusKind}
	object.Status.ProviderStatus = nil
	if status.Provider != "" || len(status.Written) > 0 {
		raw, _ := json.Marshal(status) // it is of strings and numbers, so this does not fail
		object.Status.ProviderStatus = &runtime.RawExtension{Raw: raw}
	}
	if created := createdOf(object); len(status.Written) > 0 && (created == "" || created == gardencorev1beta1.ConditionFalse) {
		changeCreated(object, gardencorev1beta1.ConditionUnknown, "Written", "The record was sent and has not been seen to resolve yet")
	}
}

// setCreated says in the condition Created what has become of a reconcile. Gardener's library has it so: what was created
// once is not said to be gone because of a later error.
func setCreated(object *extensionsv1alpha1.DNSRecord, err error) {
	switch created := createdOf(object); {
	case err == nil && created != gardencorev1beta1.ConditionTrue:
		changeCreated(object, gardencorev1beta1.ConditionTrue, "Success", "The record has been created and was seen to resolve")
	case err != nil && created == "":
		changeCreated(object, gardencorev1beta1.ConditionFalse, "Error", "The record could not be created so far")
	}
}

// isNeverWritten reports whether nothing can be there of a record.
func isNeverWritten(object *extensionsv1alpha1.DNSRecord) bool {
	return createdOf(object) == gardencorev1beta1.ConditionFalse
}

// createdOf returns the status of the condition Created; empty if there is none.
func createdOf(object *extensionsv1alpha1.DNSRecord) gardencorev1beta1.ConditionStatus {
	if created := v1beta1helper.GetCondition(object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated); created != nil {
		return created.Status
	}
	return ""
}

func changeCreated(object *extensionsv1alpha1.DNSRecord, status gardencorev1beta1.ConditionStatus, reason, message string) {
	condition := v1beta1helper.GetOrInitConditionWithClock(clock.RealClock{}, object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated)
	condition = v1beta1helper.UpdatedConditionWithClock(clock.RealClock{}, condition, status, reason, message)
	object.Status.Conditions = v1beta1helper.MergeConditions(object.Status.Conditions, condition)
}
