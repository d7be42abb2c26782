// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsconfig

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

const (
	// maxSearches is how many search domains Kubernetes allows a pod.
	maxSearches = 32
	// ndots is what kubelet gives a pod that asks the cluster's DNS server.
	ndots = "5"

	// labelPrefix begins the labels by which gardener-resource-manager's NetworkPolicies let pods of other namespaces reach
	// CoreDNS: the alias of its namespace and the name of its Service, both as charts/components/coredns has them. A
	// protocol and the port of CoreDNS' pods follow.
	labelPrefix = resourcesv1alpha1.NetworkPolicyLabelKeyPrefix + "to-local-dns-coredns-"
)

// networkPolicyLabels are the labels that a pod needs to reach CoreDNS.
func networkPolicyLabels() []string {
	return []string{labelPrefix + "udp-9053", labelPrefix + "tcp-9053"}
}

// target is a pod, or the template of one.
type target struct {
	meta *metav1.ObjectMeta
	spec *corev1.PodSpec
	// namespace is where the pod runs; empty for a machine. A machine is not to have the search domains of a pod of the
	// seed: its own pods would inherit them.
	namespace string
}

// ask makes the pod ask the given servers, and keeps all else about its DNS as it was: the search domains and options that
// kubelet gives a pod of policy ClusterFirst, which it does not do for policy None, and what is in dnsConfig. Doing it
// twice is the same as doing it once.
func (t *target) ask(servers []string, clusterDomain string) {
	config := t.spec.DNSConfig.DeepCopy()
	if config == nil {
		config = &corev1.PodDNSConfig{}
	}
	if t.namespace != "" && t.asksCluster() {
		searches := append([]string{t.namespace + ".svc." + clusterDomain, "svc." + clusterDomain, clusterDomain}, config.Searches...)
		config.Searches = unique(searches, maxSearches)
		if !slices.ContainsFunc(config.Options, func(o corev1.PodDNSConfigOption) bool { return o.Name == "ndots" }) {
			config.Options = append(config.Options, corev1.PodDNSConfigOption{Name: "ndots", Value: new(ndots)})
		}
	}
	config.Nameservers = servers

	t.spec.DNSPolicy = corev1.DNSNone
	t.spec.DNSConfig = config
	for _, label := range networkPolicyLabels() {
		metav1.SetMetaDataLabel(t.meta, label, v1beta1constants.LabelNetworkPolicyAllowed)
	}
}

// asksCluster reports whether kubelet would make the pod ask the cluster's DNS server.
func (t *target) asksCluster() bool {
	switch t.spec.DNSPolicy {
	case corev1.DNSClusterFirstWithHostNet:
		return true
	case corev1.DNSClusterFirst, "":
		return !t.spec.HostNetwork
	default:
		return false
	}
}

// unique returns the values without doubles, up to the given number.
func unique(values []string, most int) []string {
	var result []string
	for _, value := range values {
		if len(result) == most {
			break
		}
		if !slices.Contains(result, value) {
			result = append(result, value)
		}
	}
	return result
}
