// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// cluster is a fake API server with a cache.
type cluster struct {
	client.WithWatch
	// sent are the requests to the API server.
	sent []string
	// cache is the API server's state as the cache has it; nil if it lags behind by nothing.
	cache client.Reader
	fail  error
	t     *testing.T
}

func newTestCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	return &cluster{t: t, WithWatch: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
}

func (c *cluster) target() Target {
	send := func(verb string, do func() error) error {
		c.sent = append(c.sent, verb)
		if c.fail != nil {
			return c.fail
		}
		return do()
	}
	live := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return send("get", func() error { return inner.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return send("list", func() error { return inner.List(ctx, list, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
			return send("delete all", func() error { return inner.DeleteAllOf(ctx, obj, opts...) })
		},
		Create: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return send("create", func() error { return inner.Create(ctx, obj, opts...) })
		},
		Apply: func(ctx context.Context, inner client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return send("apply", func() error { return inner.Apply(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return send("delete", func() error { return inner.Delete(ctx, obj, opts...) })
		},
	})
	cache := c.cache
	if cache == nil {
		cache = c.WithWatch
	}
	return Target{Client: live, Live: live, Cache: cache}
}

func configMap(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}, Data: map[string]string{"key": value}}
}

// attempts runs attempts at one operation, each of which ends with the given error.
func attempts(e *env, do func(op *Operation[infrastructureType]), end error) func() {
	infra := newInfrastructure()
	e.Expect(e.client.Create(e.ctx, infra)).To(Succeed())
	e.do = func(_ context.Context, op *Operation[infrastructureType]) error {
		do(op)
		return end
	}
	r := New(e.opts)
	return func() {
		e.read(infra)
		_, err := r.Reconcile(e.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(infra)})
		e.Expect(err).NotTo(HaveOccurred())
	}
}

func TestAnOperationAppliesAnObjectOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		unread bool
		// between happens between two attempts.
		between func(c *cluster)
		value   string
		again   []string
	}{
		"as it is":                               {value: "x"},
		"as it is, if nobody reads it":           {unread: true, value: "x"},
		"again if another value is wanted":       {value: "y", again: []string{"apply"}},
		"again if it is gone":                    {between: func(c *cluster) { must(c.Delete(context.Background(), configMap(""))) }, value: "x", again: []string{"apply"}},
		"again if another has taken its place":   {between: recreate, value: "x", again: []string{"apply"}},
		"again if the cache has not seen it yet": {between: func(c *cluster) { c.cache = newTestCluster(t) }, value: "x", again: []string{"apply"}},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, value := newEnv(t, newCluster(nil)), newTestCluster(t), "x"
			attempt := attempts(e, func(op *Operation[infrastructureType]) {
				target, obj := c.target(), configMap(value)
				target.Unread = tt.unread
				e.Expect(op.Apply(e.ctx, target, obj)).To(Succeed())
				if !tt.unread {
					e.Expect(obj.ResourceVersion).NotTo(BeEmpty(), "it has its state")
				}
			}, Waiting(errors.New("something"), time.Minute))
			attempt()
			e.Expect(c.sent).To(Equal([]string{"apply"}))

			if tt.between != nil {
				tt.between(c)
			}
			c.sent, value = nil, tt.value
			attempt()
			e.Expect(c.sent).To(Equal(tt.again))
			current := configMap("")
			e.Expect(c.Get(e.ctx, client.ObjectKeyFromObject(current), current)).To(Succeed())
			e.Expect(current.Data).To(HaveKeyWithValue("key", tt.value))
		})
	}
}

func recreate(c *cluster) {
	other := configMap("other")
	must(c.Delete(context.Background(), configMap("")))
	other.UID = "another"
	must(c.Create(context.Background(), other))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func TestEachOperationAppliesAnObject(t *testing.T) {
	infra := newInfrastructure()
	e, c := newEnv(t, newCluster(nil), infra), newTestCluster(t)
	r := New(e.opts)
	e.do = func(_ context.Context, op *Operation[infrastructureType]) error {
		return op.Apply(e.ctx, c.target().WithoutState(), configMap("x"))
	}
	for _, what := range []string{"a creation", "a reconcile", "a reconcile of what others have changed"} {
		c.sent = nil
		_, err := r.Reconcile(e.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(infra)})
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(c.sent).To(Equal([]string{"apply"}), what)
		current := configMap("")
		e.Expect(c.Get(e.ctx, client.ObjectKeyFromObject(current), current)).To(Succeed())
		e.Expect(current.Data).To(HaveKeyWithValue("key", "x"), what)

		current.Data["key"] = "changed"
		e.Expect(c.Update(e.ctx, current)).To(Succeed())
		e.read(infra)
		e.pass(time.Minute)
		e.annotate(infra, "reconcile")
	}
}

