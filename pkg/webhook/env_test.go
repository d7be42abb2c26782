// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/rsa"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/flowcontrol"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
)

const (
	name           = "gardener-extension-provider-local-seed"
	namespace      = "extension-provider-local-abcde"
	shootNamespace = "shoot--local--one"
	day            = 24 * time.Hour
)

// now is the time of all tests in this package: the certificates of Gardener take it from a variable.
var now = testclock.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(30 * time.Second)
	logf.SetLogger(logr.Discard())
	secretsutils.Clock = now
	// Keys of the real size take most of the time of a test.
	secretsutils.GenerateKey = func(random io.Reader, _ int) (*rsa.PrivateKey, error) { return rsa.GenerateKey(random, 1024) }
	os.Exit(m.Run())
}

// env is a fake seed with a leader in it.
type env struct {
	*testing.T
	*WithT
	ctx       context.Context
	client    client.WithWatch
	options   Options
	registrar *registrar
	store     *certificate.Store

	lock sync.Mutex
	fail func(verb string, obj client.Object) error
}

// failing has requests "VERB" on objects fail as f says.
func (e *env) failing(f func(verb string, obj client.Object) error) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.fail = f
}

func (e *env) check(verb string, obj client.Object) error {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.fail == nil {
		return nil
	}
	return e.fail(verb, obj)
}

func newEnv(t *testing.T, webhooks ...*extensionswebhook.Webhook) *env {
	t.Helper()
	e := &env{T: t, WithT: NewWithT(t), ctx: t.Context()}
	scheme := runtime.NewScheme()
	e.Expect(kubernetesscheme.AddToScheme(scheme)).To(Succeed())
	e.Expect(resourcesv1alpha1.AddToScheme(scheme)).To(Succeed())

	e.client = fakeclient.NewClientBuilder().
		WithScheme(scheme).
		WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: "uid"}}).
		WithIndex(&resourcesv1alpha1.ManagedResource{}, metav1.ObjectNameField, func(obj client.Object) []string { return []string{obj.GetName()} }).
		WithInterceptorFuncs(e.interceptor()).
		Build()

	e.options = Options{
		Webhooks:             webhooks,
		Name:                 name,
		Namespace:            namespace,
		OwnerNamespace:       "owner",
		ServicePort:          443,
		CertificateNamespace: namespace,
		Identity:             name + "-webhooks",
		Resources:            resources.New(e.client),
		Log:                  logr.Discard(),
	}
	e.restart()
	return e
}

func (e *env) interceptor() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := e.check("get", obj); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			obj.SetCreationTimestamp(metav1.NewTime(now.Now().Truncate(time.Second)))
			if err := e.check("create", obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := e.check("patch", obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := e.check("delete", obj); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
	}
}

// restart makes a new leader, with the options there are.
func (e *env) restart() {
	e.Helper()
	var err error
	e.registrar, err = newRegistrar(e.client, e.client, e.options)
	e.Expect(err).NotTo(HaveOccurred())
	e.registrar.limiter = flowcontrol.NewFakeAlwaysRateLimiter()
	e.store = e.registrar.store
}

// round has the leader do what it does at one time, and the replica follow.
func (e *env) round() {
	e.Helper()
	e.Expect(e.tryRound()).To(Succeed())
	e.follow()
}

func (e *env) tryRound() error {
	_, err := e.registrar.Reconcile(e.ctx, reconcile.Request{})
	return err
}

// follow makes the store what an informer would make it.
func (e *env) follow() {
	e.Helper()
	list := &corev1.SecretList{}
	e.Expect(e.client.List(e.ctx, list, client.InNamespace(namespace))).To(Succeed())
	for i := range list.Items {
		e.store.OnAdd(&list.Items[i], false)
	}
}

// rotate goes through a rotation of the CA until the old one is gone.
func (e *env) rotate() {
	e.Helper()
	for _, step := range []time.Duration{20*day + time.Minute, day, day} {
		now.Step(step)
		e.round()
	}
}

func (e *env) seedConfig() *admissionregistrationv1.MutatingWebhookConfiguration {
	e.Helper()
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	e.Expect(e.client.Get(e.ctx, client.ObjectKey{Name: name}, config)).To(Succeed())
	return config
}

// shootConfig is what GRM would apply to a shoot, nil if there is nothing.
func (e *env) shootConfig(shoot string) *admissionregistrationv1.MutatingWebhookConfiguration {
	e.Helper()
	mr := &resourcesv1alpha1.ManagedResource{}
	if err := e.client.Get(e.ctx, client.ObjectKey{Namespace: shoot, Name: ManagedResourceName}, mr); client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	e.Expect(mr.Spec.SecretRefs).To(HaveLen(1))
	secret := &corev1.Secret{}
	e.Expect(e.client.Get(e.ctx, client.ObjectKey{Namespace: shoot, Name: mr.Spec.SecretRefs[0].Name}, secret)).To(Succeed())
	e.Expect(secret.Data).To(HaveKey("data.yaml.br"))
	objects, err := managedresources.ExtractObjectsFromSecret(yaml.NewDecodingSerializer(unstructured.UnstructuredJSONScheme), secret)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(objects).To(HaveLen(1))

	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(objects[0])
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(content, config)).To(Succeed())
	return config
}

func seedWebhook(mutate ...func(*extensionswebhook.Webhook)) *extensionswebhook.Webhook {
	webhook := &extensionswebhook.Webhook{
		Name:           "pods",
		Path:           "pods",
		Target:         extensionswebhook.TargetSeed,
		Types:          []extensionswebhook.Type{{Obj: &corev1.Pod{}}},
		Webhook:        &admission.Webhook{Handler: note("pods")},
		FailurePolicy:  new(admissionregistrationv1.Ignore),
		TimeoutSeconds: new(int32(5)),
	}
	for _, f := range mutate {
		f(webhook)
	}
	return webhook
}

func shootWebhook(mutate ...func(*extensionswebhook.Webhook)) *extensionswebhook.Webhook {
	webhook := &extensionswebhook.Webhook{
		Name:    "nodes",
		Path:    "shoot-nodes",
		Target:  extensionswebhook.TargetShoot,
		Types:   []extensionswebhook.Type{{Obj: &corev1.Node{}, Subresource: new("status")}},
		Webhook: &admission.Webhook{Handler: note("nodes")},
	}
	for _, f := range mutate {
		f(webhook)
	}
	return webhook
}

// note answers with the name of the webhook and the namespace of the shoot.
func note(webhook string) admission.HandlerFunc {
	return func(ctx context.Context, _ admission.Request) admission.Response {
		return admission.Allowed(webhook + " for " + ShootNamespace(ctx))
	}
}

func failing(webhook *extensionswebhook.Webhook) {
	webhook.FailurePolicy = new(admissionregistrationv1.Fail)
}

func ofTypes(objects ...client.Object) func(*extensionswebhook.Webhook) {
	return func(webhook *extensionswebhook.Webhook) {
		webhook.Types = nil
		for _, obj := range objects {
			webhook.Types = append(webhook.Types, extensionswebhook.Type{Obj: obj})
		}
	}
}
