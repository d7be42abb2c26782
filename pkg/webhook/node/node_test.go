// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/node"
)

const shootNamespace = "shoot--local--foo"

func defaultCapacity() configv1alpha1.NodeCapacity {
	return configv1alpha1.NodeCapacity{CPU: new(resource.MustParse("100")), Memory: new(resource.MustParse("100Gi"))}
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	return scheme
}

// fakeManager is what the package needs of a manager.
type fakeManager struct {
	manager.Manager
	client client.Client
}

func (m fakeManager) GetClient() client.Client { return m.client }

// environment is the webhooks on a cluster in which reads can fail and are counted.
type environment struct {
	client  client.Client
	shoot   *admission.Webhook
	seed    *admission.Webhook
	reads   int
	failing error
}

func newEnvironment(t testing.TB, objects ...client.Object) *environment {
	t.Helper()
	e := &environment{}
	e.client = fakeclient.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			e.reads++
			if e.failing != nil {
				return e.failing
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()

	webhooks := node.New(fakeManager{client: e.client}, node.Options{Capacity: defaultCapacity(), GPUResourceName: "nvidia.com/gpu"})
	for _, w := range webhooks {
		switch w.Target {
		case extensionswebhook.TargetSeed:
			e.seed = w.Webhook
		case extensionswebhook.TargetShoot:
			e.shoot = w.Webhook
		}
	}
	return e
}

// ask sends a Node to the webhook of the shoot, and returns how its patch changes it, by path.
func (e *environment) ask(t testing.TB, raw string) map[string]any {
	t.Helper()
	return changes(t, e.shoot.Handle(webhook.WithShootNamespace(t.Context(), shootNamespace), statusUpdate(raw)))
}

func statusUpdate(raw string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Update, SubResource: "status",
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "nodes"},
		Object:   runtime.RawExtension{Raw: []byte(raw)},
	}}
}

func changes(t testing.TB, response admission.Response) map[string]any {
	t.Helper()
	NewWithT(t).Expect(response.Allowed).To(BeTrue())
	if response.Patch == nil {
		return nil
	}
	var operations []struct {
		Op, Path string
		Value    any
	}
	NewWithT(t).Expect(json.Unmarshal(response.Patch, &operations)).To(Succeed())
	result := map[string]any{}
	for _, operation := range operations {
		NewWithT(t).Expect(operation.Op).To(BeElementOf("add", "replace"))
		result[operation.Path] = operation.Value
	}
	return result
}

