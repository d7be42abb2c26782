// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	"github.com/gardener/gardener/pkg/api/extensions/validation"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/utils"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// ControllerName is the name of the controller, and of who reports its Events.
	ControllerName = "ingress"
	// settle is how long a new DNSRecord is left alone. Those that were made along with it are in the cache by then, so that
	// nothing is made twice. There is no hurry: who made it here made it right.
	settle = time.Second
	// retryConflict is when something is tried again that somebody else has changed meanwhile: the cache knows by then.
	retryConflict = 100 * time.Millisecond
	// noSecret is the Secret that a DNSRecord names where no other DNSRecord in the namespace tells of one. The API wants
	// a name. CoreDNS needs no credentials and never reads it; a DNS server that needs some will say that it is missing.
	noSecret = "no-credentials"
	// hashLength is how many characters of a hash make names distinct: 48 bits.
	hashLength = 12

	// Reasons of Events.
	reasonNoAddress = "NoAddress"
	reasonInvalid   = "InvalidHost"
	reasonTaken     = "NameTaken"
)

// Options are what the controller needs.
type Options struct {
	// Controller are the options of the controller itself, such as its concurrency.
	Controller controller.Options
	// Gateways are the Services by which an Ingress is reached whose status has no address: the first that has one. They
	// are of type LoadBalancer. Without any, only Ingresses with an address of their own get records.
	Gateways []client.ObjectKey
}

// AddToManager adds the controller to a manager. The manager's scheme has to know networking.k8s.io/v1 and
// extensions.gardener.cloud. Its cache may hold no other Services than those of type LoadBalancer, without anything but their
// names and addresses, and of other namespaces than those of shoots nothing; of a namespace it has to keep the label
// gardener.cloud/role and the deletion timestamp.
//
// Needed permissions: get, list, watch, create, patch, delete on DNSRecords; get, list, watch on Ingresses, Services and
// Namespaces; update on ingresses/finalizers, as an owner reference that blocks the owner's deletion needs it where
// OwnerReferencesPermissionEnforcement is on; create, patch on Events of events.k8s.io.
func AddToManager(mgr manager.Manager, opts Options) error {
	opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	r := &ingresses{client: mgr.GetClient(), gateways: slices.Clone(opts.Gateways), events: mgr.GetEventRecorder(ControllerName)}
	return builder.ControllerManagedBy(mgr).Named(ControllerName).WithOptions(opts.Controller).
		For(&networkingv1.Ingress{}, builder.WithPredicates(ingressChanged())).
		Watches(&extensionsv1alpha1.DNSRecord{}, r.recordHandler(), builder.WithPredicates(recordChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.byNamespace), builder.WithPredicates(namespaceChanged())).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.byGateway), builder.WithPredicates(r.gatewayChanged())).
		Complete(r)
}

func ingressChanged() predicate.Predicate {
	return reconciler.Changed(func(obj client.Object) any {
		ingress := obj.(*networkingv1.Ingress)
		return []any{ingress.UID, isDeleted(ingress), hostsOf(ingress), answersOfIngress(ingress)}
	})
}

// recordChanged keeps away what the DNSRecord controller writes: the status, its finalizer and the operation annotation.
func recordChanged() predicate.Predicate {
	return reconciler.Changed(func(obj client.Object) any {
		record := obj.(*extensionsv1alpha1.DNSRecord)
		return []any{record.Generation, isDeleted(record), isMigrating(record), record.Labels[dns.LabelIngress], isConfirmed(record), record.OwnerReferences}
	})
}

func namespaceChanged() predicate.Predicate {
	return reconciler.Changed(func(namespace client.Object) any { return []any{isShootNamespace(namespace), isDeleted(namespace)} })
}

// gatewayChanged lets pass that a gateway has another address, or none.
func (r *ingresses) gatewayChanged() predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(obj client.Object) bool { return slices.Contains(r.gateways, client.ObjectKeyFromObject(obj)) }),
		reconciler.Changed(func(obj client.Object) any { return answersOfService(obj.(*corev1.Service)) }),
	)
}

