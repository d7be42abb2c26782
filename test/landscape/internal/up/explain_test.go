// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
)

// explainedAt is when the tests look.
var explainedAt = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// symptoms are what other objects report of any cause.
const symptoms = `
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {namespace: garden-local, name: local}
status:
  technicalID: shoot--local--local
  seedName: local
  lastOperation: {type: Reconcile, state: Error, progress: 40, lastUpdateTime: "2026-01-02T02:59:00Z"}
  lastErrors: [{description: "ControlPlane failed"}]
---
apiVersion: resources.gardener.cloud/v1alpha1
kind: ManagedResource
metadata: {namespace: shoot--local--local, name: shoot-core, creationTimestamp: "2026-01-02T01:00:00Z"}
status:
  conditions: [{type: ResourcesHealthy, status: "False", message: "Deployment is unhealthy"}]
`

func TestExplainFindsTheFirstCause(t *testing.T) {
	for _, test := range []struct{ name, objects, cause, look string }{
		{name: "nothing but the Shoot itself", objects: ``, cause: "ManagedResource shoot--local--local/shoot-core: ResourcesHealthy is False: Deployment is unhealthy"},
		{
			name: "an image that cannot be pulled",
			objects: `
apiVersion: v1
kind: Pod
metadata: {namespace: shoot--local--local, name: kube-apiserver-1}
status:
  phase: Pending
  conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-02T02:58:00Z"}]
  containerStatuses: [{name: kube-apiserver, ready: false, state: {waiting: {reason: ImagePullBackOff, message: not found}}}]
`,
			cause: "Pod shoot--local--local/kube-apiserver-1, for 2m0s: container kube-apiserver: ImagePullBackOff: not found",
			look:  "kubectl --kubeconfig runtime -n shoot--local--local describe pod kube-apiserver-1",
		},
		{
			name: "a container that ends, and another one that waits for it",
			objects: `
apiVersion: v1
kind: Pod
metadata: {namespace: shoot--local--local, name: gardener-resource-manager-1}
status:
  phase: Running
  conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-02T02:58:30Z"}]
  containerStatuses: [{name: manager, ready: false, state: {running: {startedAt: "2026-01-02T02:50:00Z"}}}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: shoot--local--local, name: etcd-main-0}
status:
  phase: Running
  conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-02T02:58:00Z"}]
  containerStatuses:
  - {name: etcd, ready: false, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2, reason: Error, finishedAt: "2026-01-02T02:59:30Z"}}}
`,
			cause: "Pod shoot--local--local/etcd-main-0, for 2m0s: container etcd has ended 3 times, the last time with exit code 2 (Error)",
		},
		{
			name: "a pod without a node",
			objects: `
apiVersion: v1
kind: Pod
metadata: {namespace: shoot--local--local, name: machine-1}
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: "False", message: "1 Insufficient memory", lastTransitionTime: "2026-01-02T02:57:00Z"}]
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {namespace: shoot--local--local, name: m, creationTimestamp: "2026-01-02T02:50:00Z"}
status: {currentStatus: {phase: Pending}}
`,
			cause: "Pod shoot--local--local/machine-1, for 3m0s: is not scheduled: 1 Insufficient memory",
		},
		{
			name: "a claim without a volume, for which a pod waits",
			objects: `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: shoot--local--local, name: main-etcd-etcd-main-0, creationTimestamp: "2026-01-02T02:55:00Z"}
status: {phase: Pending}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shoot--local--local, name: etcd-main-0}
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: "False", message: "unbound claim", lastTransitionTime: "2026-01-02T02:55:00Z"}]
`,
			cause: "PersistentVolumeClaim shoot--local--local/main-etcd-etcd-main-0, for 5m0s: has no volume",
		},
		{
			name: "an etcd that somebody has scaled down",
			objects: `
apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: shoot--local--local, name: etcd-main}
spec: {replicas: 0}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shoot--local--local, name: cluster-autoscaler}
spec: {replicas: 0}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shoot--local--local, name: kube-apiserver-1}
status:
  conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-02T02:50:00Z"}]
  containerStatuses: [{name: kube-apiserver, ready: false, restartCount: 3, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: "2026-01-02T02:59:30Z"}}}]
`,
			cause: "StatefulSet shoot--local--local/etcd-main: is scaled to 0 replicas",
		},
		{
			name: "a webhook that denies pods",
			objects: `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shoot--local--local, name: kube-scheduler}
spec: {replicas: 1}
status: {conditions: [{type: ReplicaFailure, status: "True", message: "admission webhook x denied the request", lastTransitionTime: "2026-01-02T02:59:00Z"}]}
`,
			cause: "Deployment shoot--local--local/kube-scheduler, for 1m0s: cannot create pods: admission webhook x denied the request",
		},
		{
			name: "the extension that somebody has scaled down",
			objects: `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: extension-provider-local-abc, name: gardener-extension-provider-local-seed}
spec: {replicas: 0}
---
apiVersion: extensions.gardener.cloud/v1alpha1
kind: Infrastructure
metadata: {namespace: shoot--local--local, name: local, creationTimestamp: "2026-01-02T02:00:00Z"}
`,
			cause: "Deployment extension-provider-local-abc/gardener-extension-provider-local-seed: is scaled to 0 replicas",
		},
		{
			name: "an extension object with an error",
			objects: `
apiVersion: extensions.gardener.cloud/v1alpha1
kind: ControlPlane
metadata: {namespace: shoot--local--local, name: local}
status:
  lastOperation: {type: Reconcile, state: Error, lastUpdateTime: "2026-01-02T02:59:00Z"}
  lastError: {description: quota exceeded}
`,
			cause: "ControlPlane shoot--local--local/local, for 1m0s: Reconcile Error: quota exceeded",
			look:  "kubectl --kubeconfig runtime -n shoot--local--local get -o yaml controlplane local",
		},
		{
			name: "an extension whose chart cannot be pulled",
			objects: `
apiVersion: operator.gardener.cloud/v1alpha1
kind: Extension
metadata: {name: foreign}
status: {conditions: [{type: RequiredVirtual, status: "False"}, {type: Installed, status: "False", message: chart not found}]}
`,
			cause: "Extension foreign: Installed is False: chart not found",
			look:  "kubectl --kubeconfig runtime get -o yaml extension.operator.gardener.cloud foreign",
		},
		{
			name: "an extension whose chart a Seed cannot render, beside one of another Seed",
			objects: `
apiVersion: core.gardener.cloud/v1beta1
kind: ControllerInstallation
metadata: {name: another}
spec: {seedRef: {name: another}}
status: {conditions: [{type: Valid, status: "False", message: another}]}
---
apiVersion: core.gardener.cloud/v1beta1
kind: ControllerInstallation
metadata: {name: foreign-abc}
spec: {seedRef: {name: local}}
status: {conditions: [{type: Valid, status: "False", message: no value replicas}]}
---
apiVersion: operator.gardener.cloud/v1alpha1
kind: Extension
metadata: {name: foreign}
status: {conditions: [{type: ControllerInstallationsHealthy, status: "False", message: one is not healthy}]}
`,
			cause: "ControllerInstallation foreign-abc: Valid is False: no value replicas",
			look:  "kubectl --kubeconfig runtime get -o yaml controllerinstallation foreign-abc",
		},
		{
			name: "an object that does not go",
			objects: `
apiVersion: extensions.gardener.cloud/v1alpha1
kind: Worker
metadata: {namespace: shoot--local--local, name: local, deletionTimestamp: "2026-01-02T02:50:00Z", finalizers: [somebody/else]}
status: {lastOperation: {type: Delete, state: Succeeded}}
`,
			cause: "Worker shoot--local--local/local, for 10m0s: is being deleted, and has finalizers somebody/else",
		},
		{
			name: "a machine that does not come",
			objects: `
apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {namespace: shoot--local--local, name: m, creationTimestamp: "2026-01-02T02:50:00Z"}
status: {currentStatus: {phase: Failed, lastUpdateTime: "2026-01-02T02:56:00Z"}, lastOperation: {description: no such image}}
`,
			cause: "Machine shoot--local--local/m, for 4m0s: is Failed: no such image",
		},
		{
			name: "a node whose disk is full, and what was evicted from it",
			objects: `
apiVersion: v1
kind: Node
metadata: {name: node1}
status:
  conditions:
  - {type: Ready, status: "True"}
  - {type: DiskPressure, status: "True", message: kubelet has disk pressure, lastTransitionTime: "2026-01-02T02:58:00Z"}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shoot--local--local, name: machine-1}
status: {phase: Failed, message: evicted, conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-02T02:50:00Z"}]}
`,
			cause: "Node node1, for 2m0s: DiskPressure is True: kubelet has disk pressure",
			look:  "kubectl --kubeconfig runtime describe node node1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			objects := parse(t, symptoms+"---"+test.objects)
			in := explainedIn(objects[1:])
			e := &explainer{now: func() time.Time { return explainedAt }}
			e.target(objects[0], in)
			e.nodes(t.Context(), in, ofNode)
			e.causes(t.Context(), in, ofPod)
			e.installations(t.Context(), objects[0], in)
			var out bytes.Buffer
			e.print(t.Context(), &out, "headline")
			lines := strings.Split(out.String(), "\n")
			g.Expect(lines[0]).To(Equal("headline"))
			g.Expect(lines[1]).To(HavePrefix("  cause   " + test.cause))
			g.Expect(out.String()).To(ContainSubstring("  look    " + test.look))
			g.Expect(out.String()).To(ContainSubstring("Shoot garden-local/local, for 1m0s: Reconcile Error 40%: ControlPlane failed"), "the symptom is there, too")
		})
	}
}

