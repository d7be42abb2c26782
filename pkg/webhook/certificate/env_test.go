// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

const (
	namespace = "extension-provider-local"
	identity  = "test-webhooks"
	dnsName   = "webhooks.extension-provider-local.svc"
	day       = 24 * time.Hour
)

// now is the time of all tests in this package: the certificates of Gardener take it from a variable.
var now = testclock.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))

func TestMain(m *testing.M) {
	secretsutils.Clock = now
	// Keys of the real size take most of the time of a test.
	secretsutils.GenerateKey = func(random io.Reader, _ int) (*rsa.PrivateKey, error) { return rsa.GenerateKey(random, 1024) }
	os.Exit(m.Run())
}

// env is an authority on a fake cluster.
type env struct {
	*testing.T
	*WithT
	ctx       context.Context
	client    client.WithWatch
	authority *Authority
	// published is what was published last, and next what Rotate said.
	published []byte
	next      time.Time
	// failPublish and failWrite make publishing and writing Secrets fail.
	failPublish error
	failWrite   func(verb string, secret *corev1.Secret) error
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{T: t, WithT: NewWithT(t), ctx: t.Context()}
	check := func(verb string, obj client.Object) error {
		if secret, ok := obj.(*corev1.Secret); ok && e.failWrite != nil {
			return e.failWrite(verb, secret)
		}
		return nil
	}

	e.client = fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			obj.SetCreationTimestamp(metav1.NewTime(now.Now().Truncate(time.Second)))
			if err := check("create", obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := check("patch", obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	e.authority = e.newAuthority(dnsName)
	return e
}

func (e *env) newAuthority(dnsNames ...string) *Authority {
	e.Helper()
	authority, err := New(Options{Client: e.client, Clock: now, Log: logr.Discard(), Identity: identity, Namespace: namespace, DNSNames: dnsNames})
	e.Expect(err).NotTo(HaveOccurred())
	return authority
}

func (e *env) publish(_ context.Context, bundle []byte) error {
	if e.failPublish != nil {
		return e.failPublish
	}
	e.published = bundle
	return nil
}

func (e *env) tryRotate() error {
	next, err := e.authority.Rotate(e.ctx, e.publish)
	if err == nil {
		e.next = next
	}
	return err
}

func (e *env) rotate() {
	e.Helper()
	e.Expect(e.tryRotate()).To(Succeed())
}

// pass lets time pass, with the authority being called whenever there is something to do.
func (e *env) pass(d time.Duration) {
	e.Helper()
	for end := now.Now().Add(d); now.Now().Before(end); {
		next := e.inventory().nextStep(now.Now())
		e.Expect(e.next).To(Equal(wakeUp(now.Now(), next)))
		if next.After(end) {
			next = end
		}
		now.SetTime(next)
		e.rotate()
	}
}

func (e *env) secrets(name string) []corev1.Secret {
	e.Helper()
	list := &corev1.SecretList{}
	e.Expect(e.client.List(e.ctx, list, client.InNamespace(namespace), client.MatchingLabels{secretsmanager.LabelKeyName: name})).To(Succeed())
	return list.Items
}

func (e *env) inventory() *inventory {
	e.Helper()
	inv, err := e.authority.inventory(e.ctx)
	e.Expect(err).NotTo(HaveOccurred())
	return inv
}

func (e *env) delete(secret *corev1.Secret) {
	e.Helper()
	e.Expect(e.client.Delete(e.ctx, secret)).To(Succeed())
}

// follow makes a Store what an informer would make it.
func (e *env) follow(store *Store) {
	e.Helper()
	list := &corev1.SecretList{}
	e.Expect(e.client.List(e.ctx, list, client.InNamespace(namespace))).To(Succeed())
	gone := map[string]*corev1.Secret{}
	for name, secret := range store.secrets {
		gone[name] = secret
	}
	for i := range list.Items {
		delete(gone, list.Items[i].Name)
		store.OnUpdate(nil, &list.Items[i])
	}
	for _, secret := range gone {
		store.OnDelete(secret)
	}
}

// handshake connects a client that trusts the bundle to a server of the store.
func handshake(store *Store, bundle []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("the bundle is empty")
	}
	return dial(store, &tls.Config{RootCAs: roots, ServerName: dnsName, Time: now.Now})
}
