// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package garden_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// confirmDeletion is the annotation without which gardener-resource-manager protects extension objects.
const confirmDeletion = "confirmation.gardener.cloud/deletion"

// succeed matches an extension object that Gardener would take for ready (extensions' contract: generation observed, no
// operation asked for any more, no error, last operation Succeeded).
func succeed() gomegatypes.GomegaMatcher {
	return WithTransform(func(obj extensionsv1alpha1.Object) (string, error) {
		status := obj.GetExtensionStatus()
		switch {
		case status.GetLastError() != nil:
			return "error: " + status.GetLastError().Description, nil
		case status.GetLastOperation() == nil:
			return "no last operation", nil
		case status.GetObservedGeneration() != obj.GetGeneration():
			return "generation not observed", nil
		case obj.GetAnnotations()["gardener.cloud/operation"] != "":
			return "operation still asked for", nil
		}
		return string(status.GetLastOperation().State), nil
	}, Equal(string(gardencorev1beta1.LastOperationStateSucceeded)))
}

// haveConfigurationProblem matches an object whose last error is the user's to mend.
func haveConfigurationProblem(message string) gomegatypes.GomegaMatcher {
	return WithTransform(func(obj extensionsv1alpha1.Object) (string, error) {
		lastError := obj.GetExtensionStatus().GetLastError()
		if lastError == nil {
			return "no error", nil
		}
		return fmt.Sprintf("%v %s", lastError.Codes, lastError.Description), nil
	}, And(ContainSubstring(string(gardencorev1beta1.ErrorConfigurationProblem)), ContainSubstring(message)))
}

// get reads an object for Eventually.
func get[T client.Object](ctx context.Context, obj T) func() (T, error) {
	return func() (T, error) {
		return obj, c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}
}

// remove deletes an object of the extensions API. A webhook of gardener-resource-manager wants that confirmed.
func remove(ctx context.Context, obj client.Object) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+confirmDeletion+`":"true"}}}`))
	if err := c.Patch(ctx, obj.DeepCopyObject().(client.Object), patch); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, obj))
}

func eventuallyGone(ctx context.Context, obj client.Object) {
	Eventually(func() error {
		return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}).Should(MatchError(ContainSubstring("not found")), "%T %s goes", obj, obj.GetName())
}

func newRecord(name, dnsName string, recordType extensionsv1alpha1.DNSRecordType, values ...string) *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: gardenNamespace, Labels: map[string]string{"test": "e2e"}, Annotations: map[string]string{confirmDeletion: "true"}},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local", Class: new(extensionsv1alpha1.ExtensionClassGarden)},
			SecretRef:   corev1.SecretReference{Name: "garden-dns-local", Namespace: gardenNamespace},
			Name:        dnsName,
			RecordType:  recordType,
			Values:      values,
		},
	}
}

// coreDNSAddress is the address of the Service that both instances' CoreDNS has; the host reaches it as pods do.
func coreDNSAddress(ctx context.Context) string {
	service := &corev1.Service{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: coreDNSNamespace, Name: "coredns"}, service)).To(Succeed())
	return net.JoinHostPort(service.Spec.ClusterIP, "53")
}

// ask sends one query and returns the answers' data, sorted as they come, or the rcode if it is an error.
func ask(ctx context.Context, network, server, name string, qtype uint16) ([]string, error) {
	query := new(dns.Msg)
	query.SetQuestion(dns.Fqdn(name), qtype)
	reply, _, err := (&dns.Client{Net: network, Timeout: 2 * time.Second}).ExchangeContext(ctx, query, server)
	if err != nil {
		return nil, err
	}
	if reply.Rcode != dns.RcodeSuccess {
		return []string{dns.RcodeToString[reply.Rcode]}, nil
	}
	var data []string
	for _, rr := range reply.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			data = append(data, rr.A.String())
		case *dns.AAAA:
			data = append(data, rr.AAAA.String())
		case *dns.CNAME:
			data = append(data, rr.Target)
		case *dns.TXT:
			data = append(data, rr.Txt...)
		}
	}
	return data, nil
}
