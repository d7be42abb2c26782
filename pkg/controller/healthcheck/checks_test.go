// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

func TestManagedResourceHealth(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*resourcesv1alpha1.ManagedResource)
		status  gardencorev1beta1.ConditionStatus
		message string
		codes   []gardencorev1beta1.ErrorCode
	}{
		{"is healthy if applied and healthy", func(*resourcesv1alpha1.ManagedResource) {}, "True", "All health checks successful", nil},
		{"is progressing if a new generation has not been seen", func(mr *resourcesv1alpha1.ManagedResource) { mr.Generation = 2 }, "Progressing", "outdated (1/2)", nil},
		{"is progressing if it is new", func(mr *resourcesv1alpha1.ManagedResource) { mr.Status.Conditions = nil }, "Progressing", "has not been reported yet", nil},
		{"is progressing if it is being applied", func(mr *resourcesv1alpha1.ManagedResource) { mr.Status.Conditions[0].Status = "Progressing" }, "Progressing", "ResourcesApplied", nil},
		{"is progressing if its health has to be checked anew", func(mr *resourcesv1alpha1.ManagedResource) { mr.Status.Conditions[1].Status = "Unknown" }, "Progressing", "ResourcesHealthy", nil},
		{"is unhealthy if what it holds is", func(mr *resourcesv1alpha1.ManagedResource) { mr.Status.Conditions[1].Status = "False" }, "False", "so it is", nil},
		{"is unhealthy if it cannot be applied, though its health is unknown", func(mr *resourcesv1alpha1.ManagedResource) {
			mr.Status.Conditions[0].Status, mr.Status.Conditions[1].Status = "False", "Unknown"
		}, "False", "ResourcesApplied", nil},
		{"is a configuration problem if the API server refuses an object", func(mr *resourcesv1alpha1.ManagedResource) {
			mr.Status.Conditions[0].Status = "False"
			mr.Status.Conditions[0].Message = `error during apply of object "v1/Service/a/b": Service "b" is invalid: spec`
		}, "False", "is invalid", []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorConfigurationProblem}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			mr := newManagedResource("name", gardencorev1beta1.ConditionTrue)
			test.change(mr)
			got := objectHealth(mr)
			g.Expect(got.Status).To(Equal(test.status))
			g.Expect(got.Detail).To(ContainSubstring(test.message))
			g.Expect(got.Codes).To(Equal(test.codes))
		})
	}
}

func TestDeploymentHealth(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*appsv1.Deployment)
		status gardencorev1beta1.ConditionStatus
	}{
		{"is healthy if available", func(*appsv1.Deployment) {}, "True"},
		{"is progressing if a new generation has not been seen", func(d *appsv1.Deployment) { d.Generation = 1 }, "Progressing"},
		{"is unhealthy if not available", func(d *appsv1.Deployment) { d.Status.Conditions[1].Status = corev1.ConditionFalse }, "False"},
		{"is progressing if not available since it is rolled out", func(d *appsv1.Deployment) {
			d.Status.Conditions[0].Reason, d.Status.Conditions[1].Status = "ReplicaSetUpdated", corev1.ConditionFalse
		}, "Progressing"},
		{"is unhealthy if the rollout takes too long", func(d *appsv1.Deployment) {
			d.Status.Conditions[0].Reason, d.Status.Conditions[0].Status = "ProgressDeadlineExceeded", corev1.ConditionFalse
		}, "False"},
		{"is unhealthy if nothing is known of it", func(d *appsv1.Deployment) { d.Status.Conditions = nil }, "False"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			deployment := newDeployment(corev1.ConditionTrue)
			test.change(deployment)
			g.Expect(objectHealth(deployment).Status).To(Equal(test.status))
			stripped, err := strip(deployment.DeepCopy())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objectHealth(stripped.(*appsv1.Deployment))).To(Equal(objectHealth(deployment)), "the same in the cache")
		})
	}
}

