// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

func dial(store *Store, config *tls.Config) error {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()

	go func() {
		_ = tls.Server(far, &tls.Config{GetCertificate: store.GetCertificate, MinVersion: tls.VersionTLS12}).Handshake()
		_ = far.Close()
	}()
	return tls.Client(near, config).Handshake()
}

func TestFirstStart(t *testing.T) {
	e := newEnv(t)
	store := NewStore(logr.Discard(), now)
	e.Expect(handshake(store, []byte("x"))).NotTo(Succeed())

	e.rotate()

	e.follow(store)
	e.Expect(handshake(store, e.published)).To(Succeed())
	e.Expect(store.Present()).To(BeClosed())
	e.Expect(store.Bundle()).To(Equal(e.published))
	e.Expect(e.inventory().server().cert().NotAfter).To(Equal(now.Now().Add(Validity).Truncate(time.Second)))
	e.Expect(e.secrets(caName)[0].Immutable).To(HaveValue(BeTrue()))
}

// A client may learn whom to trust, and a replica what to serve, with a delay of nearly a day. No handshake fails at any
// time in a rotation.
func TestRotationWithoutAFailingHandshake(t *testing.T) {
	const (
		step = 4 * time.Hour
		lag  = 5
	)
	e := newEnv(t)
	e.rotate()

	var (
		fast, slow = NewStore(logr.Discard(), now), NewStore(logr.Discard(), now)
		bundles    [][]byte
		snapshots  []func()
		cas        = map[string]bool{}
		phases     = map[int]bool{}
	)
	for range int(25 * day / step) {
		e.pass(step)
		cas[string(firstBlock(e.published))] = true

		list := e.inventory()
		phases[len(list.trusted(now.Now()))] = true

		// What the slow ones see is what was there five steps ago.
		bundles = append(bundles, e.published)
		var secrets []*corev1.Secret
		for _, name := range []string{caName, bundleName, serverName} {
			for _, secret := range e.secrets(name) {
				secrets = append(secrets, secret.DeepCopy())
			}
		}
		snapshots = append(snapshots, func() {
			slow.secrets = map[string]*corev1.Secret{}
			for _, secret := range secrets {
				slow.OnAdd(secret, false)
			}
		})
		e.follow(fast)
		snapshots[max(0, len(snapshots)-1-lag)]()
		slowBundle := bundles[max(0, len(bundles)-1-lag)]

		for name, store := range map[string]*Store{"fast": fast, "slow": slow} {
			e.Expect(handshake(store, e.published)).To(Succeed(), "a client that knows all, a %s server, %s", name, now.Now())
			e.Expect(handshake(store, slowBundle)).To(Succeed(), "a client that lags behind, a %s server, %s", name, now.Now())
		}
	}

	e.Expect(cas).To(HaveLen(2), "CAs in the course of 25 days")
	e.Expect(phases).To(Equal(map[int]bool{1: true, 2: true}), "one or two CAs are published at a time")
}

func firstBlock(bundle []byte) []byte {
	block, _ := pem.Decode(bundle)
	return block.Bytes
}

func TestPhasesOfARotation(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	oldCA, oldServer := e.inventory().ca().cert(), e.inventory().server().cert()

	e.pass(renewAt(oldCA).Sub(now.Now()) - time.Second)
	e.Expect(e.inventory().ca().cert().Equal(oldCA)).To(BeTrue(), "a second before it is due")
	e.Expect(e.next).To(Equal(now.Now().Add(time.Second)), "the authority asks for the moment of the renewal")
	e.Expect(e.secrets(caName)).To(HaveLen(1))

	e.pass(time.Second)
	newCA := e.inventory().ca().cert()
	e.Expect(newCA.Equal(oldCA)).To(BeFalse())
	e.Expect(e.inventory().trusted(now.Now())).To(HaveLen(2))
	e.Expect(e.inventory().server().cert().Equal(oldServer)).To(BeTrue(), "phase 1 keeps the server's certificate")

	e.pass(settle - time.Second)
	e.Expect(e.inventory().server().cert().Equal(oldServer)).To(BeTrue())
	e.pass(time.Second)
	e.Expect(e.inventory().server().cert().CheckSignatureFrom(newCA)).To(Succeed(), "phase 2 has a certificate of the new CA")
	e.Expect(e.inventory().trusted(now.Now())).To(HaveLen(2))

	e.pass(settle)
	e.Expect(e.inventory().trusted(now.Now())).To(HaveLen(1), "phase 3")
	e.Expect(e.secrets(caName)).To(HaveLen(1))
	e.Expect(e.secrets(serverName)).To(HaveLen(1))
	e.Expect(e.secrets(bundleName)).To(HaveLen(1))
}