func TestExplainFindsNothingInWhatIsHealthy(t *testing.T) {
	g := NewWithT(t)
	in := explainedIn(parse(t, `
apiVersion: v1
kind: Node
metadata: {name: node1}
status: {conditions: [{type: Ready, status: "True"}, {type: DiskPressure, status: "False"}, {type: SystemdUnitsReady, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: a, name: ready}
status:
  phase: Running
  conditions: [{type: Ready, status: "True"}]
  containerStatuses: [{name: a, ready: true, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: "2026-01-02T02:59:30Z"}}}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: a, name: starting}
status:
  phase: Running
  conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-02T02:59:50Z"}]
  containerStatuses: [{name: a, ready: false, state: {running: {startedAt: "2026-01-02T02:59:50Z"}}}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: a, name: done}
status: {phase: Succeeded, conditions: [{type: Ready, status: "False"}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: a, name: new, creationTimestamp: "2026-01-02T02:59:50Z"}
status: {phase: Pending}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: a, name: one}
---
apiVersion: extensions.gardener.cloud/v1alpha1
kind: Network
metadata: {namespace: a, name: new, creationTimestamp: "2026-01-02T02:59:00Z"}
`))
	e := &explainer{now: func() time.Time { return explainedAt }}
	e.nodes(t.Context(), in, ofNode)
	e.causes(t.Context(), in, ofPod)
	g.Expect(e.findings).To(BeEmpty())
}