func TestProgressing(t *testing.T) {
	applying := func() *resourcesv1alpha1.ManagedResource {
		mr := newManagedResource("extension-controlplane-shoot-webhooks", gardencorev1beta1.ConditionUnknown)
		mr.Status.ObservedGeneration = 0
		return mr
	}
	old := func(status gardencorev1beta1.ConditionStatus, age time.Duration) *extensionsv1alpha1.ControlPlane {
		cp := newControlPlane()
		at := metav1.NewTime(start.Add(-age))
		cp.Status.Conditions = []gardencorev1beta1.Condition{{Type: systemComponents, Status: status, LastTransitionTime: at, LastUpdateTime: at}}
		return cp
	}

	for _, test := range []struct {
		name   string
		before *extensionsv1alpha1.ControlPlane
		status gardencorev1beta1.ConditionStatus
		again  time.Duration
	}{
		{"is reported of what is new", newControlPlane(), "Progressing", syncPeriod},
		{"is reported of what was healthy", old("True", time.Hour), "Progressing", syncPeriod},
		{"is reported of what was unknown", old("Unknown", time.Hour), "Progressing", syncPeriod},
		{"lasts, and is looked at again when the threshold is reached", old("Progressing", 4*time.Minute), "Progressing", time.Minute + time.Second},
		{"ends at the threshold", old("Progressing", 5*time.Minute), "False", syncPeriod},
		{"is not reported of what was unhealthy", old("False", time.Second), "False", syncPeriod},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.before, newCluster(false), applying())
			f.Expect(f.reconcile("controlplane")).To(Equal(reconcile.Result{RequeueAfter: test.again}))
			f.Expect(f.condition(&extensionsv1alpha1.ControlPlane{}, systemComponents).Status).To(Equal(test.status))
		})
	}
}

func TestNodes(t *testing.T) {
	young := newNodeObject("young", corev1.ConditionFalse)
	young.CreationTimestamp = metav1.NewTime(start.Add(-time.Minute))
	silent := newNodeObject("silent", corev1.ConditionTrue)
	silent.Status.Conditions = nil
	foreign := newNodeObject("foreign", corev1.ConditionFalse)
	foreign.Annotations = map[string]string{"node.machine.sapcloud.io/not-managed-by-mcm": "1"}
	leaving := newMachine("leaving", "leaving")
	leaving.DeletionTimestamp, leaving.Finalizers = new(metav1.NewTime(start)), []string{"machine.sapcloud.io/machine-controller"}
	ready := newNodeObject("node", corev1.ConditionTrue)
	broken := newMachineDeployment(1)
	broken.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{Name: "machine-1", LastOperation: machinev1alpha1.LastOperation{Description: "no room"}}}
	unavailable := newMachineDeployment(1)
	unavailable.Status.Conditions[0] = machinev1alpha1.MachineDeploymentCondition{
		Type: machinev1alpha1.MachineDeploymentAvailable, Status: machinev1alpha1.ConditionFalse, Reason: "Because", Message: "too few"}

	for _, test := range []struct {
		name    string
		seed    []client.Object
		nodes   []runtime.Object
		status  gardencorev1beta1.ConditionStatus
		message string
	}{
		{"are ready", []client.Object{newMachineDeployment(1)}, []runtime.Object{ready}, "True", "All health checks successful"},
		{"are ready if none are wanted", nil, nil, "True", "All health checks successful"},
		{"are not ready", []client.Object{newMachineDeployment(1)}, []runtime.Object{newNodeObject("b", "False")}, "False", "not ready: Node b"},
		{"are not ready if the kubelet is silent", []client.Object{newMachineDeployment(1)}, []runtime.Object{newNodeObject("b", "Unknown")}, "False", "not ready: Node b"},
		{"are not ready if they have no condition", []client.Object{newMachineDeployment(1)}, []runtime.Object{silent}, "False", "not ready: Node silent"},
		{"are named, but not all of them", []client.Object{newMachineDeployment(7)}, names(7), "False", "not ready: Node node-0, node-1, node-2, node-3, node-4, and 2 more"},
		{"are starting", []client.Object{newMachineDeployment(2)}, []runtime.Object{ready, young}, "Progressing", "starting: Node young"},
		{"are coming", []client.Object{newMachineDeployment(3)}, []runtime.Object{ready}, "Progressing", "1 of 3 Nodes have registered"},
		{"are too many for now", []client.Object{newMachineDeployment(1)}, []runtime.Object{ready, newNodeObject("b", "True")}, "Progressing", "2 Nodes are registered, 1 are wanted"},
		{"are ready though one leaves", []client.Object{newMachineDeployment(1), leaving}, []runtime.Object{ready, newNodeObject("leaving", "False")}, "True", "All health checks successful"},
		{"are ready though one that is not the Worker's isn't", []client.Object{newMachineDeployment(1)}, []runtime.Object{ready, foreign}, "True", "All health checks successful"},
		{"cannot come as a machine has failed", []client.Object{broken}, []runtime.Object{ready}, "False", "machine machine-1 failed: no room"},
		{"are ready but their MachineDeployment isn't", []client.Object{unavailable}, []runtime.Object{ready}, "Progressing", "MachineDeployment pool is unhealthy: too few (Because)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, append(test.seed, newWorker(), newCluster(false))...)
			f.setNodes(test.nodes...)
			f.reconcile("worker")
			got := f.condition(&extensionsv1alpha1.Worker{}, everyNode)
			f.Expect(got.Status).To(Equal(test.status))
			f.Expect(got.Message).To(Equal(test.message))
		})
	}

	t.Run("that don't come in time are an error", func(t *testing.T) {
		f := newFixture(t, append(healthyWorker(), newMachine("b", ""))...)
		f.Expect(f.reconcile("worker").RequeueAfter).To(Equal(syncPeriod))
		f.clock.Step(syncPeriod)
		f.reconcile("worker")
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode)).To(And(
			HaveField("Status", gardencorev1beta1.ConditionFalse), HaveField("Message", "0 of 1 Nodes have registered")))
	})

	t.Run("that don't go have longer", func(t *testing.T) {
		f := newFixture(t, healthyWorker()...)
		f.setNodes(newNodeObject("node", "True"), newNodeObject("other", "True"))
		f.reconcile("worker")
		f.clock.Step(14 * time.Minute)
		f.Expect(f.reconcile("worker").RequeueAfter).To(Equal(time.Minute + time.Second))
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode).Status).To(Equal(gardencorev1beta1.ConditionProgressing))
		f.clock.Step(time.Minute)
		f.reconcile("worker")
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode).Status).To(Equal(gardencorev1beta1.ConditionFalse))
	})
}

