// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const (
	// diskVolume is the name of the volume that is the machine's disk.
	diskVolume = "disk"
	// backupVolume is the name of the volume that has the seed's backup buckets.
	backupVolume = "backup-buckets"
)

func objectMeta(namespace, name, machineName string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: machine.Labels(machineName)}
}

func userDataName(machineName string) string { return machine.PodName(machineName) + "-userdata" }

func newUserData(namespace, machineName string, userData []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: objectMeta(namespace, userDataName(machineName), machineName),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{machine.UserDataFile: userData},
	}
}

// newService returns the headless Service by which a machine's name resolves to the addresses of its pod, in all families
// that the cluster has. The pod counts from its start on, as it never reports to be ready before it is a Node.
func newService(namespace, machineName string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: objectMeta(namespace, machine.PodName(machineName), machineName),
		Spec: corev1.ServiceSpec{
			Type:                     corev1.ServiceTypeClusterIP,
			ClusterIP:                corev1.ClusterIPNone,
			IPFamilyPolicy:           new(corev1.IPFamilyPolicyPreferDualStack),
			Selector:                 machine.Labels(machineName),
			PublishNotReadyAddresses: true,
			Ports:                    []corev1.ServicePort{{Name: "ssh", Port: machine.SSHPort, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// newPod returns the machine itself.
func newPod(namespace, machineName string, spec *localv1alpha1.MachineProviderSpec) *corev1.Pod {
	meta := objectMeta(namespace, machine.PodName(machineName), machineName)
	pod := machine.NewPod(meta, spec.Image, spec.ImageVersion, userDataName(machineName))
	pod.Spec.DNSPolicy = corev1.DNSDefault
	pod.Spec.Volumes = append(pod.Spec.Volumes, newDisk(spec))
	container := &pod.Spec.Containers[0]
	container.Resources = *spec.Resources.DeepCopy()
	container.VolumeMounts = append(container.VolumeMounts,
		corev1.VolumeMount{Name: diskVolume, MountPath: "/var/lib/provider-local/disk"},
		// An overlay can't lie on another, and the kubelet measures the disk here.
		corev1.VolumeMount{Name: diskVolume, MountPath: "/var/lib/containerd", SubPath: "containerd"},
		corev1.VolumeMount{Name: diskVolume, MountPath: "/var/lib/kubelet", SubPath: "kubelet"},
	)
	for annotation, pool := range map[string]string{
		"cni.projectcalico.org/ipv4pools": spec.IPPoolNameV4,
		"cni.projectcalico.org/ipv6pools": spec.IPPoolNameV6,
	} {
		if pool != "" {
			list, _ := json.Marshal([]string{pool}) // cannot fail
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotation, string(list))
		}
	}
	if path := spec.BackupHostPath; path != "" {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: backupVolume, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectory)},
		}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: backupVolume, MountPath: path})
	}
	return pod
}

// newDisk is the disk of the machine: its files outlive the container. It takes no more than the machine has.
func newDisk(spec *localv1alpha1.MachineProviderSpec) corev1.Volume {
	volume := &corev1.EmptyDirVolumeSource{}
	if limit, ok := spec.Resources.Limits[corev1.ResourceEphemeralStorage]; ok {
		volume.SizeLimit = new(limit.DeepCopy())
	}
	return corev1.Volume{Name: diskVolume, VolumeSource: corev1.VolumeSource{EmptyDir: volume}}
}

// isRunning reports whether a pod runs and says where.
func isRunning(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && len(pod.Status.PodIPs) > 0 && waiting(pod) == nil
}

// waiting returns why the container of a machine does not run, or nil.
func waiting(pod *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == machine.ContainerName {
			return status.State.Waiting
		}
	}
	return nil
}

// addresses are those of the machine's Node.
func addresses(pod *corev1.Pod) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, ip := range pod.Status.PodIPs {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.IP})
	}
	return out
}

// unschedulable returns what the scheduler says about a pod for which it has found no node, or nothing. It has found one if
// it is making room there by preemption.
func unschedulable(pod *corev1.Pod) string {
	if pod.Status.NominatedNodeName != "" {
		return ""
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return condition.Message
		}
	}
	return ""
}

// lacksResources tells by the scheduler's message whether a node would do if it had more room.
func lacksResources(message string) bool {
	return strings.Contains(message, "Insufficient ") || strings.Contains(message, "Too many pods")
}

// progress tells in a few words why a pod does not run yet.
func progress(pod *corev1.Pod) string {
	if message := unschedulable(pod); message != "" {
		return "it is unschedulable: " + message
	}
	if state := waiting(pod); state != nil {
		return strings.TrimSuffix(state.Reason+": "+state.Message, ": ")
	}
	return "its phase is " + string(pod.Status.Phase)
}

// failure returns what keeps a pod from ever running, as it says itself, with a code, or nil.
//
// A first ErrImagePull may be a hiccup and is not one: kubelet tries again and reports ImagePullBackOff in between.
func failure(pod *corev1.Pod) error {
	if reason := pod.Status.Reason; machine.HasEnded(pod) {
		code := codes.Aborted
		// kubelet's reasons for a lack of room are OutOfcpu and the like.
		if strings.HasPrefix(reason, "OutOf") || reason == "Evicted" || reason == "UnexpectedAdmissionError" {
			code = codes.ResourceExhausted
		}
		return newStatus(code, "pod %s/%s has ended: phase %s, reason %q: %s", pod.Namespace, pod.Name, pod.Status.Phase, reason, pod.Status.Message)
	}
	state := waiting(pod)
	if state == nil {
		return nil
	}
	switch state.Reason {
	case "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
		code := codes.FailedPrecondition
		if state.Reason == "InvalidImageName" {
			code = codes.InvalidArgument
		}
		return newStatus(code, "image %s of pod %s/%s cannot be pulled: %s: %s", image(pod), pod.Namespace, pod.Name, state.Reason, state.Message)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return newStatus(codes.FailedPrecondition, "container of pod %s/%s cannot be started: %s: %s", pod.Namespace, pod.Name, state.Reason, state.Message)
	case "CrashLoopBackOff":
		return newStatus(codes.Internal, "machine in pod %s/%s does not stay up: %s: %s", pod.Namespace, pod.Name, state.Reason, state.Message)
	}
	return nil
}

func image(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if container.Name == machine.ContainerName {
			return container.Image
		}
	}
	return ""
}
