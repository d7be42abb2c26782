// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	// noSecret is the Secret that a DNSRecord names where no other DNSRecord in the namespace tells of one. The API wants
	// a name. CoreDNS needs no credentials and never reads it; a DNS server that needs some will say that it is missing.
	noSecret = "no-credentials"
	// hashLength is how many characters of a hash make names distinct: 48 bits.
	hashLength = 12
)

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

// newRecord returns the DNSRecord for one host of an Ingress and one type.
func newRecord(ingress *networkingv1.Ingress, host string, answer answer, secret corev1.SecretReference) *extensionsv1alpha1.DNSRecord {
	class := extensionsv1alpha1.ExtensionClassShoot
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: ingress.Namespace, Name: recordName(ingress.Name, host, answer.recordType)},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: dns.Type, Class: &class},
			SecretRef:   secret,
			Name:        host,
			RecordType:  answer.recordType,
			Values:      answer.values,
		},
	}
}

// recordName is the same whenever it is asked for, and short enough for a label. The name of the Ingress is in the hash
// because what is left of a long one need not be unique.
func recordName(ingress, host string, recordType extensionsv1alpha1.DNSRecordType) string {
	sum := sha256.Sum256([]byte(ingress + "/" + host + "/" + string(recordType)))
	return cut(ingress, validation.DNS1123LabelMaxLength-hashLength-1) + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// cut shortens the name of an object so that it still is one.
func cut(name string, length int) string {
	return strings.TrimRight(name[:min(len(name), length)], "-.")
}

// adjusted returns a DNSRecord as it should be. What others put into its metadata stays. Only a change of the spec asks
// the DNSRecord controller for a reconcile.
func adjusted(have, want *extensionsv1alpha1.DNSRecord, ingress *networkingv1.Ingress, scheme *runtime.Scheme) (*extensionsv1alpha1.DNSRecord, error) {
	record := have.DeepCopy()
	if !apiequality.Semantic.DeepEqual(have.Spec, want.Spec) {
		record.Spec = want.Spec
		metav1.SetMetaDataAnnotation(&record.ObjectMeta, v1beta1constants.GardenerOperation, v1beta1constants.GardenerOperationReconcile)
	}
	// Gardener lets nobody delete a DNSRecord without it, neither the garbage collector nor who deletes the namespace.
	metav1.SetMetaDataAnnotation(&record.ObjectMeta, v1beta1constants.ConfirmationDeletion, "true")
	metav1.SetMetaDataLabel(&record.ObjectMeta, dns.LabelIngress, cut(ingress.Name, validation.LabelValueMaxLength))
	return record, controllerutil.SetControllerReference(ingress, record, scheme)
}

// isReplaced reports whether a DNSRecord can't become what is wanted, as Gardener calls the fields immutable.
func isReplaced(have, want *extensionsv1alpha1.DNSRecord) bool {
	class := extensionsv1alpha1.ExtensionClassShoot
	if have.Spec.Class != nil {
		class = *have.Spec.Class
	}
	return class != *want.Spec.Class || have.Spec.Type != want.Spec.Type || have.Spec.Name != want.Spec.Name || have.Spec.RecordType != want.Spec.RecordType
}

// isMigrating reports whether a DNSRecord leaves this seed, has left it or is just coming, all of which others do.
func isMigrating(record *extensionsv1alpha1.DNSRecord) bool {
	return isComing(record) || isLeaving(record)
}

// isComing reports whether a DNSRecord is about to be restored in this seed.
func isComing(record *extensionsv1alpha1.DNSRecord) bool {
	operation := record.Annotations[v1beta1constants.GardenerOperation]
	return operation == v1beta1constants.GardenerOperationRestore || operation == v1beta1constants.GardenerOperationWaitForState
}

// isLeaving reports whether a DNSRecord leaves this seed or has left it.
func isLeaving(record *extensionsv1alpha1.DNSRecord) bool {
	if isComing(record) {
		return false
	}
	last := record.Status.LastOperation
	return record.Annotations[v1beta1constants.GardenerOperation] == v1beta1constants.GardenerOperationMigrate ||
		last != nil && last.Type == gardencorev1beta1.LastOperationTypeMigrate
}