func TestNoCauseIsWhereAShootIsAsleep(t *testing.T) {
	g := NewWithT(t)
	shoot := object(shoots, "local", "Succeeded")
	g.Expect(controlPlaneOf(shoot)).To(BeEmpty(), "it is not there yet")
	g.Expect(unstructured.SetNestedField(shoot.Object, "shoot--local--local", "status", "technicalID")).To(Succeed())
	g.Expect(controlPlaneOf(shoot)).To(Equal("shoot--local--local"))
	g.Expect(unstructured.SetNestedField(shoot.Object, true, "status", "hibernated")).To(Succeed())
	g.Expect(controlPlaneOf(shoot)).To(BeEmpty())
	g.Expect(unstructured.SetNestedField(shoot.Object, "Error", "status", "lastOperation", "state")).To(Succeed())
	g.Expect(controlPlaneOf(shoot)).To(Equal("shoot--local--local"), "it may not wake up")
}

func TestATargetIsExplainedByItsOwnNamespaceAndThoseOfTheSystem(t *testing.T) {
	g := NewWithT(t)
	e := &explainer{}
	for _, namespace := range []string{
		"", "garden", "kube-system", "extension-provider-local-abc", "runtime-extension-provider-local", "istio-ingress", "virtual-garden-istio-ingress",
		"shoot--local--local", "shoot--local--other", "default", "gardens",
	} {
		e.add(finding{namespace: namespace})
	}
	g.Expect(e.within("shoot--local--local")).To(Equal(e.findings[:8]))
	g.Expect(e.within("")).To(Equal(e.findings[:7]))
}

func TestABackupEntryIsOfItsShootAlone(t *testing.T) {
	g := NewWithT(t)
	e := &explainer{}
	for _, name := range []string{"shoot--local--a--uid", "source-shoot--local--a--uid", "shoot--local--b--uid", "garden--uid"} {
		e.add(finding{kind: "BackupEntry", name: name})
	}
	g.Expect(e.within("shoot--local--a")).To(HaveExactElements(e.findings[0], e.findings[1], e.findings[3]))
	g.Expect(e.within("")).To(HaveExactElements(e.findings[3]))
}