// nodeOf is a Node of a worker pool, as an API server sends it.
func nodeOf(pool, capacity, allocatable string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"machine","labels":{"worker.gardener.cloud/pool":%q}},`+
		`"status":{"capacity":%s,"allocatable":%s,"nodeInfo":{"kubeletVersion":"v1.36.3"}}}`, pool, capacity, allocatable)
}

// shootCluster has worker pools small and huge, and one of a machine type that the CloudProfile doesn't have.
func shootCluster(t testing.TB, smallCPU string) *extensionsv1alpha1.Cluster {
	t.Helper()
	gardencore := gardencorev1beta1.SchemeGroupVersion.String()
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: shootNamespace},
		Spec: extensionsv1alpha1.ClusterSpec{
			CloudProfile: raw(t, &gardencorev1beta1.CloudProfile{
				TypeMeta: metav1.TypeMeta{APIVersion: gardencore, Kind: "CloudProfile"},
				Spec: gardencorev1beta1.CloudProfileSpec{MachineTypes: []gardencorev1beta1.MachineType{
					{Name: "local", CPU: resource.MustParse(smallCPU), Memory: resource.MustParse("8Gi")},
					{Name: "accelerated", CPU: resource.MustParse("4"), Memory: resource.MustParse("8Gi"), GPU: resource.MustParse("2"), Storage: &gardencorev1beta1.MachineTypeStorage{StorageSize: new(resource.MustParse("20Gi"))}},
					{Name: "huge", CPU: resource.MustParse("1k"), Memory: resource.MustParse("1Ti")},
					{Name: "memory-only", Memory: resource.MustParse("2Gi")},
				}},
			}),
			Shoot: raw(t, &gardencorev1beta1.Shoot{
				TypeMeta: metav1.TypeMeta{APIVersion: gardencore, Kind: "Shoot"},
				Spec: gardencorev1beta1.ShootSpec{Provider: gardencorev1beta1.Provider{Workers: []gardencorev1beta1.Worker{
					{Name: "small", Machine: gardencorev1beta1.Machine{Type: "local"}},
					{Name: "large", Machine: gardencorev1beta1.Machine{Type: "huge"}},
					{Name: "half", Machine: gardencorev1beta1.Machine{Type: "memory-only"}},
					{Name: "gpus", Machine: gardencorev1beta1.Machine{Type: "accelerated"}},
					{Name: "volume", Machine: gardencorev1beta1.Machine{Type: "accelerated"}, Volume: &gardencorev1beta1.Volume{VolumeSize: "30Gi"}},
					{Name: "strange", Machine: gardencorev1beta1.Machine{Type: "nobody-knows"}},
					{Name: "strange-volume", Machine: gardencorev1beta1.Machine{Type: "nobody-knows"}, Volume: &gardencorev1beta1.Volume{VolumeSize: "30Gi"}},
				}}},
			}),
		},
	}
}

func raw(t testing.TB, obj any) runtime.RawExtension {
	t.Helper()
	data, err := json.Marshal(obj)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return runtime.RawExtension{Raw: data}
}

const (
	// The kubelet has reserved 80m and 1Gi.
	measured    = `{"cpu":"8","memory":"16Gi","pods":"110","ephemeral-storage":"50Gi"}`
	allocatable = `{"cpu":"7920m","memory":"15Gi","pods":"110","ephemeral-storage":"49Gi"}`
)

func smallChanges() map[string]any {
	return map[string]any{
		"/status/capacity/cpu": "4", "/status/capacity/memory": "8Gi",
		"/status/allocatable/cpu": "3920m", "/status/allocatable/memory": "7Gi",
	}
}

// withMore adds GPUs and ephemeral storage.
func withMore(changes map[string]any, gpus, storage, allocatable string) map[string]any {
	for _, list := range []string{"capacity", "allocatable"} {
		changes["/status/"+list+"/nvidia.com~1gpu"] = gpus
	}
	changes["/status/capacity/ephemeral-storage"], changes["/status/allocatable/ephemeral-storage"] = storage, allocatable
	return changes
}

func defaultChanges() map[string]any {
	return map[string]any{
		"/status/capacity/cpu": "100", "/status/capacity/memory": "100Gi",
		"/status/allocatable/cpu": "99920m", "/status/allocatable/memory": "99Gi",
	}
}

func TestNewMakesOneWebhookForTheSeedAndOneForShoots(t *testing.T) {
	g := NewWithT(t)
	webhooks := node.New(fakeManager{}, node.Options{Capacity: defaultCapacity()})
	g.Expect(webhooks).To(HaveLen(2))

	for i, want := range []struct{ name, target string }{{"node-seed", "seed"}, {"node-shoot", "shoot"}} {
		w := webhooks[i]
		g.Expect(w.Name).To(Equal(want.name))
		g.Expect(w.Path).To(Equal(want.name))
		g.Expect(w.Target).To(Equal(want.target))
		g.Expect(w.Action).To(Equal("mutating"))
		g.Expect(*w.FailurePolicy).To(Equal(admissionregistrationv1.Ignore), "Nodes must become Ready without it")
		g.Expect(*w.TimeoutSeconds).To(BeNumerically("<=", 5))
		g.Expect(*w.Webhook.RecoverPanic).To(BeTrue())
		g.Expect(w.Types).To(ConsistOf(
			extensionswebhook.Type{Obj: &corev1.Node{}},
			extensionswebhook.Type{Obj: &corev1.Node{}, Subresource: new("status")},
		))
	}
}

func TestNodesOfTheSeedHaveTheDefault(t *testing.T) {
	// The pool is one of the seed's own shoot, if it is a managed seed.
	e := newEnvironment(t, shootCluster(t, "4"))
	response := e.seed.Handle(t.Context(), statusUpdate(nodeOf("small", measured, allocatable)))

	g := NewWithT(t)
	g.Expect(changes(t, response)).To(Equal(defaultChanges()))
	g.Expect(e.reads).To(BeZero(), "nothing needs to be read")
}

func TestNodesOfAShootHaveWhatTheirMachineTypeSays(t *testing.T) {
	for name, test := range map[string]struct {
		pool string
		want map[string]any
	}{
		"a machine that is smaller than the host": {"small", smallChanges()},
		"a machine that is larger than the host": {"large", map[string]any{
			"/status/capacity/cpu": "1k", "/status/capacity/memory": "1Ti", "/status/allocatable/cpu": "999920m", "/status/allocatable/memory": "1023Gi",
		}},
		"a machine type without CPUs has the default of them": {"half", map[string]any{
			"/status/capacity/cpu": "100", "/status/capacity/memory": "2Gi", "/status/allocatable/cpu": "99920m", "/status/allocatable/memory": "1Gi",
		}},
		"a machine with GPUs and storage":                         {"gpus", withMore(smallChanges(), "2", "20Gi", "19Gi")},
		"a machine whose pool has a volume, which is what counts": {"volume", withMore(smallChanges(), "2", "30Gi", "29Gi")},
		"a machine type that the CloudProfile does not have":      {"strange", defaultChanges()},
		"such a machine type in a pool with a volume":             {"strange-volume", defaultChanges()},
		"a worker pool that the shoot does not have any more":     {"gone", defaultChanges()},
		"a Node that belongs to no worker pool":                   {"", defaultChanges()},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnvironment(t, shootCluster(t, "4"))
			NewWithT(t).Expect(e.ask(t, nodeOf(test.pool, measured, allocatable))).To(Equal(test.want))
		})
	}
}

func TestANodeKeepsWhatItsOwnMachineTypeSaysWhenThePoolHasAnother(t *testing.T) {
	for name, test := range map[string]struct {
		pool, machineType string
		want              map[string]any
	}{
		"a machine of the pool's type":                                  {"large", "huge", map[string]any{"/status/capacity/cpu": "1k", "/status/capacity/memory": "1Ti", "/status/allocatable/cpu": "999920m", "/status/allocatable/memory": "1023Gi"}},
		"a machine that is yet to be replaced by a larger one":          {"large", "local", smallChanges()},
		"a machine whose pool has a volume":                             {"volume", "local", map[string]any{"/status/capacity/cpu": "4", "/status/capacity/memory": "8Gi", "/status/allocatable/cpu": "3920m", "/status/allocatable/memory": "7Gi", "/status/capacity/ephemeral-storage": "30Gi", "/status/allocatable/ephemeral-storage": "29Gi"}},
		"a machine whose pool is gone":                                  {"gone", "local", smallChanges()},
		"a machine whose type is gone has what the pool's type has":     {"small", "gone", smallChanges()},
		"a machine whose type and pool are gone has the default of all": {"gone", "gone", defaultChanges()},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnvironment(t, shootCluster(t, "4"))
			node := strings.Replace(nodeOf(test.pool, measured, allocatable), `"labels":{`, `"labels":{"node.kubernetes.io/instance-type":"`+test.machineType+`",`, 1)
			for range 2 {
				NewWithT(t).Expect(e.ask(t, node)).To(Equal(test.want))
			}
		})
	}
}

func TestGPUsHaveTheNameThatIsConfigured(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, shootCluster(t, "4"))
	webhooks := node.New(fakeManager{client: e.client}, node.Options{Capacity: defaultCapacity(), GPUResourceName: "example.org/gpu"})
	e.shoot = webhooks[1].Webhook
	g.Expect(e.ask(t, nodeOf("gpus", measured, allocatable))).To(HaveKeyWithValue("/status/capacity/example.org~1gpu", "2"))
}

func TestWhatTheKubeletReserved(t *testing.T) {
	for name, test := range map[string]struct {
		capacity, allocatable string
		want                  map[string]any
	}{
		"is left out if it does not fit": {
			`{"cpu":"64","memory":"128Gi"}`, `{"cpu":"60","memory":"100Gi"}`,
			map[string]any{"/status/capacity/cpu": "4", "/status/capacity/memory": "8Gi", "/status/allocatable/cpu": "4", "/status/allocatable/memory": "8Gi"},
		},
		"is nothing if more is allocatable than there is": {
			`{"cpu":"2","memory":"2Gi"}`, `{"cpu":"3","memory":"3Gi"}`,
			map[string]any{"/status/capacity/cpu": "4", "/status/capacity/memory": "8Gi", "/status/allocatable/cpu": "4", "/status/allocatable/memory": "8Gi"},
		},
		"is nothing if the kubelet has not measured yet": {
			`{}`, `{}`,
			map[string]any{"/status/capacity": map[string]any{"cpu": "4", "memory": "8Gi"}, "/status/allocatable": map[string]any{"cpu": "4", "memory": "8Gi"}},
		},
		"is nothing if it does not say what is allocatable": {
			`{"cpu":"4","memory":"8Gi"}`, `null`,
			map[string]any{"/status/allocatable": map[string]any{"cpu": "4", "memory": "8Gi"}},
		},
		"is nothing if it is no quantity": {
			`{"cpu":"many","memory":"16Gi"}`, `{"cpu":"7920m","memory":"15Gi"}`,
			map[string]any{"/status/capacity/cpu": "4", "/status/capacity/memory": "8Gi", "/status/allocatable/cpu": "4", "/status/allocatable/memory": "7Gi"},
		},
		"is nothing if its exponent is no small one": {
			`{"cpu":"1e30000000","memory":"16Gi","pods":"1e-30000000"}`, `{"cpu":1,"memory":1e-2000000000}`,
			map[string]any{"/status/capacity/cpu": "4", "/status/capacity/memory": "8Gi", "/status/allocatable/cpu": "4", "/status/allocatable/memory": "8Gi"},
		},
		"is nothing if it is too long": {
			`{"cpu":"8` + strings.Repeat("0", 1<<20) + `","memory":"16Gi"}`, `{"cpu":"8","memory":"15Gi"}`,
			map[string]any{"/status/capacity/cpu": "4", "/status/capacity/memory": "8Gi", "/status/allocatable/cpu": "4", "/status/allocatable/memory": "7Gi"},
		},
		"is told by numbers as well as by strings": {`{"cpu":8,"memory":17179869184}`, `{"cpu":"7920m","memory":16106127360}`, smallChanges()},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := newEnvironment(t, shootCluster(t, "4")).ask(t, nodeOf("small", test.capacity, test.allocatable))
			for path, value := range got {
				if quantity, ok := value.(string); ok {
					g.Expect(resource.MustParse(quantity)).To(BeComparableTo(resource.MustParse(fmt.Sprint(test.want[path]))), path)
					continue
				}
				g.Expect(value).To(Equal(test.want[path]), path)
			}
			g.Expect(got).To(HaveLen(len(test.want)))
		})
	}
}

func TestANodeThatIsAsItShouldBeIsNotPatched(t *testing.T) {
	e := newEnvironment(t, shootCluster(t, "4"))
	for name, raw := range map[string]string{
		"written as the webhook does":   nodeOf("small", `{"cpu":"4","memory":"8Gi","pods":"110"}`, `{"cpu":"3920m","memory":"7Gi","pods":"110"}`),
		"written in another way":        nodeOf("small", `{"cpu":"4000m","memory":"8388608Ki"}`, `{"cpu":3.92,"memory":"7516192768"}`),
		"with nothing that is reserved": nodeOf("small", `{"cpu":"4","memory":"8Gi"}`, `{"cpu":"4","memory":"8Gi"}`),
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(e.ask(t, raw)).To(BeNil())
		})
	}
}

func TestOnlyRequestsThatSetTheStatusAreLookedAt(t *testing.T) {
	e := newEnvironment(t, shootCluster(t, "4"))
	for name, test := range map[string]struct {
		change func(*admission.Request)
		want   map[string]any
	}{
		"an update of the status": {func(*admission.Request) {}, smallChanges()},
		"a Node that a kubelet registers": {func(r *admission.Request) {
			r.SubResource, r.Operation = "", admissionv1.Create
		}, smallChanges()},
		"a Node that is being deleted and still reports": {func(r *admission.Request) {
			r.Object.Raw = []byte(strings.Replace(string(r.Object.Raw), `"name"`, `"deletionTimestamp":"2026-01-01T00:00:00Z","name"`, 1))
		}, smallChanges()},
		"an update of labels, whose status counts for nothing": {func(r *admission.Request) { r.SubResource = "" }, nil},
		"another subresource": {func(r *admission.Request) { r.SubResource = "proxy" }, nil},
		"the end of a Node": {func(r *admission.Request) {
			r.SubResource, r.Operation, r.Object.Raw = "", admissionv1.Delete, nil
		}, nil},
		"another kind":                  {func(r *admission.Request) { r.Resource.Resource = "pods" }, nil},
		"a Node that cannot be decoded": {func(r *admission.Request) { r.Object.Raw = []byte(`{"status":5}`) }, nil},
		"what is cut short":             {func(r *admission.Request) { r.Object.Raw = r.Object.Raw[:40] }, nil},
		"a status update without any status": {func(r *admission.Request) {
			r.Object.Raw = []byte(`{"metadata":{"labels":{"worker.gardener.cloud/pool":"small"}}}`)
		}, map[string]any{"/status": map[string]any{"capacity": map[string]any{"cpu": "4", "memory": "8Gi"}, "allocatable": map[string]any{"cpu": "4", "memory": "8Gi"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			request := statusUpdate(nodeOf("small", measured, allocatable))
			test.change(&request)
			response := e.shoot.Handle(webhook.WithShootNamespace(t.Context(), shootNamespace), request)
			if test.want == nil {
				NewWithT(t).Expect(changes(t, response)).To(BeNil())
				return
			}
			NewWithT(t).Expect(changes(t, response)).To(Equal(test.want))
		})
	}
}

func TestAShootOfWhichNothingIsKnownHasTheDefault(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"no Cluster":                       nil,
		"a Cluster without anything in it": {&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: shootNamespace}}},
		"a Cluster that cannot be decoded": {&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: shootNamespace},
			Spec: extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: []byte(`{"apiVersion":"example.org/v1","kind":"Shoot"}`)}}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnvironment(t, objects...)
			for range 2 {
				NewWithT(t).Expect(e.ask(t, nodeOf("small", measured, allocatable))).To(Equal(defaultChanges()))
			}
		})
	}

	t.Run("a webhook that panics", func(t *testing.T) {
		webhooks := node.New(fakeManager{}, node.Options{Capacity: defaultCapacity()})

		response := webhooks[1].Webhook.Handle(webhook.WithShootNamespace(t.Context(), shootNamespace), statusUpdate(nodeOf("small", measured, allocatable)))
		NewWithT(t).Expect(changes(t, response)).To(BeNil(), "there is no client to read with")
	})
}

func TestAClusterIsDecodedOncePerVersion(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, shootCluster(t, "4"))
	request := nodeOf("small", measured, allocatable)

	g.Expect(e.ask(t, request)).To(Equal(smallChanges()))
	g.Expect(e.reads).To(Equal(2), "one for the version, one to decode")
	for range 3 {
		g.Expect(e.ask(t, request)).To(Equal(smallChanges()))
	}
	g.Expect(e.reads).To(Equal(5), "only for the version")

	// The user takes another machine type, or the type gets more CPUs.
	cluster := &extensionsv1alpha1.Cluster{}
	g.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: shootNamespace}, cluster)).To(Succeed())
	cluster.Spec = shootCluster(t, "6").Spec
	g.Expect(e.client.Update(t.Context(), cluster)).To(Succeed())
	g.Expect(e.ask(t, request)).To(HaveKeyWithValue("/status/capacity/cpu", "6"))

	// What is known stays as long as nothing else is: neither a broken Cluster nor a read that fails make a machine grow.
	e.failing = errors.New("the cache has not started")
	g.Expect(e.ask(t, request)).To(HaveKeyWithValue("/status/capacity/cpu", "6"))
	e.failing = nil
	cluster.Spec.Shoot.Raw = []byte(`{"apiVersion":"example.org/v1","kind":"Shoot"}`)
	g.Expect(e.client.Update(t.Context(), cluster)).To(Succeed())
	before := e.reads
	for range 3 {
		g.Expect(e.ask(t, request)).To(HaveKeyWithValue("/status/capacity/cpu", "6"))
	}
	g.Expect(e.reads-before).To(Equal(4), "it is tried once")

	// A shoot of the same name may come again.
	g.Expect(e.client.Delete(t.Context(), cluster)).To(Succeed())
	g.Expect(e.ask(t, request)).To(Equal(defaultChanges()))
}

// BenchmarkHandle is what a heartbeat of a Node costs in this process, without HTTP and TLS. The Node has the 50 images
// that a kubelet reports at most, the Cluster is as large as one of Gardener's local setup.
func BenchmarkHandle(b *testing.B) {
	images := make([]string, 50)
	for i := range images {
		images[i] = fmt.Sprintf(`{"names":["registry.example.org/some/component/with-a-name-%d@sha256:%064d","registry.example.org/some/component/with-a-name-%d:v1.2.3"],"sizeBytes":123456789}`, i, i, i)
	}
	heartbeat := strings.Replace(nodeOf("small", measured, allocatable), `"nodeInfo"`, `"images":[`+strings.Join(images, ",")+`],"nodeInfo"`, 1)

	cluster := shootCluster(b, "4")
	padded := &gardencorev1beta1.CloudProfile{}
	if err := json.Unmarshal(cluster.Spec.CloudProfile.Raw, padded); err != nil {
		b.Fatal(err)
	}
	for i := range 200 {
		padded.Spec.MachineTypes = append(padded.Spec.MachineTypes, gardencorev1beta1.MachineType{
			Name: fmt.Sprintf("type-%d", i), CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi"), GPU: resource.MustParse("0")})
	}
	cluster.Spec.CloudProfile = raw(b, padded)

	run := func(b *testing.B, target *admission.Webhook, ctx context.Context, before func()) {
		b.SetBytes(int64(len(heartbeat)))
		b.ReportAllocs()
		for b.Loop() {
			before()
			if response := target.Handler.Handle(ctx, statusUpdate(heartbeat)); len(response.Patches) != 4 {
				b.Fatal(response)
			}
		}
	}
	inShoot := webhook.WithShootNamespace(b.Context(), shootNamespace)

	b.Run("seed", func(b *testing.B) { run(b, newEnvironment(b).seed, b.Context(), func() {}) })
	b.Run("shoot, Cluster known", func(b *testing.B) {
		run(b, environmentWithReader(b, &stored{cluster}), inShoot, func() {})
	})
	b.Run("shoot, Cluster new each time", func(b *testing.B) {
		version := 0
		run(b, environmentWithReader(b, &stored{cluster}), inShoot, func() {
			version++
			cluster.ResourceVersion = fmt.Sprint(version)
		})
	})
}

// stored hands out a Cluster as the cache of a manager does.
type stored struct {
	cluster *extensionsv1alpha1.Cluster
}

func (s *stored) Get(_ context.Context, _ client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	cluster := s.cluster
	if options := (&client.GetOptions{}).ApplyOptions(opts); options.UnsafeDisableDeepCopy == nil {
		cluster = cluster.DeepCopy()
	}
	*obj.(*extensionsv1alpha1.Cluster) = *cluster
	return nil
}

func environmentWithReader(b *testing.B, s *stored) *admission.Webhook {
	b.Helper()
	s.cluster.ResourceVersion = "1"
	c := interceptor.NewClient(fakeclient.NewClientBuilder().WithScheme(newScheme(b)).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return s.Get(ctx, key, obj, opts...)
		},
	})
	return node.New(fakeManager{client: c}, node.Options{Capacity: defaultCapacity()})[1].Webhook
}
