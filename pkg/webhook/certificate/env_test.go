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
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
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
	// published is what was published last.
	published []byte
	// failPublish and failWrite make publishing and writing Secrets fail.
	failPublish error
	failWrite   func(verb string, secret *corev1.Secret) error
	// reads counts the requests that read.
	reads int
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
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			e.reads++
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			e.reads++
			return c.List(ctx, list, opts...)
		},
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
	return &Authority{Client: e.client, Log: logr.Discard(), Identity: identity, Namespace: namespace, DNSNames: dnsNames}
}

func (e *env) publish(_ context.Context, bundle []byte) error {
	if e.failPublish != nil {
		return e.failPublish
	}
	e.published = bundle
	return nil
}

func (e *env) tryRotate() error {
	return e.authority.Rotate(e.ctx, e.publish)
}

func (e *env) rotate() {
	e.Helper()
	e.Expect(e.tryRotate()).To(Succeed())
}

// pass lets time pass, with the authority being called a few times a day.
func (e *env) pass(d time.Duration) {
	e.Helper()
	for end := now.Now().Add(d); now.Now().Before(end); {
		now.Step(min(4*Period, end.Sub(now.Now())))
		e.rotate()
	}
}

func (e *env) secrets(name string) []corev1.Secret {
	e.Helper()
	list := &corev1.SecretList{}
	e.Expect(e.client.List(e.ctx, list, client.InNamespace(namespace), client.MatchingLabels{secretsmanager.LabelKeyName: name})).To(Succeed())
	return list.Items
}

// newest returns the newest certificate of a name.
func (e *env) newest(name, key string) *x509.Certificate {
	e.Helper()
	secrets := e.secrets(name)
	e.Expect(secrets).NotTo(BeEmpty())
	newest := slices.MaxFunc(secrets, func(a, b corev1.Secret) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	certs, err := cert.ParseCertsPEM(newest.Data[key])
	e.Expect(err).NotTo(HaveOccurred())
	return certs[0]
}

func (e *env) ca() *x509.Certificate {
	e.Helper()
	return e.newest(caName, secretsutils.DataKeyCertificateCA)
}

func (e *env) server() *x509.Certificate {
	e.Helper()
	return e.newest(serverName, secretsutils.DataKeyCertificate)
}

// trusted returns what was published last.
func (e *env) trusted() []*x509.Certificate {
	e.Helper()
	certs, err := cert.ParseCertsPEM(e.published)
	e.Expect(err).NotTo(HaveOccurred())
	return certs
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
	for i := range list.Items {
		store.OnUpdate(nil, &list.Items[i])
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
