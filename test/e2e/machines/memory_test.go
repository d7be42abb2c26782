// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

func memorySpecs(shoot func() *shoot, seen func() *recorder) {
	It("kill a pod that takes more memory than there is, and go on", func(ctx SpecContext) {
		s := shoot()
		node := s.nodesOf(ctx, poolOne)[0]
		before := s.podOf(ctx, &node)
		glutton := landscape.Create(ctx, s.client, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "glutton"},
			Spec: corev1.PodSpec{
				NodeName: node.Name, RestartPolicy: corev1.RestartPolicyNever, HostNetwork: true,
				AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(0)),
				Containers: []corev1.Container{{Name: "glutton", Image: probeImage, Args: []string{"allocate", "-bytes", "4294967296"}}},
			},
		})
		// containerd only gives the reason OOMKilled if it hears of it before the end of the process, which with cgroup v1 is
		// up to chance. So who has killed the process, and which others, the kernel is asked.
		Eventually(landscape.Get(ctx, s.client, glutton)).Should(HaveField("Status.ContainerStatuses", ConsistOf(
			HaveField("State.Terminated", HaveValue(HaveField("ExitCode", int32(137)))))))
		Expect(killedIn(ctx, before)).To(And(Not(BeEmpty()), HaveEach(Satisfy(func(k kill) bool { return k.of(glutton.UID) }))),
			"the kernel has killed the pod because the machine's memory was used up, and nothing else in the machine")

		after := s.podOf(ctx, &node)
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Status.ContainerStatuses).To(HaveExactElements(And(HaveField("RestartCount", int32(0)), HaveField("State.Running", Not(BeNil())))))
		Eventually(func() []corev1.Node { return s.nodesOf(ctx, poolOne) }).Should(HaveExactElements(And(HaveField("UID", node.UID), Satisfy(isReadyNode))))
		Expect(seen().of(machine.Name(node.Name)).lapse).To(BeNumerically("<", soon),
			"while there is no memory left, kubelet may be late to say that the Node is ready, but a new machine would not have been faster")
	})
}

// kill is a process that the kernel has killed because the memory of a cgroup was used up.
type kill struct {
	// limited is the cgroup whose memory was used up, and victim the one of the process: paths.
	limited, victim string
}

// killedIn are the processes that have been killed in a machine because its own memory was used up.
func killedIn(ctx context.Context, pod *corev1.Pod) []kill {
	GinkgoHelper()
	log, err := landscape.Execute(ctx, l.Config, pod, "dmesg")
	Expect(err).NotTo(HaveOccurred())
	var kills []kill
	for _, k := range kernelsKills(log) {
		if inPod(k.limited, pod.UID) {
			kills = append(kills, k)
		}
	}
	return kills
}

// kernelsKills reads the kernel's log.
func kernelsKills(log string) []kill {
	var kills []kill
	for line := range strings.Lines(log) {
		_, report, found := strings.Cut(line, "oom-kill:")
		if !found {
			continue
		}
		values := map[string]string{}
		for part := range strings.SplitSeq(strings.TrimSpace(report), ",") {
			key, value, _ := strings.Cut(part, "=")
			values[key] = value
		}
		kills = append(kills, kill{limited: values["oom_memcg"], victim: values["task_memcg"]})
	}
	return kills
}

// of reports whether the process was one of a pod.
func (k kill) of(uid types.UID) bool {
	return inPod(k.victim, uid)
}

// inPod reports whether the path of a cgroup has that of a pod in it, in the notation of kubelet's driver cgroupfs or systemd.
func inPod(path string, uid types.UID) bool {
	return strings.Contains(path, "pod"+string(uid)) || strings.Contains(path, "pod"+strings.ReplaceAll(string(uid), "-", "_"))
}