// recordHandler wakes by DNSRecords.
func (r *ingresses) recordHandler() handler.EventHandler {
	at, later := handler.EnqueueRequestsFromMapFunc(r.byRecord), reconciler.WakeAfter(settle, r.byRecord)
	return handler.Funcs{CreateFunc: later.Create, UpdateFunc: at.Update, DeleteFunc: at.Delete}
}

// byRecord maps a DNSRecord to the Ingress that it belongs to. Any other one may name the Secret that the records of all
// Ingresses of its namespace are to name, or may have a name that one of theirs should have.
func (r *ingresses) byRecord(ctx context.Context, obj client.Object) []reconcile.Request {
	if owner := ingressOf(obj); owner != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: owner}}}
	}
	return r.requests(ctx, nil, client.InNamespace(obj.GetNamespace()))
}

// byNamespace maps a Namespace to its Ingresses.
func (r *ingresses) byNamespace(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.requests(ctx, nil, client.InNamespace(obj.GetName()))
}

// byGateway maps a gateway to the Ingresses that have no address of their own.
func (r *ingresses) byGateway(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx, func(ingress *networkingv1.Ingress) bool { return len(answersOfIngress(ingress)) == 0 })
}

func (r *ingresses) requests(ctx context.Context, filter func(*networkingv1.Ingress) bool, opts ...client.ListOption) []reconcile.Request {
	list := &networkingv1.IngressList{}
	// They are only looked at.
	if err := r.client.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		logf.FromContext(ctx).Error(err, "Listing Ingresses")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if filter == nil || filter(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// ingresses reconciles Ingresses.
type ingresses struct {
	// client reads from the cache.
	client   client.Client
	gateways []client.ObjectKey
	events   events.EventRecorder
	// told has the problems that were told last, by the keys of those Ingresses only that have some.
	told sync.Map
}

// problem is why a host of an Ingress does not resolve.
type problem struct {
	reason, message string
}

// Reconcile implements reconcile.Reconciler. Reading costs no request, and nothing is written that is as it should be.
func (r *ingresses) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ingress, namespace := &networkingv1.Ingress{}, &corev1.Namespace{}
	if err := r.client.Get(ctx, request.NamespacedName, ingress); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err := r.client.Get(ctx, client.ObjectKey{Name: request.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading Namespace %s: %w", request.Namespace, err)
	}
	var problems []problem
	var err error
	// The garbage collector takes away what an Ingress owns, and all that is in a namespace goes with it.
	if ingress.Name != "" && !isDeleted(ingress) && !isDeleted(namespace) {
		problems, err = r.reconcile(ctx, ingress, namespace)
	}
	r.report(request.NamespacedName, ingress, problems)
	if isConflict(err) {
		// Somebody else has just written, mostly the DNSRecord controller.
		return reconcile.Result{RequeueAfter: retryConflict}, nil
	}
	return reconcile.Result{}, err
}

// report tells of problems by Events on the Ingress, of each when it comes up and not whenever it is seen again.
func (r *ingresses) report(key client.ObjectKey, ingress *networkingv1.Ingress, problems []problem) {
	value, _ := r.told.Load(key)
	told, _ := value.([]problem)
	if len(problems) == 0 {
		r.told.Delete(key)
		return
	}
	r.told.Store(key, problems)
	for _, problem := range problems {
		if !slices.Contains(told, problem) {
			r.events.Eventf(ingress, nil, corev1.EventTypeWarning, problem.reason, "CreateDNSRecord", "%s", problem.message)
		}
	}
}

// isConflict reports whether an error is a conflict, or several are nothing else.
func isConflict(err error) bool {
	return err != nil && utilerrors.FilterOut(err, apierrors.IsConflict) == nil
}

// records are the DNSRecords in the namespace of an Ingress. They are the cache's own, so they are never changed.
type records struct {
	// own are those that the Ingress controls, by name.
	own map[string]*extensionsv1alpha1.DNSRecord
	// others are the rest, by name.
	others map[string]*extensionsv1alpha1.DNSRecord
	// secret is what the first of type local names that is no Ingress's.
	secret *corev1.SecretReference
	// leaving tells that the shoot's control plane moves to another seed, as gardenlet migrates its own DNSRecords.
	leaving bool
}

func (r *ingresses) recordsIn(ctx context.Context, ingress *networkingv1.Ingress) (*records, error) {
	list := &extensionsv1alpha1.DNSRecordList{}
	if err := r.client.List(ctx, list, client.InNamespace(ingress.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing DNSRecords in %s: %w", ingress.Namespace, err)
	}

	out := &records{own: map[string]*extensionsv1alpha1.DNSRecord{}, others: map[string]*extensionsv1alpha1.DNSRecord{}}
	var first *extensionsv1alpha1.DNSRecord
	for i := range list.Items {
		record := &list.Items[i]
		if metav1.IsControlledBy(record, ingress) {
			out.own[record.Name] = record
			continue
		}
		out.others[record.Name] = record
		if record.Spec.Type != dns.Type || ingressOf(record) != "" {
			continue
		}
		out.leaving = out.leaving || !isComing(record) && reconciler.IsLeaving(record)
		if record.Spec.SecretRef.Name != "" && !isDeleted(record) && (first == nil || comesBefore(record, first)) {
			first, out.secret = record, &record.Spec.SecretRef
		}
	}
	return out, nil
}

// comesBefore reports whether the Secret of a DNSRecord is to be used rather than that of another one. That of the internal domain is the
// operator's, and stays until the others are gone; that of the external one may be the shoot owner's.
func comesBefore(a, b *extensionsv1alpha1.DNSRecord) bool {
	rank := func(record *extensionsv1alpha1.DNSRecord) int {
		if record.Labels[v1beta1constants.LabelRole] == v1beta1constants.LabelDNSRecordInternal {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name)) < 0
}

// reconcile makes the DNSRecords of an Ingress in the namespace of a shoot what they should be. What is in the way is told
// by problems; what they come to without them makes an event, so nothing is tried again.
func (r *ingresses) reconcile(ctx context.Context, ingress *networkingv1.Ingress, namespace *corev1.Namespace) ([]problem, error) {
	records, err := r.recordsIn(ctx, ingress)
	if err != nil {
		return nil, err
	}
	var hosts []string // None outside of the namespaces of shoots.
	if isShootNamespace(namespace) {
		if records.leaving {
			return nil, r.migrateAll(ctx, records.own)
		}
		hosts = hostsOf(ingress)
	}
	answers, err := r.answersFor(ctx, ingress)
	if err != nil {
		return nil, err
	}
	if len(answers) == 0 {
		// A gateway that is being replaced will be back. Names that lead to where it was are as good as none, but stay put.
		err := r.removeAll(ctx, records.own, func(record *extensionsv1alpha1.DNSRecord) bool { return !slices.Contains(hosts, record.Spec.Name) })
		if len(hosts) == 0 {
			return nil, err
		}
		return []problem{{reasonNoAddress, r.noAddress()}}, err
	}

	var (
		wanted   []*extensionsv1alpha1.DNSRecord
		problems []problem
	)
	for _, host := range hosts {
		for _, answer := range answers {
			want := records.newRecord(ingress, host, answer)
			if errs := validation.ValidateDNSRecord(want); len(errs) > 0 {
				problems = append(problems, problem{reasonInvalid, fmt.Sprintf("Host %s gets no %s record: %s", host, answer.recordType, errs.ToAggregate())})
				continue
			}
			wanted = append(wanted, want)
		}
	}
	errs := []error{r.removeAll(ctx, records.own, func(record *extensionsv1alpha1.DNSRecord) bool {
		return !slices.ContainsFunc(wanted, func(want *extensionsv1alpha1.DNSRecord) bool { return want.Name == record.Name })
	})}
	for _, want := range wanted {
		other, taken := records.others[want.Name]
		switch {
		case !taken:
			errs = append(errs, r.apply(ctx, ingress, records, want))
		case ingressOf(other) == ingress.Name:
			// The garbage collector has yet to take away what an Ingress of the same name has left.
		default:
			problems = append(problems, problem{reasonTaken, fmt.Sprintf(
				"Host %s gets no %s record: DNSRecord %s is in its place and not this Ingress's, delete it", want.Spec.Name, want.Spec.RecordType, want.Name)})
		}
	}
	return problems, utilerrors.NewAggregate(errs)
}

func (r *ingresses) noAddress() string {
	names := make([]string, 0, len(r.gateways))
	for _, gateway := range r.gateways {
		names = append(names, gateway.String())
	}
	return "Hosts get no DNSRecords yet: the status of the Ingress has no address, nor has any of the Services " + strings.Join(names, ", ")
}

// apply creates a DNSRecord, or makes the one there is what is wanted.
func (r *ingresses) apply(ctx context.Context, ingress *networkingv1.Ingress, records *records, want *extensionsv1alpha1.DNSRecord) error {
	have, exists := records.own[want.Name]
	switch {
	case !exists && records.isBarred(want):
		return nil
	case !exists:
		have = &extensionsv1alpha1.DNSRecord{ObjectMeta: want.ObjectMeta}
	case isDeleted(have) || isMigrating(have):
		// Once it is gone, or back, it makes an event.
		return nil
	case isReplaced(have, want):
		return r.remove(ctx, have)
	case have.Spec.Class == nil:
		// No class means that of shoots.
		want.Spec.Class = nil
	}

	// What others put into its metadata stays. Only a change of the spec asks the DNSRecord controller for a reconcile.
	record := have.DeepCopy()
	if !apiequality.Semantic.DeepEqual(have.Spec, want.Spec) {
		record.Spec = want.Spec
		metav1.SetMetaDataAnnotation(&record.ObjectMeta, v1beta1constants.GardenerOperation, v1beta1constants.GardenerOperationReconcile)
	}
	// Gardener lets nobody delete a DNSRecord without it, neither the garbage collector nor who deletes the namespace.
	metav1.SetMetaDataAnnotation(&record.ObjectMeta, v1beta1constants.ConfirmationDeletion, "true")
	metav1.SetMetaDataLabel(&record.ObjectMeta, dns.LabelIngress, cut(ingress.Name, utilvalidation.LabelValueMaxLength))
	if err := controllerutil.SetControllerReference(ingress, record, r.client.Scheme()); err != nil {
		return fmt.Errorf("making DNSRecord %s: %w", client.ObjectKeyFromObject(record), err)
	}
	if exists {
		return r.patch(ctx, "Changing", have, record)
	}
	logf.FromContext(ctx).Info("Creating DNSRecord", "dnsRecord", record.Name, "host", record.Spec.Name, "values", record.Spec.Values)
	err := r.client.Create(ctx, record)
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// The cache is behind, but will make an event.
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating DNSRecord %s: %w", client.ObjectKeyFromObject(record), err)
	}
	return nil
}

// patch writes what has changed in a DNSRecord, only as it was read: somebody may have asked for its migration since.
func (r *ingresses) patch(ctx context.Context, doing string, have, record *extensionsv1alpha1.DNSRecord) error {
	if apiequality.Semantic.DeepEqual(have, record) {
		return nil
	}
	logf.FromContext(ctx).Info(doing+" DNSRecord", "dnsRecord", record.Name, "host", record.Spec.Name)
	err := r.client.Patch(ctx, record, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching DNSRecord %s: %w", client.ObjectKeyFromObject(have), err)
	}
	return nil
}

// migrateAll has the DNSRecords of an Ingress migrated along with those of gardenlet, which does not know of them. Otherwise
// their deletion, at the end of the migration, would take away what the other seed has written by then.
func (r *ingresses) migrateAll(ctx context.Context, own map[string]*extensionsv1alpha1.DNSRecord) error {
	var errs []error
	for _, have := range own {
		if !isDeleted(have) && !isMigrating(have) {
			record := have.DeepCopy()
			metav1.SetMetaDataAnnotation(&record.ObjectMeta, v1beta1constants.GardenerOperation, v1beta1constants.GardenerOperationMigrate)
			errs = append(errs, r.patch(ctx, "Migrating", have, record))
		}
	}
	return utilerrors.NewAggregate(errs)
}

func (r *ingresses) removeAll(ctx context.Context, own map[string]*extensionsv1alpha1.DNSRecord, obsolete func(*extensionsv1alpha1.DNSRecord) bool) error {
	var errs []error
	for _, record := range own {
		if obsolete(record) {
			errs = append(errs, r.remove(ctx, record))
		}
	}
	return utilerrors.NewAggregate(errs)
}

func (r *ingresses) remove(ctx context.Context, record *extensionsv1alpha1.DNSRecord) error {
	if isDeleted(record) || isMigrating(record) {
		return nil
	}
	logf.FromContext(ctx).Info("Deleting DNSRecord", "dnsRecord", record.Name, "host", record.Spec.Name)
	if !isConfirmed(record) {
		if err := gardenerutils.ConfirmDeletion(ctx, r.client, record.DeepCopy()); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("confirming the deletion of DNSRecord %s: %w", client.ObjectKeyFromObject(record), err)
		}
	}
	err := r.client.Delete(ctx, record.DeepCopy(), client.Preconditions{UID: &record.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DNSRecord %s: %w", client.ObjectKeyFromObject(record), err)
	}
	return nil
}

// answer is what the DNSRecords of one type have as values.
type answer struct {
	recordType extensionsv1alpha1.DNSRecordType
	values     []string
}

// answersFor returns what the hosts of an Ingress lead to: the addresses in its own status, or else those of the first
// gateway that has any; nothing if there is no address yet.
func (r *ingresses) answersFor(ctx context.Context, ingress *networkingv1.Ingress) ([]answer, error) {
	if own := answersOfIngress(ingress); len(own) > 0 {
		return own, nil
	}
	for _, key := range r.gateways {
		service := &corev1.Service{}
		if err := r.client.Get(ctx, key, service); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("reading Service %s: %w", key, err)
		}
		if found := answersOfService(service); len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

func answersOfIngress(ingress *networkingv1.Ingress) []answer {
	var points []corev1.LoadBalancerIngress
	for _, point := range ingress.Status.LoadBalancer.Ingress {
		points = append(points, corev1.LoadBalancerIngress{IP: point.IP, Hostname: point.Hostname})
	}
	return answers(points)
}

func answersOfService(service *corev1.Service) []answer {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.DeletionTimestamp != nil {
		return nil
	}
	return answers(service.Status.LoadBalancer.Ingress)
}

// answers sorts addresses by their family. A name can't have an address and be an alias (RFC 1034, section 3.6.2), nor be
// an alias of several names, so one host name counts if there are no addresses.
func answers(points []corev1.LoadBalancerIngress) []answer {
	values := map[extensionsv1alpha1.DNSRecordType][]string{}
	var names []string
	for _, point := range points {
		if address, err := netip.ParseAddr(point.IP); err == nil {
			value := address.Unmap().WithZone("").String()
			recordType := extensionsv1alpha1helper.GetDNSRecordType(value)
			values[recordType] = append(values[recordType], value)
		}
		if point.Hostname != "" {
			names = append(names, strings.ToLower(strings.TrimSuffix(point.Hostname, ".")))
		}
	}
	var out []answer
	for _, family := range []extensionsv1alpha1.DNSRecordType{extensionsv1alpha1.DNSRecordTypeA, extensionsv1alpha1.DNSRecordTypeAAAA} {
		if found := values[family]; len(found) > 0 {
			slices.Sort(found)
			out = append(out, answer{family, slices.Compact(found)})
		}
	}

	if len(out) > 0 || len(names) == 0 {
		return out
	}
	return []answer{{extensionsv1alpha1.DNSRecordTypeCNAME, []string{slices.Min(names)}}}
}

// hostsOf returns the hosts of an Ingress, each once, in order. A rule without a host is for any, which makes no name.
func hostsOf(ingress *networkingv1.Ingress) []string {
	var hosts []string
	for _, rule := range ingress.Spec.Rules {
		if rule.Host != "" {
			hosts = append(hosts, strings.ToLower(rule.Host))
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// newRecord returns the DNSRecord for one host of an Ingress and one type. It names the Secret of other DNSRecords. One that
// it already names stays if there is no better: at the end of a shoot, gardenlet deletes the records that tell of it first.
func (r *records) newRecord(ingress *networkingv1.Ingress, host string, answer answer) *extensionsv1alpha1.DNSRecord {
	name := recordName(ingress.Name, host, answer.recordType)
	secret := corev1.SecretReference{Namespace: ingress.Namespace, Name: noSecret}
	if r.secret != nil {
		secret = *r.secret
	} else if have, ok := r.own[name]; ok && have.Spec.SecretRef.Name != "" {
		secret = have.Spec.SecretRef
	}
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: ingress.Namespace, Name: name},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: dns.Type, Class: new(extensionsv1alpha1.ExtensionClassShoot)},
			SecretRef:   secret,
			Name:        host,
			RecordType:  answer.recordType,
			Values:      answer.values,
		},
	}
}

// isBarred reports whether a new DNSRecord must wait: an alias can't have a record beside it. Once the one before is gone,
// this makes an event.
func (r *records) isBarred(want *extensionsv1alpha1.DNSRecord) bool {
	isAlias := func(record *extensionsv1alpha1.DNSRecord) bool {
		return record.Spec.RecordType == extensionsv1alpha1.DNSRecordTypeCNAME
	}
	for _, other := range r.own {
		if other.Spec.Name == want.Spec.Name && isAlias(other) != isAlias(want) {
			return true
		}
	}
	return false
}

// recordName is the same whenever it is asked for, and short enough for a label. The name of the Ingress is in the hash
// because what is left of a long one need not be unique.
func recordName(ingress, host string, recordType extensionsv1alpha1.DNSRecordType) string {
	hash := utils.ComputeSHA256Hex([]byte(ingress + "/" + host + "/" + string(recordType)))
	return cut(ingress, utilvalidation.DNS1123LabelMaxLength-hashLength-1) + "-" + hash[:hashLength]
}

// cut shortens the name of an object so that it still is one.
func cut(name string, length int) string {
	return strings.TrimRight(name[:min(len(name), length)], "-.")
}

// isReplaced reports whether a DNSRecord can't become what is wanted, as Gardener calls the fields immutable.
func isReplaced(have, want *extensionsv1alpha1.DNSRecord) bool {
	class := extensionsv1alpha1helper.GetExtensionClassOrDefault(have.Spec.Class)
	return class != *want.Spec.Class || have.Spec.Type != want.Spec.Type || have.Spec.Name != want.Spec.Name || have.Spec.RecordType != want.Spec.RecordType
}

// isMigrating reports whether a DNSRecord leaves this seed, has left it or is just coming, all of which others do.
func isMigrating(record *extensionsv1alpha1.DNSRecord) bool {
	return isComing(record) || reconciler.IsLeaving(record)
}

// isComing reports whether a DNSRecord is to be restored in this seed.
func isComing(record *extensionsv1alpha1.DNSRecord) bool {
	operation := record.Annotations[v1beta1constants.GardenerOperation]
	return operation == v1beta1constants.GardenerOperationRestore || operation == v1beta1constants.GardenerOperationWaitForState
}

// ingressOf returns the name of the Ingress that controls an object, or an empty text.
func ingressOf(obj client.Object) string {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil || owner.Kind != "Ingress" || owner.APIVersion != networkingv1.SchemeGroupVersion.String() {
		return ""
	}
	return owner.Name
}

func isShootNamespace(namespace client.Object) bool {
	return namespace.GetLabels()[v1beta1constants.GardenRole] == v1beta1constants.GardenRoleShoot
}

func isConfirmed(record *extensionsv1alpha1.DNSRecord) bool {
	return gardenerutils.CheckIfDeletionIsConfirmed(record) == nil
}

func isDeleted(obj client.Object) bool { return obj.GetDeletionTimestamp() != nil }