func TestNothingIsWrittenWhenNothingIsDue(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	e.pass(3 * day)
	e.failWrite = func(verb string, secret *corev1.Secret) error {
		return errors.New("unexpected " + verb + " " + secret.Name)
	}
	e.pass(day)
}

func TestServerKeepsItsCertificateAsLongAsPublishingFails(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	oldServer := e.inventory().server().cert()
	e.pass(renewAt(e.inventory().ca().cert()).Sub(now.Now()) - time.Second)

	e.failPublish = errors.New("a shoot cannot be reached")
	now.Step(2 * time.Second)
	for range 6 {
		e.Expect(e.tryRotate()).To(MatchError(e.failPublish))
		now.Step(day)
		e.Expect(e.inventory().server().cert().Equal(oldServer)).To(BeTrue())
	}

	e.failPublish = nil
	e.rotate()
	e.Expect(e.inventory().server().cert().Equal(oldServer)).To(BeTrue(), "clients have a day from now on")
	e.pass(settle)
	e.Expect(e.inventory().switched()).To(BeTrue())
}

func TestServerGetsAnotherCertificateBeforeItsOwnEndsThoughPublishingFails(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	now.SetTime(e.inventory().server().cert().NotAfter.Add(-2 * time.Hour))
	e.failPublish = errors.New("a shoot cannot be reached")
	e.Expect(e.tryRotate()).To(MatchError(e.failPublish))
	e.Expect(e.inventory().usable(now.Now().Add(day), []string{dnsName})).To(BeTrue())
}

func TestLeaderIsAwayForAMonth(t *testing.T) {
	for name, away := range map[string]time.Duration{"shortly before all ends": 29 * day, "all has ended": 40 * day} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.rotate()
			now.Step(away)
			e.rotate()

			store := NewStore(logr.Discard(), now)
			e.follow(store)
			e.Expect(handshake(store, e.published)).To(Succeed())
			e.pass(3 * day)
			e.follow(store)
			e.Expect(handshake(store, e.published)).To(Succeed())
			e.Expect(e.secrets(caName)).To(HaveLen(1))
		})
	}
}

func TestLeaderIsAwayBetweenThePhases(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	clients := e.published
	now.SetTime(renewAt(e.inventory().ca().cert()))

	// It stops after the new CA is made, and before anybody was told.
	e.failPublish = errors.New("stopped")
	e.Expect(e.tryRotate()).To(HaveOccurred())
	now.Step(3 * day)
	e.failPublish = nil
	e.rotate()

	store := NewStore(logr.Discard(), now)
	e.follow(store)
	e.Expect(handshake(store, clients)).To(Succeed(), "clients that were not told yet")
	e.Expect(handshake(store, e.published)).To(Succeed())
}

func TestRestartHalfWay(t *testing.T) {
	for name, fails := range map[string]string{
		"the CA is made, but not its bundle":                     "create " + bundleName,
		"CA and bundle are made, but not the server's":           "create " + serverName,
		"all is made, but it is not noted that it was published": "patch " + caName,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.failWrite = func(verb string, secret *corev1.Secret) error {
				if verb+" "+secret.Labels[secretsmanager.LabelKeyName] == fails {
					return errors.New("stopped")
				}
				return nil
			}
			e.Expect(e.tryRotate()).To(MatchError(ContainSubstring("stopped")))
			before := e.inventory().ca()
			e.Expect(before).NotTo(BeNil())

			e.failWrite = nil
			e.authority = e.newAuthority(dnsName)
			e.rotate()
			e.Expect(e.inventory().ca().cert().Equal(before.cert())).To(BeTrue(), "it goes on with the CA that is there")
			e.Expect(e.inventory().usable(now.Now(), []string{dnsName})).To(BeTrue())
		})
	}
}

func TestConflictIsAnErrorAndTheNextTrySucceeds(t *testing.T) {
	e := newEnv(t)
	conflicts := 1
	e.failWrite = func(verb string, secret *corev1.Secret) error {
		if verb == "patch" && conflicts > 0 {
			conflicts--
			return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, secret.Name, errors.New("changed"))
		}
		return nil
	}
	err := e.tryRotate()
	status := &apierrors.StatusError{}
	e.Expect(errors.As(err, &status) && apierrors.IsConflict(status)).To(BeTrue(), "%v", err)
	e.rotate()
	e.Expect(e.inventory().usable(now.Now(), []string{dnsName})).To(BeTrue())
}