func TestListNodes(t *testing.T) {
	g := NewWithT(t)
	foreign := newNodeObject("foreign", "False")
	foreign.Annotations = map[string]string{"node.machine.sapcloud.io/not-managed-by-mcm": "1"}
	pages := map[string]*corev1.NodeList{
		"":  {ListMeta: metav1.ListMeta{Continue: "2"}, Items: []corev1.Node{*newNodeObject("a", "True"), *foreign}},
		"2": {Items: []corev1.Node{*newNodeObject("b", "False")}},
	}
	clients := kubernetesfake.NewClientset()
	clients.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		g.Expect(options.Limit).To(Equal(int64(100)))
		return true, pages[options.Continue], nil
	})

	g.Expect(listNodes(t.Context(), clients.CoreV1().Nodes())).To(HaveExactElements(
		node{name: "a", ready: true, created: start.Add(-time.Hour)}, node{name: "b", created: start.Add(-time.Hour)}))
}

func TestShoots(t *testing.T) {
	t.Run("a client is kept while it works", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(f.open, f.clock)
		for range 3 {
			_, err := s.nodes(t.Context(), namespace)
			f.Expect(err).NotTo(HaveOccurred())
		}
		f.Expect(f.opened).To(Equal(1))
		f.Expect(f.asked).To(Equal(3))
	})

	t.Run("access that was replaced is taken anew within one check", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(f.open, f.clock)
		_, err := s.nodes(t.Context(), namespace)
		f.Expect(err).NotTo(HaveOccurred())

		f.askErr = errors.New("Unauthorized")
		refused := f.nodes
		s.open = func(ctx context.Context, namespace string) (corev1client.NodeInterface, error) {
			f.askErr = nil
			f.setNodes(newNodeObject("node", corev1.ConditionTrue))
			return f.open(ctx, namespace)
		}
		f.Expect(s.nodes(t.Context(), namespace)).To(HaveLen(1))
		f.Expect(f.nodes).NotTo(Equal(refused))
		f.Expect(f.opened).To(Equal(2))
	})

	t.Run("an API server that does not answer is left alone for a while", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(f.open, f.clock)
		f.askErr = errDown
		for range 5 {
			_, err := s.nodes(t.Context(), namespace)
			f.Expect(err).To(MatchError("connection refused"))
		}
		f.Expect(f.asked).To(Equal(1))

		f.clock.Step(pauseAfterFailure)
		f.askErr = nil
		_, err := s.nodes(t.Context(), namespace)
		f.Expect(err).NotTo(HaveOccurred())
	})

	t.Run("an answer that does not come in time is one that says so", func(t *testing.T) {
		f := newFixture(t)
		f.askErr = fmt.Errorf("client rate limiter Wait returned an error: %w", context.DeadlineExceeded)
		_, err := newShoots(f.open, f.clock).nodes(t.Context(), namespace)
		f.Expect(err).To(MatchError("no answer within 5s"))
	})

	t.Run("the end of the program is not taken for a failure of the API server", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(f.open, f.clock)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f.askErr = context.Canceled
		_, err := s.nodes(ctx, namespace)
		f.Expect(err).To(MatchError(context.Canceled))

		f.askErr = nil
		_, err = s.nodes(t.Context(), namespace)
		f.Expect(err).NotTo(HaveOccurred())
	})

	t.Run("a client is dropped with the Worker, and while the shoot is hibernated", func(t *testing.T) {
		f := newFixture(t, healthyWorker()...)
		f.reconcile("worker")
		f.remove(newWorker())
		f.reconcile("worker")
		f.Expect(f.seed.Create(t.Context(), newWorker())).To(Succeed())
		f.reconcile("worker")
		f.Expect(f.opened).To(Equal(2))

		for i, hibernated := range []bool{true, false} {
			cluster := &extensionsv1alpha1.Cluster{}
			f.Expect(f.seed.Get(t.Context(), client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
			cluster.Spec = newCluster(hibernated).Spec
			f.update(cluster)
			f.reconcile("worker")
			f.Expect(f.opened).To(Equal(2 + i))
		}
	})

	t.Run("there is a bound to what is kept", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(func(context.Context, string) (corev1client.NodeInterface, error) { return f.nodes, nil }, f.clock)
		for i := range shootsMax + 10 {
			_, err := s.nodes(t.Context(), fmt.Sprintf("shoot-%d", i))
			f.Expect(err).NotTo(HaveOccurred())
		}
		f.Expect(s.known.Len()).To(Equal(shootsMax))
	})
}

