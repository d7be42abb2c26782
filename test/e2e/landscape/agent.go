// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardenerkubernetes "github.com/gardener/gardener/pkg/client/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

// ProbePort is the port of HTTP of a ProbePod.
const ProbePort = 8080

// ProbePod is a pod with the program of package probe, whose image PushProbe returned. Its arguments must have it listen on
// ProbePort, by which it is ready.
func ProbePod(namespace, name, image string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "probe", Image: image, Args: args,
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(ProbePort)}}, PeriodSeconds: 1,
				},
			}},
		},
	}
}

// EventuallyPodReady waits until a pod is ready.
func EventuallyPodReady(ctx context.Context, c client.Client, pod *corev1.Pod) {
	GinkgoHelper()
	Eventually(Get(ctx, c, pod)).Should(HaveField("Status.Conditions", ContainElement(And(
		HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue)))), "pod %s/%s is ready", pod.Namespace, pod.Name)
}

// Ask has the agent in a ProbePod ask, through the API server of its cluster. See probe.Agent for path and parameters.
func Ask(ctx context.Context, clientset kubernetes.Interface, agent *corev1.Pod, path string, parameters map[string]string) (probe.Report, error) {
	var report probe.Report
	raw, err := clientset.CoreV1().Pods(agent.Namespace).ProxyGet("http", agent.Name, "8080", path, parameters).DoRaw(ctx)
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		return report, err
	}
	return report, report.Err()
}

// Execute runs a command in the only container of a pod and returns what it printed.
func Execute(ctx context.Context, config *rest.Config, pod *corev1.Pod, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	stdout, stderr, err := gardenerkubernetes.NewPodExecutor(config).Execute(ctx, pod.Namespace, pod.Name, "", command...)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(io.MultiReader(stdout, stderr))
	return strings.ReplaceAll(string(content), "\r", ""), err
}
