// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corednsconstants "github.com/gardener/gardener/pkg/component/networking/coredns/constants"
	nodelocaldnsconstants "github.com/gardener/gardener/pkg/component/networking/nodelocaldns/constants"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const (
	// LabelBastion names the Bastion that a Pod, Service, Secret or NetworkPolicy belongs to.
	LabelBastion = "bastion"
	// AnnotationUserData is the hash of the user data with which a Pod was made.
	AnnotationUserData = "local.provider.extensions.gardener.cloud/user-data"

	sshPort      = 22
	userDataKey  = "userdata"
	userDataMode = 0o500
	gracePeriod  = 5
)

func (h *host) labels() map[string]string {
	return map[string]string{machine.LabelApp: machine.AppBastion, LabelBastion: h.bastion}
}

func (h *host) meta(key client.ObjectKey) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: h.labels()}
}

func (h *host) userDataHash() string {
	hash := sha256.Sum256(h.userData)
	return hex.EncodeToString(hash[:])[:16]
}

func (h *host) secret(key client.ObjectKey) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: h.meta(key), Data: map[string][]byte{userDataKey: h.userData}}
}

// service gives the pod an address of the cluster's load balancers. Traffic stays on the node that receives it, so that the
// pod sees the address of the client, which the NetworkPolicy checks.
func (h *host) service(key client.ObjectKey, withoutNodePorts bool) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: h.meta(key),
		Spec: corev1.ServiceSpec{
			Type:                          corev1.ServiceTypeLoadBalancer,
			Selector:                      h.labels(),
			Ports:                         []corev1.ServicePort{{Name: "ssh", Protocol: corev1.ProtocolTCP, Port: sshPort, TargetPort: intstr.FromInt32(sshPort)}},
			ExternalTrafficPolicy:         corev1.ServiceExternalTrafficPolicyLocal,
			IPFamilyPolicy:                new(corev1.IPFamilyPolicyPreferDualStack),
			LoadBalancerSourceRanges:      sourceRanges(h.ingress),
			AllocateLoadBalancerNodePorts: new(!withoutNodePorts),
		},
	}
}

// networkPolicy lets people in from the ranges only, and out to machines and the cluster's DNS only. A rule without peers
// would let in everybody, so there is none where there are no ranges.
func (h *host) networkPolicy(key client.ObjectKey) *networkingv1.NetworkPolicy {
	ssh := []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, sshPort)}
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: h.meta(key),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: h.labels()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{
				{Ports: ssh, To: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: machine.Selector()}}}},
				toDNS(),
			},
		},
	}
	if len(h.ingress) == 0 {
		return policy
	}
	rule := networkingv1.NetworkPolicyIngressRule{Ports: ssh}
	for _, block := range h.ingress {
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: block.DeepCopy()})
	}
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{rule}
	return policy
}

// toDNS are the cluster's DNS servers: their pods, which listen on port 8053 in clusters that are shoots, and the cache on
// the node.
func toDNS() networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{
		Ports: []networkingv1.NetworkPolicyPort{
			port(corev1.ProtocolUDP, 53), port(corev1.ProtocolTCP, 53), port(corev1.ProtocolUDP, 8053), port(corev1.ProtocolTCP, 8053),
		},
		To: []networkingv1.NetworkPolicyPeer{
			{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}},
				PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: corednsconstants.LabelKey, Operator: metav1.LabelSelectorOpIn,
					Values: []string{corednsconstants.LabelValue, nodelocaldnsconstants.LabelValue},
				}}},
			},
			{IPBlock: &networkingv1.IPBlock{CIDR: nodelocaldnsconstants.IPVSAddress + "/32"}},
			{IPBlock: &networkingv1.IPBlock{CIDR: nodelocaldnsconstants.IPVSIPv6Address + "/128"}},
		},
	}
}

func port(protocol corev1.Protocol, number int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(number))}
}

// pod is made as that of a machine, as its image relies on it: systemd is its first process, which takes privileges. It
// asks the cluster's DNS server, which knows the names of the machines.
func (h *host) pod(key client.ObjectKey) *corev1.Pod {
	privileged := true
	meta := h.meta(key)
	meta.Annotations = map[string]string{AnnotationUserData: h.userDataHash()}
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64(gracePeriod)),
			DNSPolicy:                     corev1.DNSClusterFirst,
			Containers: []corev1.Container{{
				Name:            machine.ContainerName,
				Image:           h.image.reference,
				ImagePullPolicy: corev1.PullIfNotPresent,
				TTY:             true,
				SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
				Env: []corev1.EnvVar{
					{Name: "NODE_NAME", Value: key.Name},
					{Name: "MACHINE_IMAGE_VERSION", Value: h.image.version},
				},
				Ports: []corev1.ContainerPort{{Name: "ssh", ContainerPort: sshPort, Protocol: corev1.ProtocolTCP}},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(sshPort)}},
					PeriodSeconds: 2,
				},
				Resources:    podResources(),
				VolumeMounts: volumeMounts(),
			}},
			Volumes: volumes(key.Name),
		},
	}
}

// podResources are enough for systemd and some sessions, whatever the machine type.
func podResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("64Mi"),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("512Mi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("1Gi"),
		},
	}
}

func volumeMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: userDataKey, MountPath: "/etc/machine", ReadOnly: true},
		{Name: "containerd", MountPath: "/var/lib/containerd"},
		{Name: "kubelet", MountPath: "/var/lib/kubelet"},
		{Name: "run", MountPath: "/run"},
		{Name: "tmp", MountPath: "/tmp"},
		{Name: "modules", MountPath: "/lib/modules", ReadOnly: true},
	}
}

func volumes(secret string) []corev1.Volume {
	empty := func(name string, medium corev1.StorageMedium) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}
	}
	return []corev1.Volume{
		{Name: userDataKey, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(int32(userDataMode))}}},
		empty("containerd", corev1.StorageMediumDefault),
		empty("kubelet", corev1.StorageMediumDefault),
		empty("run", corev1.StorageMediumMemory),
		empty("tmp", corev1.StorageMediumMemory),
		{Name: "modules", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/lib/modules"}}},
	}
}
