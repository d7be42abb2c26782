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
	store := NewStore(logr.Discard())
	e.Expect(handshake(store, []byte("x"))).NotTo(Succeed())

	e.rotate()

	e.follow(store)
	e.Expect(handshake(store, e.published)).To(Succeed())
	e.Expect(store.Ready(nil)).To(Succeed())
	e.Expect(store.Bundle()).To(Equal(e.published))
	e.Expect(e.server().NotAfter).To(Equal(now.Now().Add(Validity).Truncate(time.Second)))
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
		fast, slow = NewStore(logr.Discard()), NewStore(logr.Discard())
		bundles    [][]byte
		snapshots  []func()
		cas        = map[string]bool{}
		phases     = map[int]bool{}
	)
	for range int(25 * day / step) {
		e.pass(step)
		cas[string(firstBlock(e.published))] = true

		phases[len(e.trusted())] = true

		// What the slow ones see is what was there five steps ago.
		bundles = append(bundles, e.published)
		var secrets []*corev1.Secret
		for _, name := range []string{caName, bundleName, serverName} {
			for _, secret := range e.secrets(name) {
				secrets = append(secrets, secret.DeepCopy())
			}
		}
		snapshots = append(snapshots, func() {
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
	oldCA, oldServer := e.ca(), e.server()

	e.pass(20 * day)
	e.Expect(e.ca().Equal(oldCA)).To(BeTrue(), "not yet due")
	e.Expect(e.secrets(caName)).To(HaveLen(1))

	e.pass(time.Second)
	newCA := e.ca()
	e.Expect(newCA.Equal(oldCA)).To(BeFalse())
	e.Expect(e.trusted()).To(HaveLen(2))
	e.Expect(e.server().CheckSignatureFrom(oldCA)).To(Succeed(), "phase 1 has a certificate of the old CA")
	e.Expect(e.server().NotAfter).To(BeTemporally(">=", oldServer.NotAfter))

	e.pass(phase - 2*time.Minute) // a certificate is a minute older than it is
	e.Expect(e.server().CheckSignatureFrom(oldCA)).To(Succeed())
	e.pass(2 * time.Minute)
	e.Expect(e.server().CheckSignatureFrom(newCA)).To(Succeed(), "phase 2 has a certificate of the new CA")
	e.Expect(e.trusted()).To(HaveLen(2))

	e.pass(phase)
	e.Expect(e.trusted()).To(HaveLen(1), "phase 3")
	e.Expect(e.secrets(caName)).To(HaveLen(1))
	e.Expect(e.secrets(serverName)).To(HaveLen(1))
	e.Expect(e.secrets(bundleName)).To(HaveLen(1))
}

func TestLittleIsReadAndNothingIsWrittenWhenNothingIsDue(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	e.pass(3 * day)
	e.failWrite = func(verb string, secret *corev1.Secret) error {
		return errors.New("unexpected " + verb + " " + secret.Name)
	}
	e.pass(day)

	e.reads = 0
	e.rotate()
	e.Expect(e.reads).To(Equal(5), "two lists, and one request for each of CA, bundle and server certificate")
}

// A shoot that cannot be written to does not keep the others from a rotation, and nothing is deleted meanwhile.
func TestRotationGoesOnThoughPublishingFails(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	oldCA := e.ca()
	e.pass(20 * day)

	e.failPublish = errors.New("a shoot cannot be reached")
	now.Step(time.Second)
	e.Expect(e.tryRotate()).To(MatchError(e.failPublish))
	e.Expect(e.server().CheckSignatureFrom(oldCA)).To(Succeed(), "the others have a day to learn of the new CA")
	now.Step(phase)
	e.Expect(e.tryRotate()).To(MatchError(e.failPublish))
	e.Expect(e.server().CheckSignatureFrom(e.ca())).To(Succeed())
	e.Expect(e.secrets(caName)).To(HaveLen(2))

	e.failPublish = nil
	e.pass(phase)
	e.Expect(e.trusted()).To(HaveLen(1))
	e.Expect(e.secrets(caName)).To(HaveLen(1))
}

func TestServerGetsAnotherCertificateBeforeItsOwnEndsThoughPublishingFails(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	now.SetTime(e.server().NotAfter.Add(-2 * time.Hour))
	e.failPublish = errors.New("a shoot cannot be reached")
	e.Expect(e.tryRotate()).To(MatchError(e.failPublish))

	store := NewStore(logr.Discard())
	e.follow(store)
	now.Step(day)
	e.Expect(handshake(store, store.Bundle())).To(Succeed())
}

func TestLeaderIsAwayForAMonth(t *testing.T) {
	for name, away := range map[string]time.Duration{"shortly before all ends": 29 * day, "all has ended": 40 * day} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.rotate()
			now.Step(away)
			e.rotate()

			store := NewStore(logr.Discard())
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
	e.pass(20*day + time.Second)
	clients := e.published
	e.Expect(e.trusted()).To(HaveLen(2))

	now.Step(3 * day)
	e.rotate()
	store := NewStore(logr.Discard())
	e.follow(store)
	e.Expect(handshake(store, clients)).To(Succeed(), "clients that were told in phase 1")
	e.Expect(handshake(store, e.published)).To(Succeed())
}

func TestRestartHalfWay(t *testing.T) {
	for name, fails := range map[string]string{
		"the CA is made, but not its bundle":           "create " + bundleName,
		"CA and bundle are made, but not the server's": "create " + serverName,
		"the CA is made, but has not all labels":       "patch " + caName,
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
			before := e.ca()

			e.failWrite = nil
			e.authority = e.newAuthority(dnsName)
			e.rotate()
			e.Expect(e.ca().Equal(before)).To(BeTrue(), "it goes on with the CA that is there")
			store := NewStore(logr.Discard())
			e.follow(store)
			e.Expect(handshake(store, e.published)).To(Succeed())
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
	store := NewStore(logr.Discard())
	e.follow(store)
	e.Expect(handshake(store, e.published)).To(Succeed())
}

func TestSecretsChangedByHand(t *testing.T) {
	for name, test := range map[string]struct {
		change func(e *env)
		// keepsClients is whether clients that were told before must not notice.
		keepsClients bool
	}{
		"the CA is deleted": {change: func(e *env) {
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

			store := NewStore(logr.Discard())
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

// Secrets are immutable, so this takes somebody who deletes one and creates another.
func TestASpoiltSecretIsAnErrorUntilItIsDeleted(t *testing.T) {
	for _, spoilt := range []struct{ name, key string }{
		{caName, secretsutils.DataKeyCertificateCA}, {serverName, secretsutils.DataKeyCertificate},
	} {
		t.Run(spoilt.name, func(t *testing.T) {
			e := newEnv(t)
			e.rotate()
			store := NewStore(logr.Discard())
			e.follow(store)

			secret := &e.secrets(spoilt.name)[0]
			e.delete(secret)
			secret.ResourceVersion = ""
			secret.Data[spoilt.key] = []byte("spoilt")
			e.Expect(e.client.Create(e.ctx, secret)).To(Succeed())
			e.Expect(e.tryRotate()).To(MatchError(ContainSubstring(secret.Name)))
			e.follow(store)
			e.Expect(handshake(store, e.published)).To(Succeed(), "replicas serve what they have")

			e.delete(secret)
			now.Step(time.Second)
			e.rotate()
			e.follow(store)
			e.Expect(handshake(store, e.published)).To(Succeed())
		})
	}
}

func TestAnotherServerName(t *testing.T) {
	e := newEnv(t)
	e.rotate()
	e.pass(3 * day)
	clients := e.published

	e.authority = e.newAuthority(dnsName, "other.example")
	e.rotate()
	e.Expect(e.server().VerifyHostname("other.example")).To(Succeed())

	store := NewStore(logr.Discard())
	e.follow(store)
	e.Expect(handshake(store, clients)).To(Succeed())
}

func TestServerByAddress(t *testing.T) {
	e := newEnv(t)
	e.authority = e.newAuthority()
	e.authority.IPAddresses = []net.IP{net.IPv6loopback}
	e.rotate()
	e.Expect(e.server().VerifyHostname("::1")).To(Succeed())
}

func TestStoreServesWhatItHasUntilThereIsAnother(t *testing.T) {
	e := newEnv(t)
	store := NewStore(logr.Discard())
	_, err := store.GetCertificate(nil)
	e.Expect(err).To(MatchError(ErrNone))
	e.Expect(store.Bundle()).To(BeEmpty())
	e.Expect(store.Ready(nil)).To(MatchError(ErrNone))

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