func TestSecretsChangedByHand(t *testing.T) {
	for name, test := range map[string]struct {
		change func(e *env)
		// keepsClients is whether clients that were told before must not notice.
		keepsClients bool
	}{
		"the CA is deleted": {keepsClients: true, change: func(e *env) {
			e.delete(&e.secrets(caName)[0])
		}},
		"the bundle is deleted": {keepsClients: true, change: func(e *env) {
			e.delete(&e.secrets(bundleName)[0])
		}},
		"the server's certificate is deleted": {keepsClients: true, change: func(e *env) {
			e.delete(&e.secrets(serverName)[0])
		}},
		"CA and bundle are deleted": {change: func(e *env) {
			e.delete(&e.secrets(caName)[0])
			e.delete(&e.secrets(bundleName)[0])
		}},
		"all are deleted": {change: func(e *env) {
			e.Expect(e.authority.Delete(e.ctx)).To(Succeed())
			e.Expect(e.secrets(caName)).To(BeEmpty())
			e.Expect(e.secrets(serverName)).To(BeEmpty())
		}},
		"the server's certificate is spoilt": {keepsClients: true, change: func(e *env) {
			e.spoil(e.secrets(serverName)[0], secretsutils.DataKeyCertificate)
		}},
		"the server's key is another one": {keepsClients: true, change: func(e *env) {
			e.spoil(e.secrets(serverName)[0], secretsutils.DataKeyPrivateKey)
		}},
		"the CA is spoilt": {keepsClients: true, change: func(e *env) {
			e.spoil(e.secrets(caName)[0], secretsutils.DataKeyCertificateCA)
		}},
		"a label is no number": {keepsClients: true, change: func(e *env) {
			secret := e.secrets(serverName)[0]
			secret.Labels[secretsmanager.LabelKeyValidUntilTime] = "soon"
			e.Expect(e.client.Update(e.ctx, &secret)).To(Succeed())
		}},
		"a label is gone": {keepsClients: true, change: func(e *env) {
			secret := e.secrets(serverName)[0]
			delete(secret.Labels, secretsmanager.LabelKeyManagedBy)
			e.Expect(e.client.Update(e.ctx, &secret)).To(Succeed())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.rotate()
			e.pass(3 * day)
			clients := e.published

			test.change(e)
			e.rotate()

			store := NewStore(logr.Discard(), now)
			e.follow(store)
			e.Expect(handshake(store, e.published)).To(Succeed())
			if test.keepsClients {
				e.Expect(handshake(store, clients)).To(Succeed(), "a client that was told before")
			}

			e.pass(3 * day)
			e.follow(store)
			e.Expect(handshake(store, e.published)).To(Succeed())
			for _, name := range []string{caName, bundleName, serverName} {
				e.Expect(e.secrets(name)).To(HaveLen(1))
			}
		})
	}
}

// spoil puts a Secret in the place of another, as it is immutable.
func (e *env) spoil(secret corev1.Secret, key string) {
	e.Helper()
	e.delete(&secret)
	secret.ResourceVersion = ""
	secret.Data[key] = []byte("spoilt")
	e.Expect(e.client.Create(e.ctx, &secret)).To(Succeed())
}

func TestAnotherServerName(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	e.pass(3 * day)
	clients := e.published

	e.authority = e.newAuthority(dnsName, "other.example")
	e.rotate()
	e.Expect(e.inventory().server().cert().VerifyHostname("other.example")).To(Succeed())

	store := NewStore(logr.Discard(), now)
	e.follow(store)
	e.Expect(handshake(store, clients)).To(Succeed())
}

func TestServerByAddress(t *testing.T) {
	e := newEnv(t)
	var err error
	e.authority, err = New(Options{Client: e.client, Clock: now, Identity: identity, Namespace: namespace, IPAddresses: []net.IP{net.IPv6loopback}})
	e.Expect(err).NotTo(HaveOccurred())
	e.rotate()
	e.Expect(e.inventory().usable(now.Now(), []string{"::1"})).To(BeTrue())
}

func TestServerWithoutANameIsRefused(t *testing.T) {
	_, err := New(Options{})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("needs a name")))
}

func TestStoreServesWhatItHasUntilThereIsAnother(t *testing.T) {
	e := newEnv(t)
	store := NewStore(logr.Discard(), now)
	_, err := store.GetCertificate(nil)
	e.Expect(err).To(MatchError(ErrNone))
	e.Expect(store.Bundle()).To(BeEmpty())
	e.Expect(store.Present()).NotTo(BeClosed())

	e.rotate()
	e.follow(store)
	clients := e.published
	for _, secret := range e.secrets(serverName) {
		store.OnDelete(&secret)
	}
	e.Expect(handshake(store, clients)).To(Succeed())
	store.OnAdd("not a Secret", false)
	e.Expect(handshake(store, clients)).To(Succeed())
}
