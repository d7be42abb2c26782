// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/pkg/api/extensions/validation"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// retryConflict is when something is tried again that somebody else has changed meanwhile: the cache knows by then.
const retryConflict = 100 * time.Millisecond

type reconciler struct {
	// reader reads from the cache.
	reader   client.Reader
	writer   client.Writer
	scheme   *runtime.Scheme
	gateways []client.ObjectKey
	reporter *reporter
}

// Reconcile implements reconcile.Reconciler. Reading costs no request, and nothing is written that is as it should be.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ingress, namespace := &networkingv1.Ingress{}, &corev1.Namespace{}
	if err := r.reader.Get(ctx, request.NamespacedName, ingress); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err := r.reader.Get(ctx, client.ObjectKey{Name: request.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading Namespace %s: %w", request.Namespace, err)
	}
	var problems []problem
	var err error
	// The garbage collector takes away what an Ingress owns, and all that is in a namespace goes with it.
	if ingress.Name != "" && !isDeleted(ingress) && !isDeleted(namespace) {
		problems, err = r.reconcile(ctx, ingress, namespace)
	}
	r.reporter.report(request.NamespacedName, ingress, problems)
	if isConflict(err) {
		// Somebody else has just written, mostly the DNSRecord controller.
		return reconcile.Result{RequeueAfter: retryConflict}, nil
	}
	return reconcile.Result{}, err
}

// isConflict reports whether an error is a conflict, or several are nothing else.
func isConflict(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !isConflict(err) })
	}
	return apierrors.IsConflict(err)
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

func (r *reconciler) recordsIn(ctx context.Context, ingress *networkingv1.Ingress) (*records, error) {
	list := &extensionsv1alpha1.DNSRecordList{}
	if err := r.reader.List(ctx, list, client.InNamespace(ingress.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing DNSRecords in %s: %w", ingress.Namespace, err)
	}

	out := &records{own: map[string]*extensionsv1alpha1.DNSRecord{}, others: map[string]*extensionsv1alpha1.DNSRecord{}}
	first := ""
	for i := range list.Items {
		record := &list.Items[i]
		if metav1.IsControlledBy(record, ingress) {
			out.own[record.Name] = record
			continue
		}
		out.others[record.Name] = record
		out.leaving = out.leaving || record.Spec.Type == dns.Type && ingressOf(record) == "" && isLeaving(record)
		if record.Spec.Type == dns.Type && record.Spec.SecretRef.Name != "" && !isDeleted(record) && ingressOf(record) == "" &&
			(first == "" || record.Name < first) {
			first, out.secret = record.Name, &record.Spec.SecretRef
		}
	}
	return out, nil
}

// reconcile makes the DNSRecords of an Ingress in the namespace of a shoot what they should be. What is in the way is told
// by problems; what they come to without them makes an event, so nothing is tried again.
func (r *reconciler) reconcile(ctx context.Context, ingress *networkingv1.Ingress, namespace *corev1.Namespace) ([]problem, error) {
	records, err := r.recordsIn(ctx, ingress)
	switch {
	case err != nil:
		return nil, err
	case !isShootNamespace(namespace):
		return nil, r.removeAll(ctx, records.own, func(*extensionsv1alpha1.DNSRecord) bool { return true })
	case records.leaving:
		return nil, r.migrateAll(ctx, records.own)
	}
	hosts := hostsOf(ingress)
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

	wanted, problems := wantedRecords(ingress, hosts, answers, records)
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
	return problems, errors.Join(errs...)
}

// wantedRecords returns the DNSRecords that an Ingress should have, and which can't be.
func wantedRecords(ingress *networkingv1.Ingress, hosts []string, answers []answer, records *records) ([]*extensionsv1alpha1.DNSRecord, []problem) {
	var (
		wanted   []*extensionsv1alpha1.DNSRecord
		problems []problem
	)
	for _, host := range hosts {
		for _, answer := range answers {
			want := newRecord(ingress, host, answer, records.secretFor(recordName(ingress.Name, host, answer.recordType), ingress.Namespace))
			if errs := validation.ValidateDNSRecord(want); len(errs) > 0 {
				problems = append(problems, problem{reasonInvalid, fmt.Sprintf("Host %s gets no %s record: %s", host, answer.recordType, errs.ToAggregate())})
				continue
			}
			wanted = append(wanted, want)
		}
	}
	return wanted, problems
}

func (r *reconciler) noAddress() string {
	names := make([]string, 0, len(r.gateways))
	for _, gateway := range r.gateways {
		names = append(names, gateway.String())
	}
	return "Hosts get no DNSRecords yet: the status of the Ingress has no address, nor has any of the Services " + strings.Join(names, ", ")
}

// secretFor returns the Secret that a record should name. One that it already names stays if there is no better: at the
// end of a shoot, gardenlet deletes the records that tell of it first.
func (r *records) secretFor(name, namespace string) corev1.SecretReference {
	switch have, ok := r.own[name]; {
	case r.secret != nil:
		return *r.secret
	case ok && have.Spec.SecretRef.Name != "":
		return have.Spec.SecretRef
	default:
		return corev1.SecretReference{Namespace: namespace, Name: noSecret}
	}
}

func (r *reconciler) apply(ctx context.Context, ingress *networkingv1.Ingress, records *records, want *extensionsv1alpha1.DNSRecord) error {
	have, ok := records.own[want.Name]
	switch {
	case !ok:
		return r.create(ctx, ingress, records, want)
	case isDeleted(have) || isMigrating(have):
		// Once it is gone, or back, it makes an event.
		return nil
	case isReplaced(have, want):
		return r.remove(ctx, have)
	case have.Spec.Class == nil:
		// No class means that of shoots.
		want.Spec.Class = nil
	}

	record, err := adjusted(have, want, ingress, r.scheme)
	if err != nil {
		return fmt.Errorf("adjusting DNSRecord %s: %w", client.ObjectKeyFromObject(have), err)
	}
	if apiequality.Semantic.DeepEqual(have, record) {
		return nil
	}
	logf.FromContext(ctx).Info("Changing DNSRecord", "dnsRecord", record.Name, "host", record.Spec.Name)
	// Only as it was read: somebody may have asked for its migration since.
	if err := r.writer.Patch(ctx, record, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing DNSRecord %s: %w", client.ObjectKeyFromObject(have), err)
	}
	return nil
}

func (r *reconciler) create(ctx context.Context, ingress *networkingv1.Ingress, records *records, want *extensionsv1alpha1.DNSRecord) error {
	for _, other := range records.own {
		alias := other.Spec.RecordType == extensionsv1alpha1.DNSRecordTypeCNAME
		if other.Spec.Name == want.Spec.Name && alias != (want.Spec.RecordType == extensionsv1alpha1.DNSRecordTypeCNAME) {
			// An alias can't have a record beside it. Once the one before is gone, this makes an event.
			return nil
		}
	}

	record, err := adjusted(&extensionsv1alpha1.DNSRecord{ObjectMeta: want.ObjectMeta}, want, ingress, r.scheme)
	if err != nil {
		return fmt.Errorf("making DNSRecord %s: %w", client.ObjectKeyFromObject(want), err)
	}
	logf.FromContext(ctx).Info("Creating DNSRecord", "dnsRecord", record.Name, "host", record.Spec.Name, "values", record.Spec.Values)
	err = r.writer.Create(ctx, record)
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// The cache is behind, but will make an event.
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating DNSRecord %s: %w", client.ObjectKeyFromObject(want), err)
	}
	return nil
}