func TestAnApplyThatFailsIsSentAgain(t *testing.T) {
	e, c := newEnv(t, newCluster(nil)), newTestCluster(t)
	c.fail = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "b", errors.New("changed"))
	attempt := attempts(e, func(op *Operation[infrastructureType]) {
		err := op.Apply(e.ctx, c.target(), configMap("x"))
		if c.fail == nil {
			e.Expect(err).NotTo(HaveOccurred())
			return
		}
		e.Expect(err).To(MatchError(ContainSubstring("applying ConfigMap a/b: ")))
		e.Expect(apierrors.IsConflict(err)).To(BeTrue())
	}, Waiting(errors.New("something"), time.Minute))
	attempt()
	c.fail = nil
	attempt()
	e.Expect(c.sent).To(Equal([]string{"apply", "apply"}))
}

func TestCreateLeavesWhatIsThere(t *testing.T) {
	for name, tt := range map[string]struct {
		objects []client.Object
		lags    bool
		sent    []string
		value   string
	}{
		"nothing is there":                  {sent: []string{"create"}, value: "new"},
		"it is there":                       {objects: []client.Object{configMap("old")}, value: "old"},
		"it is there, unknown to the cache": {objects: []client.Object{configMap("old")}, lags: true, sent: []string{"create", "get"}, value: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			e, c := newEnv(t, newCluster(nil)), newTestCluster(t, tt.objects...)
			if tt.lags {
				c.cache = newTestCluster(t)
			}
			attempts(e, func(op *Operation[infrastructureType]) {
				obj := configMap("new")
				e.Expect(op.Create(e.ctx, c.target(), obj)).To(Succeed())
				e.Expect(obj.Data).To(HaveKeyWithValue("key", tt.value))
			}, nil)()
			e.Expect(c.sent).To(Equal(tt.sent))
		})
	}
}

func TestDeleteSaysWhatIsLeft(t *testing.T) {
	held := configMap("x")
	held.Finalizers = []string{"example.org/holder"}
	e, c := newEnv(t, newCluster(nil)), newTestCluster(t, held)
	// The cache has seen nothing yet, not even that there is an object.
	c.cache = newTestCluster(t)
	var left []client.Object
	attempt := attempts(e, func(op *Operation[infrastructureType]) {
		var err error
		left, err = op.Delete(e.ctx, c.target(), []client.Object{configMap("")})
		e.Expect(err).NotTo(HaveOccurred())
	}, Waiting(errors.New("something"), time.Minute))

	attempt()
	e.Expect(left).To(HaveLen(1))
	e.Expect(c.sent).To(Equal([]string{"delete", "get"}), "it is there, whatever the cache says")

	c.cache, c.sent = nil, nil
	attempt()
	e.Expect(left).To(HaveLen(1))
	e.Expect(c.sent).To(BeEmpty(), "the cache has it")

	e.Expect(c.Get(e.ctx, client.ObjectKeyFromObject(held), held)).To(Succeed())
	held.Finalizers = nil
	e.Expect(c.Update(e.ctx, held)).To(Succeed())
	attempt()
	e.Expect(left).To(BeEmpty())
	e.Expect(c.sent).To(Equal([]string{"get"}))
	attempt()
	e.Expect(left).To(BeEmpty())
	e.Expect(c.sent).To(Equal([]string{"get"}), "it is known to be gone")
}

func TestWhatComesBackDuringADeletionIsDeletedAgain(t *testing.T) {
	held := configMap("x")
	held.Finalizers = []string{"example.org/holder"}
	e, c := newEnv(t, newCluster(nil)), newTestCluster(t, held)
	var left []client.Object
	attempt := attempts(e, func(op *Operation[infrastructureType]) {
		var err error
		left, err = op.Delete(e.ctx, c.target(), []client.Object{configMap("")})
		e.Expect(err).NotTo(HaveOccurred())
	}, Waiting(errors.New("something"), time.Minute))
	attempt()
	e.Expect(left).To(HaveLen(1))

	e.Expect(c.Get(e.ctx, client.ObjectKeyFromObject(held), held)).To(Succeed())
	held.Finalizers = nil
	e.Expect(c.Update(e.ctx, held)).To(Succeed())
	e.Expect(c.Create(e.ctx, configMap("y"))).To(Succeed())
	attempt()
	e.Expect(left).To(BeEmpty())
	e.Expect(apierrors.IsNotFound(c.Get(e.ctx, client.ObjectKeyFromObject(held), held))).To(BeTrue())
}