func TestANodeOfAShootComesBeforeItsMachine(t *testing.T) {
	g := NewWithT(t)
	in := explainedIn(parse(t, `
apiVersion: v1
kind: Node
metadata: {name: node1}
status: {conditions: [{type: Ready, status: Unknown, message: Kubelet stopped posting node status., lastTransitionTime: "2026-01-02T02:58:00Z"}]}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {namespace: shoot--local--local, name: m, creationTimestamp: "2026-01-02T02:50:00Z"}
status: {currentStatus: {phase: Unknown, lastUpdateTime: "2026-01-02T02:57:00Z"}, lastOperation: {description: "Node conditions: ..."}}
`))
	e := &explainer{now: func() time.Time { return explainedAt }}
	e.causes(t.Context(), in, ofPod)
	e.nodes(t.Context(), in, ofShootNode)
	var kinds []string
	for _, f := range e.first() {
		kinds = append(kinds, f.kind)
	}
	g.Expect(kinds).To(Equal([]string{"Node", "Machine"}))
}

func TestExplainSaysWhatItCouldNotLookAt(t *testing.T) {
	g := NewWithT(t)
	broken := &explained{client: fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("timeout")
		},
	}).Build()}
	e := &explainer{now: func() time.Time { return explainedAt }}
	e.nodes(t.Context(), broken, ofNode)
	e.causes(t.Context(), broken, ofPod)
	out := gbytes.NewBuffer()
	e.print(t.Context(), out, "Seed local reports no problem yet.")
	g.Expect(out).To(gbytes.Say(`unread +\d+ lists, so the cause may be another one: timeout`))
}

func TestExplainShowsTheNewestWarning(t *testing.T) {
	g := NewWithT(t)
	in := explainedIn(parse(t, `
apiVersion: v1
kind: Event
metadata: {namespace: a, name: old}
involvedObject: {kind: Pod, name: p}
type: Warning
reason: Old
lastTimestamp: "2026-01-02T02:00:00Z"
---
apiVersion: v1
kind: Event
metadata: {namespace: a, name: new}
involvedObject: {kind: Pod, name: p}
type: Warning
reason: Failed
message: not found
eventTime: "2026-01-02T02:30:00.000000Z"
---
apiVersion: v1
kind: Event
metadata: {namespace: a, name: other}
involvedObject: {kind: Pod, name: other}
type: Warning
reason: Other
lastTimestamp: "2026-01-02T02:40:00Z"
`))
	f := finding{kind: "Pod", namespace: "a", name: "p", in: in}
	g.Expect(f.more(t.Context())).To(Equal([][2]string{{"event", "Failed: not found"}}))
}

func TestAnEventIsAsOldAsItsLastOccurrence(t *testing.T) {
	first, last := metav1.NewMicroTime(explainedAt.Add(-time.Hour)), metav1.NewMicroTime(explainedAt)
	for name, event := range map[string]*corev1.Event{
		"of the former kind": {LastTimestamp: metav1.NewTime(explainedAt)},
		"that came once":     {EventTime: last},
		"that came again":    {EventTime: first, Series: &corev1.EventSeries{Count: 2, LastObservedTime: last}},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(seen(event)).To(BeTemporally("==", explainedAt)) })
	}
}

func TestExplainShowsTheLogOfTheRunThatEnded(t *testing.T) {
	g := NewWithT(t)
	e := &explainer{now: func() time.Time { return explainedAt }}
	e.causes(t.Context(), explainedIn(parse(t, `
apiVersion: v1
kind: Pod
metadata: {namespace: a, name: p}
status:
  phase: Running
  containerStatuses:
  - name: manager
    ready: false
    restartCount: 1
    state: {running: {startedAt: "2026-01-02T02:59:58Z"}}
    lastState: {terminated: {exitCode: 1, reason: Error, finishedAt: "2026-01-02T02:59:57Z"}}
`)), ofPod)
	g.Expect(e.findings).To(HaveLen(1))
	g.Expect(e.findings[0].container).To(Equal("manager"))
	g.Expect(e.findings[0].previous).To(BeTrue(), "the run of now has no log yet")
}

// parse reads objects as a file has them.
func parse(t *testing.T, content string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "objects.yaml")
	g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	objects, err := cluster.Read(path)
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}

// explainedIn is a cluster with objects.
func explainedIn(objects []*unstructured.Unstructured) *explained {
	builder := fakeclient.NewClientBuilder()
	for _, o := range objects {
		builder = builder.WithObjects(o)
	}
	installation := &unstructured.Unstructured{}
	installation.SetGroupVersionKind(controllerInstallations)
	builder = builder.WithIndex(installation, "spec.seedRef.name", func(o client.Object) []string {
		seed, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "spec", "seedRef", "name")
		return []string{seed}
	})
	return &explained{client: builder.Build(), kubeconfig: "runtime"}
}