func (r *reconciler) removeAll(ctx context.Context, own map[string]*extensionsv1alpha1.DNSRecord, obsolete func(*extensionsv1alpha1.DNSRecord) bool) error {
	var errs []error
	for _, record := range own {
		if obsolete(record) {
			errs = append(errs, r.remove(ctx, record))
		}
	}
	return errors.Join(errs...)
}

// migrateAll has the DNSRecords of an Ingress migrated along with those of gardenlet, which does not know of them. Otherwise
// their deletion, at the end of the migration, would take away what the other seed has written by then.
func (r *reconciler) migrateAll(ctx context.Context, own map[string]*extensionsv1alpha1.DNSRecord) error {
	var errs []error
	for _, have := range own {
		if isDeleted(have) || isMigrating(have) {
			continue
		}
		record := have.DeepCopy()
		metav1.SetMetaDataAnnotation(&record.ObjectMeta, v1beta1constants.GardenerOperation, v1beta1constants.GardenerOperationMigrate)
		logf.FromContext(ctx).Info("Migrating DNSRecord", "dnsRecord", record.Name, "host", record.Spec.Name)
		if err := r.writer.Patch(ctx, record, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("migrating DNSRecord %s: %w", client.ObjectKeyFromObject(have), err))
		}
	}
	return errors.Join(errs...)
}

func (r *reconciler) remove(ctx context.Context, record *extensionsv1alpha1.DNSRecord) error {
	if isDeleted(record) || isMigrating(record) {
		return nil
	}
	logf.FromContext(ctx).Info("Deleting DNSRecord", "dnsRecord", record.Name, "host", record.Spec.Name)
	if !isConfirmed(record) {
		if err := gardenerutils.ConfirmDeletion(ctx, r.writer, record.DeepCopy()); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("confirming the deletion of DNSRecord %s: %w", client.ObjectKeyFromObject(record), err)
		}
	}
	err := r.writer.Delete(ctx, record.DeepCopy(), client.Preconditions{UID: &record.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DNSRecord %s: %w", client.ObjectKeyFromObject(record), err)
	}
	return nil
}