func TestConstant(t *testing.T) {
	for in, out := range map[string]string{
		"lookup api on 10.0.0.10:53: read udp 10.1.2.3:4711->10.0.0.10:53: i/o timeout":                  "lookup api on 10.0.0.10:53: read udp 10.0.0.10:53: i/o timeout",
		"read tcp [fd00::1]:4711->[fd00::2]:443: reset":                                                  "read tcp [fd00::2]:443: reset",
		"x509: certificate has expired: current time 2026-01-02T03:04:05Z is after 2025-01-01T00:00:00Z": "x509: certificate has expired: current time is after 2025-01-01T00:00:00Z",
		"Unauthorized": "Unauthorized",
	} {
		NewWithT(t).Expect(constant(errors.New(in))).To(MatchError(out))
	}
}

func TestNodesBySecret(t *testing.T) {
	const kubeconfig = `
apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters: [{name: it, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: it, user: {token: secret}}]
`
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"kubeconfig": []byte(kubeconfig)}}
	}

	for _, test := range []struct {
		name    string
		secrets []client.Object
		message string
	}{
		{"takes the internal access first", []client.Object{secret("gardener-internal")}, ""},
		{"takes the other one if there is no internal one", []client.Object{secret("gardener")}, ""},
		{"says that there is none", nil, "gardenlet has written no credentials"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("GARDENER_SHOOT_CLIENT", "")
			nodes, err := nodesBySecret(fakeclient.NewClientBuilder().WithObjects(test.secrets...).Build())(t.Context(), namespace)
			if test.message != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.message)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err = nodes.List(ctx, metav1.ListOptions{})
			g.Expect(err).To(MatchError(ContainSubstring("/api/v1/nodes")), "the first request is the one for Nodes")
		})
	}
}

func TestAShootCannotMakeUsReadNodesOfAnySize(t *testing.T) {
	g := NewWithT(t)
	packed := &bytes.Buffer{} // before the request, which may take 5 s
	writer := gzip.NewWriter(packed)
	_, _ = io.WriteString(writer, `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "`)
	_, _ = writer.Write(bytes.Repeat([]byte("a"), 17<<20))
	_, _ = io.WriteString(writer, `"}}]}`)
	g.Expect(writer.Close()).To(Succeed())
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.Expect(r.Header.Get("Accept-Encoding")).To(Equal("gzip"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	kubeconfig, err := clientcmd.Write(*config)
	g.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener"}, Data: map[string][]byte{"kubeconfig": kubeconfig}}

	nodes, err := nodesBySecret(fakeclient.NewClientBuilder().WithObjects(secret).Build())(t.Context(), namespace)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = listNodes(t.Context(), nodes)
	g.Expect(err).To(MatchError("100 Nodes take more than 16 MiB: make them smaller"))
}