func TestDeleteAllTakesOneRequestHoweverManyThereAre(t *testing.T) {
	named := func(namespace, name, label string, finalizers ...string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"of": label}, Finalizers: finalizers,
		}}
	}
	const holder = "example.org/holder"
	for name, tt := range map[string]struct {
		target func(*cluster) Target
		// sent are the requests of the first attempt, again those of the second, and end those after the finalizers are gone.
		sent, again, end []string
		left             int
	}{
		"with a cache": {
			target: (*cluster).target, sent: []string{"delete all"}, left: 3,
		},
		"without a cache": {
			target: func(c *cluster) Target {
				t := c.target()
				t.Cache = nil
				return t
			},
			// What has no finalizer is gone.
			sent: []string{"list", "delete all"}, again: []string{"list"}, end: []string{"list"}, left: 2,
		},
		"with a cache that has seen nothing yet": {
			target: func(c *cluster) Target {
				t := c.target()
				t.Cache = newTestCluster(c.t)
				return t
			},
			sent: []string{"list", "delete all"}, again: []string{"list"}, end: []string{"list"}, left: 3,
		},
		"if nobody wants to know the rest": {
			target: func(c *cluster) Target { return c.target().WithoutState() },
			sent:   []string{"delete all"}, again: []string{"delete all"}, end: []string{"delete all"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, newCluster(nil))
			c := newTestCluster(t, named("a", "1", "us"), named("a", "2", "us", holder), named("a", "3", "us", holder), named("a", "4", "others"), named("b", "5", "us"))
			var left []client.Object
			attempt := attempts(e, func(op *Operation[infrastructureType]) {
				var err error
				left, err = op.DeleteAll(e.ctx, tt.target(c), &corev1.ConfigMapList{}, "a", client.MatchingLabels{"of": "us"})
				e.Expect(err).NotTo(HaveOccurred())
			}, Waiting(errors.New("something"), time.Minute))

			attempt()
			e.Expect(left).To(HaveLen(tt.left))
			e.Expect(c.sent).To(Equal(tt.sent))
			c.sent = nil
			attempt()
			e.Expect(c.sent).To(Equal(tt.again), "they are being deleted")

			c.sent = nil
			for _, name := range []string{"2", "3"} {
				e.Expect(c.Patch(e.ctx, named("a", name, ""), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
			}
			attempt()
			e.Expect(left).To(BeEmpty())
			e.Expect(c.sent).To(Equal(tt.end))
			list := &corev1.ConfigMapList{}
			e.Expect(c.List(e.ctx, list)).To(Succeed())
			e.Expect(list.Items).To(ConsistOf(HaveField("Name", "4"), HaveField("Name", "5")))
		})
	}
}

func TestDeleteAllDeletesWhatIsNewAndNothingTwice(t *testing.T) {
	e, c := newEnv(t, newCluster(nil)), newTestCluster(t)
	// The cache does not show yet that something is being deleted.
	cached := newTestCluster(t)
	e.Expect(cached.Create(e.ctx, configMap("x"))).To(Succeed())
	c.cache = cached
	attempt := attempts(e, func(op *Operation[infrastructureType]) {
		left, err := op.DeleteAll(e.ctx, c.target(), &corev1.ConfigMapList{}, "a", nil)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(left).To(HaveLen(1))
	}, Waiting(errors.New("something"), time.Minute))
	attempt()
	attempt()
	e.Expect(c.sent).To(Equal([]string{"delete all"}))

	recreate(cached)
	attempt()
	e.Expect(c.sent).To(Equal([]string{"delete all", "delete all"}))
}

func TestReleaseTakesAllFinalizersOff(t *testing.T) {
	held := configMap("x")
	held.Finalizers = []string{"example.org/holder"}
	e, c := newEnv(t, newCluster(nil)), newTestCluster(t, held)
	e.Expect(c.Delete(e.ctx, configMap(""))).To(Succeed())
	attempt := attempts(e, func(op *Operation[infrastructureType]) {
		e.Expect(op.Release(e.ctx, c.target(), configMap(""))).To(Succeed())
	}, nil)
	attempt()
	e.Expect(apierrors.IsNotFound(c.Get(e.ctx, client.ObjectKeyFromObject(held), held))).To(BeTrue())

	e.Expect((&Operation[infrastructureType]{}).Release(e.ctx, c.target(), configMap(""))).To(Succeed(), "there is none any more")
}
