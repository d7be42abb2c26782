// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// probe is one of a chart, which asks by a command or by HTTP.
func probe(delay int32, command bool) *corev1.Probe {
	p := &corev1.Probe{InitialDelaySeconds: delay, PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
	if command {
		p.Exec = &corev1.ExecAction{Command: []string{"true"}}
	} else {
		p.HTTPGet = &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80), Scheme: corev1.URISchemeHTTP}
	}
	return p
}

// with is what the API server has made of a probe.
func with(p *corev1.Probe, delay, period, failures int32) *corev1.Probe {
	p = p.DeepCopy()
	p.InitialDelaySeconds, p.PeriodSeconds, p.TimeoutSeconds, p.FailureThreshold = delay, period, 15, failures
	return p
}

// admitting starts an API server with policies of these files.
func admitting(t *testing.T, names ...string) client.Client {
	t.Helper()
	g := NewWithT(t)
	env := &envtest.Environment{}
	config, err := env.Start()
	g.Expect(err).NotTo(HaveOccurred(), "make test says where the API server is")
	t.Cleanup(func() { g.Expect(env.Stop()).To(Succeed()) })
	c, err := client.New(config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := render(layout.Network{}, images.Table{}, Machine{Processors: 2}, false, names...)
	g.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		g.Expect(c.Create(t.Context(), object)).To(Succeed())
	}
	return c
}

func TestContainersAreAskedOftenUntilTheyHaveStarted(t *testing.T) {
	c := admitting(t, "readiness.yaml", "versions.yaml")

	http, command := probe(15, false), probe(15, true)
	own := with(http, 3, 4, 5)
	for name, test := range map[string]struct {
		liveness, readiness, startup             *corev1.Probe
		wantLiveness, wantReadiness, wantStartup *corev1.Probe
	}{
		"none":              {},
		"both":              {http, http, nil, with(http, 15, 10, 3), with(http, 0, 10, 3), with(http, 0, 1, 900)},
		"liveness":          {http, nil, nil, with(http, 0, 10, 3), nil, with(http, 0, 1, 900)},
		"commands":          {command, command, nil, with(command, 15, 10, 3), with(command, 15, 10, 3), nil},
		"liveness-command":  {command, http, nil, with(command, 15, 10, 3), with(http, 0, 10, 3), with(http, 0, 1, 900)},
		"readiness-command": {http, command, nil, with(http, 0, 10, 3), with(command, 15, 10, 3), with(http, 0, 1, 900)},
		"own-startup":       {http, http, own, with(http, 15, 10, 3), with(http, 15, 10, 3), own},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
			pod.Spec.AutomountServiceAccountToken = new(bool)
			// Behind another container, as probes are found by index.
			pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "a"}, {
				Name: "b", Image: "b", LivenessProbe: test.liveness.DeepCopy(), ReadinessProbe: test.readiness.DeepCopy(), StartupProbe: test.startup.DeepCopy(),
			}}
			// Policies are in force a moment after they are there, and a dry run changes nothing.
			g.Eventually(func(g Gomega) {
				admitted := pod.DeepCopy()
				g.Expect(c.Create(t.Context(), admitted, client.DryRunAll)).To(Succeed())
				b := admitted.Spec.Containers[1]
				g.Expect(b.LivenessProbe).To(Equal(test.wantLiveness))
				g.Expect(b.ReadinessProbe).To(Equal(test.wantReadiness))
				g.Expect(b.StartupProbe).To(Equal(test.wantStartup))
			}).WithTimeout(10*time.Second).Should(Succeed(), strings.ReplaceAll(name, "-", " "))
		})
	}

	for image, wanted := range map[string][]string{
		"registry.k8s.io/kube-apiserver:v1.36.3": {"--a"},
		"registry.k8s.io/kube-apiserver:v1.34.4": {
			"--a", "--feature-gates=MutatingAdmissionPolicy=true",
			"--runtime-config=admissionregistration.k8s.io/v1alpha1=true,admissionregistration.k8s.io/v1beta1=true",
		},
	} {
		t.Run(image, func(t *testing.T) {
			g := NewWithT(t)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "x", Labels: map[string]string{"app": "kubernetes", "role": "apiserver"}}}
			pod.Spec.AutomountServiceAccountToken = new(bool)
			pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "a", Args: []string{"--b"}}, {Name: "kube-apiserver", Image: image, Args: []string{"--a"}}}
			g.Eventually(func(g Gomega) {
				admitted := pod.DeepCopy()
				g.Expect(c.Create(t.Context(), admitted, client.DryRunAll)).To(Succeed())
				g.Expect(admitted.Spec.Containers).To(HaveExactElements(HaveField("Args", []string{"--b"}), HaveField("Args", wanted)))
			}).WithTimeout(10*time.Second).Should(Succeed(), "policies are in force a moment after they are there")
		})
	}

	for name, test := range map[string]struct{ command, wanted []string }{
		"default": {[]string{"/metrics-server", "--v=1"}, []string{"/metrics-server", "--v=1", "--metric-resolution=15s"}},
		"own":     {[]string{"/metrics-server", "--metric-resolution=1m"}, []string{"/metrics-server", "--metric-resolution=1m"}},
		"image's": {nil, nil},
	} {
		t.Run("metrics-server with command: "+name, func(t *testing.T) {
			g := NewWithT(t)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "metrics-server"}}
			pod.Spec.AutomountServiceAccountToken = new(bool)
			pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "a", Command: []string{"/a"}}, {Name: "metrics-server", Image: "b", Command: test.command}}
			g.Eventually(func(g Gomega) {
				admitted := pod.DeepCopy()
				g.Expect(c.Create(t.Context(), admitted, client.DryRunAll)).To(Succeed())
				g.Expect(admitted.Spec.Containers).To(HaveExactElements(HaveField("Command", []string{"/a"}), HaveField("Command", test.wanted)))
			}).WithTimeout(10*time.Second).Should(Succeed(), "policies are in force a moment after they are there")
		})
	}
}
