// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

func TestApplyServesEveryType(t *testing.T) {
	s := startServer(t)
	provider := newProvider(t, s.address)
	for _, r := range []dns.Record{
		record("a.example.org", "A", "192.0.2.1", "192.0.2.2"),
		record("a.example.org", "AAAA", "2001:db8::1"),
		record("alias.example.org", "CNAME", "lb.example.net"),
		record("text.example.org", "TXT", strings.Repeat("long ", 200), `say "hi" \ é`),
		record("*.ingress.example.org", "A", "192.0.2.3"),
		record("example.org", "A", "192.0.2.4"),
	} {
		t.Run(r.Type+" "+r.Name, func(t *testing.T) {
			g := NewWithT(t)
			o := newOwner(provider, r)
			g.Expect(o.apply(t)).To(Succeed())
			g.Expect(s.values(r.Name, r.Type)).To(Equal(r.Values))
			g.Expect(o.status).To(Equal(localv1alpha1.DNSRecordStatus{Provider: "rfc2136", Written: []localv1alpha1.WrittenRecord{
				{Server: s.address, Zone: testZone, Name: r.Name, Type: r.Type, Values: r.Values, TTL: 60, Mark: markOf(o.request).String()},
			}}))

			g.Expect(o.remove(t)).To(Succeed())
			g.Expect(s.values(r.Name, r.Type)).To(BeEmpty())
		})
	}
}

func TestApplyWritesOnlyWhatChanges(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(s.queries).To(Equal(4), "the name, its mark, that of the wildcard above, and the name again")
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(s.updated()).To(Equal(1))
	g.Expect(s.queries).To(Equal(5), "one question is all that it takes")

	o.request.Record.TTL = 30
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(s.updated()).To(Equal(2))
	g.Expect(s.served()).To(ConsistOf(HaveField("Hdr.Ttl", uint32(30))))
}

func TestApplyPutsRightWhatAnotherChanged(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())
	s.set(record("a.example.org", "A", "192.0.2.9"))
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(s.values("a.example.org", "A")).To(Equal([]string{"192.0.2.1"}))
}

func TestAnAnswerThatIsNotWrittenYetIsNotTakenForDone(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	s.set(record("*.example.org", "A", "192.0.2.1"))
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(s.updated()).To(Equal(1))
}

func TestApplyReplacesWhatTheOwnerHadInOneMessage(t *testing.T) {
	for _, test := range []struct {
		name          string
		before, after dns.Record
	}{
		{"other values", record("a.example.org", "A", "192.0.2.1"), record("a.example.org", "A", "192.0.2.2")},
		{"another name", record("a.example.org", "A", "192.0.2.1"), record("b.example.org", "A", "192.0.2.1")},
		{"another type", record("a.example.org", "A", "192.0.2.1"), record("a.example.org", "AAAA", "2001:db8::1")},
		{"an alias in place of an address", record("a.example.org", "A", "192.0.2.1"), record("a.example.org", "CNAME", "b.example.net")},
		{"an address in place of an alias", record("a.example.org", "CNAME", "b.example.net"), record("a.example.org", "A", "192.0.2.1")},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			s := startServer(t)
			o := newOwner(newProvider(t, s.address), test.before)
			g.Expect(o.apply(t)).To(Succeed())
			o.request.Record = test.after
			g.Expect(o.apply(t)).To(Succeed())
			g.Expect(s.updated()).To(Equal(2))
			g.Expect(s.values(test.after.Name, test.after.Type)).To(Equal(test.after.Values))
			g.Expect(s.served()).To(HaveLen(1))
			g.Expect(o.status.Written).To(HaveLen(1))
			g.Expect(o.saved[2]).To(And(HaveField("Provider", "rfc2136"), HaveField("Written", HaveLen(2))), "both are noted while it is not certain which is there")
		})
	}
}

func TestApplyLeavesAnOldNameThatAnotherHasTakenOver(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())
	s.set(record("a.example.org", "A", "192.0.2.9"))

	o.request.Record = record("b.example.org", "A", "192.0.2.1")
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(s.values("a.example.org", "A")).To(Equal([]string{"192.0.2.9"}))
	g.Expect(s.values("b.example.org", "A")).To(Equal([]string{"192.0.2.1"}))
	g.Expect(o.status.Written).To(HaveLen(1))
}

func TestARecordMovesToAnotherServer(t *testing.T) {
	g := NewWithT(t)
	first, second := startServer(t), startServer(t)
	o := newOwner(newProvider(t, first.address, allow(second)), record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())

	o.request.Config.RFC2136 = &localv1alpha1.RFC2136Config{Server: second.address}
	first.misbehave(func(w miekgdns.ResponseWriter, _ *miekgdns.Msg) bool { _ = w.Close(); return true })
	g.Expect(o.apply(t)).To(MatchError(And(ContainSubstring("is served, but not removed from where it was"), ContainSubstring(first.address))))
	g.Expect(second.values("a.example.org", "A")).To(HaveLen(1))
	g.Expect(o.status.Written).To(HaveLen(2))

	first.misbehave(nil)
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(first.values("a.example.org", "A")).To(BeEmpty())
	g.Expect(second.updated()).To(Equal(1))
	g.Expect(o.status.Written).To(ConsistOf(HaveField("Server", second.address)))
}

func TestARestartAtAnyPointLeavesNothingBehind(t *testing.T) {
	crash := errors.New("crash")
	for _, test := range []struct {
		name  string
		crash func(o *owner, s *server)
	}{
		{"before the status is written", func(o *owner, _ *server) { o.saveErr = crash }},
		{"before the message is sent", func(_ *owner, s *server) {
			s.misbehave(func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
				if m.Opcode == miekgdns.OpcodeUpdate {
					_ = w.Close()
				}
				return m.Opcode == miekgdns.OpcodeUpdate
			})
		}},
		{"before the answer has come", func(_ *owner, s *server) {
			s.misbehave(func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
				if m.Opcode == miekgdns.OpcodeUpdate {
					s.update(m)
					_ = w.Close()
				}
				return m.Opcode == miekgdns.OpcodeUpdate
			})
		}},
		{"before it is seen to resolve", func(_ *owner, s *server) {
			updated := s.updated()
			s.misbehave(func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
				if m.Opcode == miekgdns.OpcodeQuery && s.updated() > updated {
					_ = w.Close()
					return true
				}
				return false
			})
		}},
	} {
		for _, before := range []bool{false, true} {
			for _, goesOn := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, written before %t, goes on %t", test.name, before, goesOn), func(t *testing.T) {
					g := NewWithT(t)
					s := startServer(t)
					o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
					if before {
						g.Expect(o.apply(t)).To(Succeed())
						o.request.Record = record("b.example.org", "A", "192.0.2.1", "192.0.2.2")
					}
					test.crash(o, s)
					g.Expect(o.apply(t)).NotTo(Succeed())
					o.saveErr = nil
					s.misbehave(nil)
					if !before {
						o.status = localv1alpha1.DNSRecordStatus{} // The status of a first attempt is written in its end.
					}

					if goesOn {
						g.Expect(o.apply(t)).To(Succeed())
						g.Expect(s.served()).To(HaveLen(len(o.request.Record.Values)))
					}
					g.Expect(o.remove(t)).To(Succeed())
					g.Expect(s.records).To(BeEmpty())
				})
			}
		}
	}
}

func TestTheStatusDoesNotGrow(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	s.misbehave(func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
		if m.Opcode == miekgdns.OpcodeUpdate {
			_ = w.Close()
		}
		return m.Opcode == miekgdns.OpcodeUpdate
	})
	for i := range 10 {
		o.request.Record.Values = []string{fmt.Sprintf("192.0.2.%d", i)}
		g.Expect(o.apply(t)).NotTo(Succeed())
	}
	g.Expect(o.status.Written).To(HaveLen(1))
}

func TestRemoveLeavesWhatAnotherHasWritten(t *testing.T) {
	for _, test := range []struct {
		name  string
		other dns.Record
	}{
		{"other values", record("a.example.org", "A", "192.0.2.9")},
		{"more values", record("a.example.org", "A", "192.0.2.1", "192.0.2.9")},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			s := startServer(t)
			o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
			g.Expect(o.apply(t)).To(Succeed())
			s.set(test.other)
			g.Expect(o.remove(t)).To(Succeed())
			g.Expect(s.values("a.example.org", "A")).To(Equal(test.other.Values))
		})
	}
}

func TestRemoveGoesByTheStatusNotByTheSpec(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())
	o.request.Record = dns.Record{Owner: o.request.Record.Owner}
	o.request.Config.RFC2136 = &localv1alpha1.RFC2136Config{Server: "not a server"}
	g.Expect(o.remove(t)).To(Succeed())
	g.Expect(s.records).To(BeEmpty())
}

func TestRemoveWithoutAStatus(t *testing.T) {
	t.Run("goes by the spec", func(t *testing.T) {
		g := NewWithT(t)
		s := startServer(t)
		o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
		g.Expect(o.apply(t)).To(Succeed())
		o.status = localv1alpha1.DNSRecordStatus{}
		g.Expect(o.remove(t)).To(Succeed())
		g.Expect(s.records).To(BeEmpty())
		g.Expect(o.remove(t)).To(Succeed(), "nothing to remove is no error")
	})
	t.Run("is not held up by a mistake, which has kept it from being written", func(t *testing.T) {
		g := NewWithT(t)
		for _, r := range []dns.Record{record("a.example.net", "A", "192.0.2.1"), {}} {
			g.Expect(newOwner(newProvider(t, "ns.example.org"), r).remove(t)).To(Succeed())
		}
		withoutSecret := newProvider(t, "ns.example.org", func(o *Options) { o.Reader = reader(t) })
		g.Expect(newOwner(withoutSecret, record("a.example.org", "A", "192.0.2.1")).remove(t)).To(Succeed())
	})
	t.Run("waits for a server that doesn't answer", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(newOwner(newProvider(t, "127.0.0.1:1"), record("a.example.org", "A", "192.0.2.1")).remove(t)).To(MatchError(ContainSubstring("127.0.0.1:1")))
	})
}

func TestARecordWhoseSecretIsGoneIsDeletedWithItsNamespace(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "garden", Finalizers: []string{"kubernetes"}}}
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())
	c := reader(t, namespace)
	o.provider.Reader = c
	o.provider.secrets.Remove(secretRef) // as later
	err := o.remove(t)
	g.Expect(err).To(MatchError(ContainSubstring("garden/dns which spec.secretRef names does not exist: create it")), "it can be put right")
	g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))

	g.Expect(c.Delete(t.Context(), namespace)).To(Succeed())
	g.Expect(o.remove(t)).To(Succeed(), "nobody can")
	g.Expect(s.values("a.example.org", "A")).To(HaveLen(1))
}

func TestAnAliasCannotStandBesideAnythingElse(t *testing.T) {
	for _, test := range []struct {
		name           string
		theirs, ours   dns.Record
		updates, saves int
		says           string
	}{
		{"an alias where there is an address", record("a.example.org", "A", "192.0.2.9"), record("a.example.org", "CNAME", "b.example.net"), 1, 1, "it has other records of that name"},
		{"an address where there is an alias", record("a.example.org", "CNAME", "b.example.net"), record("a.example.org", "A", "192.0.2.1"), 0, 2, "the name is an alias (CNAME)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			s := startServer(t)
			s.set(test.theirs)
			test.ours.Class = "garden"
			o := newOwner(newProvider(t, s.address), test.ours)
			err := o.apply(t)
			g.Expect(err).To(MatchError(ContainSubstring(test.says)))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
			g.Expect(s.updated()).To(Equal(test.updates))
			g.Expect(o.saved).To(HaveLen(test.saves))
			g.Expect(o.remove(t)).To(Succeed())
			g.Expect(s.values(test.theirs.Name, test.theirs.Type)).To(Equal(test.theirs.Values))
		})
	}
}

func TestAWildcardAliasIsNotInTheWay(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	s.set(record("*.example.org", "CNAME", "b.example.net"))
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(s.values("a.example.org", "A")).To(Equal([]string{"192.0.2.1"}))
	g.Expect(o.remove(t)).To(Succeed())
	g.Expect(s.values("*.example.org", "CNAME")).To(HaveLen(1))
}

func TestTheSourceOfAMigrationLeavesWhatTheDestinationServes(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	source := newOwner(newProvider(t, s.address), record("api.example.org", "A", "192.0.2.1"))
	destination := newOwner(newProvider(t, s.address), record("api.example.org", "A", "192.0.2.2"))
	g.Expect(source.apply(t)).To(Succeed())
	g.Expect(destination.apply(t)).To(Succeed())
	g.Expect(source.remove(t)).To(Succeed())
	g.Expect(s.values("api.example.org", "A")).To(Equal([]string{"192.0.2.2"}))
	g.Expect(destination.remove(t)).To(Succeed())
	g.Expect(s.records).To(BeEmpty())
}

// of returns a record of another holder.
func of(class extensionsv1alpha1.ExtensionClass, namespace string, record dns.Record) dns.Record {
	record.Class, record.Owner.Namespace = class, namespace
	return record
}

func TestANameIsNotTakenOver(t *testing.T) {
	address, other := record("x.ingress.example.org", "A", "192.0.2.1"), record("x.ingress.example.org", "A", "203.0.113.66")
	wildcard := record("*.ingress.example.org", "A", "192.0.2.1")
	for _, test := range []struct {
		name          string
		holds, wanted dns.Record
		says          string
	}{
		{"of the garden, by a seed", of("garden", "garden", address), of("seed", "garden", other), "the garden"},
		{"of a seed, by a shoot", of("seed", "garden", address), of("shoot", "shoot--p--a", other), "a seed"},
		{"of a shoot, by a newer one", of("shoot", "shoot--p--b", address), of("shoot", "shoot--p--a", other), "another shoot"},
		{"by the same values, which are removed with it", of("shoot", "shoot--p--b", address), of("shoot", "shoot--p--a", address), "another shoot"},
		{"by another type", of("seed", "garden", address), of("shoot", "shoot--p--a", record("x.ingress.example.org", "AAAA", "2001:db8::66")), "a seed"},
		{"by an alias", of("seed", "garden", address), of("shoot", "shoot--p--a", record("x.ingress.example.org", "CNAME", "evil.example.net")), "a seed"},
		{"below the wildcard of a seed", of("seed", "garden", wildcard), of("shoot", "shoot--p--a", other), "a seed"},
		{"below the wildcard of another shoot, by a wildcard", of("shoot", "shoot--p--b", wildcard), of("shoot", "shoot--p--a", record("*.ingress.y.ingress.example.org", "A", "203.0.113.66")), "another shoot"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			s := startServer(t)
			provider := newProvider(t, s.address)
			holder, newcomer := newOwner(provider, test.holds), newOwner(provider, test.wanted)
			g.Expect(holder.apply(t)).To(Succeed())
			err := newcomer.apply(t)
			g.Expect(err).To(MatchError(ContainSubstring("because of a DNSRecord of " + test.says)))
			var conflict *dns.ConflictError
			g.Expect(errors.As(err, &conflict)).To(BeTrue())
			g.Expect(newcomer.saved).To(BeEmpty())
			g.Expect(newcomer.remove(t)).To(Succeed())
			g.Expect(s.served()).To(HaveLen(1))
			g.Expect(s.values(test.holds.Name, "A")).To(Equal([]string{"192.0.2.1"}))

			g.Expect(holder.remove(t)).To(Succeed())
			g.Expect(s.records).To(BeEmpty())
			g.Expect(newcomer.apply(t)).To(Succeed(), "the name is free again")
		})
	}
}

func TestAHigherClassTakesANameBack(t *testing.T) {
	for _, theirs := range []dns.Record{record("a.example.org", "A", "203.0.113.66"), record("a.example.org", "CNAME", "evil.example.net"), record("a.example.org", "AAAA", "2001:db8::66")} {
		t.Run(theirs.Type, func(t *testing.T) {
			g := NewWithT(t)
			s := startServer(t)
			provider := newProvider(t, s.address)
			shoot, seed := newOwner(provider, of("shoot", "shoot--p--a", theirs)), newOwner(provider, of("seed", "garden", record("a.example.org", "A", "192.0.2.1")))
			g.Expect(shoot.apply(t)).To(Succeed())
			g.Expect(seed.apply(t)).To(Succeed())
			g.Expect(s.served()).To(HaveLen(1))
			g.Expect(s.values("a.example.org", "A")).To(Equal([]string{"192.0.2.1"}))

			g.Expect(shoot.apply(t)).To(MatchError(ContainSubstring("a DNSRecord of a seed")))
			g.Expect(shoot.remove(t)).To(Succeed())
			g.Expect(s.values("a.example.org", "A")).To(Equal([]string{"192.0.2.1"}))
			g.Expect(seed.remove(t)).To(Succeed())
			g.Expect(s.records).To(BeEmpty())
		})
	}
}

func TestAShootDoesNotGetANameThatNobodyIsKnownToOwn(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	s.set(record("www.example.org", "A", "192.0.2.1"))
	provider := newProvider(t, s.address)
	shoot := newOwner(provider, of("shoot", "shoot--p--a", record("www.example.org", "A", "203.0.113.66")))
	err := shoot.apply(t)
	g.Expect(err).To(MatchError(ContainSubstring("no DNSRecord is known to own")))
	g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
	g.Expect(shoot.status.Written).To(BeEmpty())
	g.Expect(shoot.remove(t)).To(Succeed())
	g.Expect(s.values("www.example.org", "A")).To(Equal([]string{"192.0.2.1"}))

	seed := newOwner(provider, of("seed", "garden", record("www.example.org", "A", "192.0.2.2")))
	g.Expect(seed.apply(t)).To(Succeed())
	g.Expect(s.values("www.example.org", "A")).To(Equal([]string{"192.0.2.2"}))
}

func TestBothSeedsOfAMigrationAreOneHolder(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	source := newOwner(newProvider(t, s.address), of("shoot", "source", record("api.example.org", "A", "192.0.2.1")))
	destination := newOwner(newProvider(t, s.address), of("shoot", "destination", record("api.example.org", "A", "192.0.2.2")))
	source.request.TechnicalID, destination.request.TechnicalID = "shoot--p--a", "shoot--p--a"
	g.Expect(source.apply(t)).To(Succeed())
	g.Expect(destination.apply(t)).To(Succeed())
	g.Expect(source.remove(t)).To(Succeed())
	g.Expect(s.values("api.example.org", "A")).To(Equal([]string{"192.0.2.2"}))
}

func TestTheTypesOfANameComeAndGoByThemselves(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	provider := newProvider(t, s.address)
	owners := []*owner{newOwner(provider, record("a.example.org", "A", "192.0.2.1")), newOwner(provider, record("a.example.org", "AAAA", "2001:db8::1"))}
	var all sync.WaitGroup
	errs := make(chan error, len(owners))
	for _, o := range owners {
		all.Go(func() { errs <- o.apply(t) })
	}
	all.Wait()
	g.Expect(<-errs).NotTo(HaveOccurred())
	g.Expect(<-errs).NotTo(HaveOccurred())
	g.Expect(s.served()).To(HaveLen(2))
	g.Expect(owners[0].remove(t)).To(Succeed())
	g.Expect(s.values("a.example.org", "AAAA")).To(HaveLen(1))
	g.Expect(newOwner(provider, of("shoot", "shoot--p--a", record("a.example.org", "A", "203.0.113.66"))).apply(t)).To(MatchError(ContainSubstring("another shoot")), "it is still marked")
	g.Expect(owners[1].remove(t)).To(Succeed())
	g.Expect(s.records).To(BeEmpty())
}

func TestNamesOfMarksAreReserved(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	g.Expect(newOwner(newProvider(t, s.address), record("_owner.a.example.org", "TXT", "mine")).apply(t)).To(MatchError(ContainSubstring("reserved")))
	g.Expect(s.updated()).To(BeZero())
}

func TestWhatAServerAnswersIsExplained(t *testing.T) {
	const none = gardencorev1beta1.ErrorCode("")
	for _, test := range []struct {
		name  string
		rcode int
		code  gardencorev1beta1.ErrorCode
		says  string
		// isRejection tells that the server has certainly done nothing.
		isRejection bool
	}{
		{"REFUSED", miekgdns.RcodeRefused, gardencorev1beta1.ErrorInfraUnauthorized, "with the key seed.; see its access lists", true},
		{"NOTAUTH", miekgdns.RcodeNotAuth, gardencorev1beta1.ErrorConfigurationProblem, "not a server of the zone", true},
		{"NOTZONE", miekgdns.RcodeNotZone, gardencorev1beta1.ErrorConfigurationProblem, "check the zones", true},
		{"NOTIMP", miekgdns.RcodeNotImplemented, gardencorev1beta1.ErrorConfigurationProblem, "no dynamic updates", true},
		{"SERVFAIL", miekgdns.RcodeServerFailure, none, "see its log", false},
		{"FORMERR", miekgdns.RcodeFormatError, none, "see its log", true},
		{"YXDOMAIN", miekgdns.RcodeYXDomain, gardencorev1beta1.ErrorConfigurationProblem, "no DNSRecord is known to own", true},
		{"an unknown code", 12, none, "answers RCODE12", false},
	} {
		for _, opcode := range []int{miekgdns.OpcodeQuery, miekgdns.OpcodeUpdate} {
			t.Run(test.name+" to "+miekgdns.OpcodeToString[opcode], func(t *testing.T) {
				g := NewWithT(t)
				s := startServer(t)
				s.misbehave(func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
					if m.Opcode != opcode {
						return false
					}
					reply := new(miekgdns.Msg).SetRcode(m, test.rcode)
					reply.SetTsig(testKey, miekgdns.HmacSHA256, fudge, time.Now().Unix())
					_ = w.WriteMsg(reply)
					return true
				})
				o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
				err := o.apply(t)
				g.Expect(err).To(MatchError(And(ContainSubstring(test.says), ContainSubstring(s.address), ContainSubstring("a.example.org"))))
				if test.code == none {
					g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(BeEmpty())
				} else {
					g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(test.code))
				}
				if opcode == miekgdns.OpcodeQuery || test.isRejection {
					g.Expect(o.status.Written).To(BeEmpty(), "nothing can have been written")
				} else {
					g.Expect(o.status.Written).To(HaveLen(1))
				}
			})
		}
	}
}

// TestASlowServerDoesNotKeepAWorker has a server answer just in time, about a name below many others.
func TestASlowServerDoesNotKeepAWorker(t *testing.T) {
	g := NewWithT(t)
	const timeout = 200 * time.Millisecond
	s := startServer(t)
	s.misbehave(func(miekgdns.ResponseWriter, *miekgdns.Msg) bool {
		time.Sleep(timeout / 2)
		return false
	})
	o := newOwner(newProvider(t, s.address, func(o *Options) { o.Timeout = timeout }), record(strings.Repeat("a.", 100)+"example.org", "A", "192.0.2.1"))
	start := time.Now()
	g.Expect(o.apply(t)).To(MatchError(ContainSubstring("no answer of server")))
	g.Expect(time.Since(start)).To(BeNumerically("<", 20*timeout))
}

// TestWhatAServerAnswersWithIsNotRepeated has a server answer with another text each time, which would be written to a status.
func TestWhatAServerAnswersWithIsNotRepeated(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	asked := 0
	s.misbehave(func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
		if m.Opcode != miekgdns.OpcodeQuery || m.Question[0].Name != "a.example.org." {
			return false
		}
		asked++
		reply := new(miekgdns.Msg).SetReply(m)
		reply.Authoritative = true
		reply.Answer = record("a.example.org", "TXT", fmt.Sprintf("somebody's secret %d", asked)).ResourceRecords()
		reply.SetTsig(testKey, miekgdns.HmacSHA256, fudge, time.Now().Unix())
		_ = w.WriteMsg(reply)
		return true
	})
	o := newOwner(newProvider(t, s.address), record("a.example.org", "TXT", "wanted"))
	first := o.apply(t)
	g.Expect(first).To(MatchError(And(ContainSubstring("has taken in"), Not(ContainSubstring("secret")))))
	g.Expect(o.apply(t)).To(MatchError(first.Error()))
}

func TestARejectedChangeLeavesTheStatusAsItWas(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())
	before := o.status

	s.misbehave(func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
		if m.Opcode != miekgdns.OpcodeUpdate {
			return false
		}
		reply := new(miekgdns.Msg).SetRcode(m, miekgdns.RcodeRefused)
		reply.SetTsig(testKey, miekgdns.HmacSHA256, fudge, time.Now().Unix())
		_ = w.WriteMsg(reply)
		return true
	})
	for _, next := range []dns.Record{record("b.example.org", "A", "192.0.2.1"), record("a.example.org", "A", "192.0.2.2")} {
		o.request.Record = next
		g.Expect(o.apply(t)).To(MatchError(ContainSubstring("REFUSED")))
		g.Expect(o.status).To(Equal(before))
	}
}

func TestARecordOfAZoneThatTheServerHasNoMoreIsGone(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	o.status.Written = []localv1alpha1.WrittenRecord{{Server: s.address, Zone: "example.net", Name: "a.example.net", Type: "A", Values: []string{"192.0.2.1"}, Mark: markOf(o.request).String()}}
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(o.status.Written).To(ConsistOf(HaveField("Zone", testZone)))
}

func TestNoMorePlacesAreRememberedThanCanBeSeenTo(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	for i := range writtenMax {
		o.status.Written = append(o.status.Written, localv1alpha1.WrittenRecord{
			Server: fmt.Sprintf("192.0.2.%d:53", i), Zone: "example.net", Name: "a.example.net", Type: "A", Values: []string{"192.0.2.1"},
		})
	}
	err := o.apply(t)
	g.Expect(err).To(MatchError(ContainSubstring("may still be at 8 former servers or zones")))
	g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
	g.Expect(o.saved).To(BeEmpty())
}

func TestSignaturesAreVerified(t *testing.T) {
	other := "b3RoZXI="
	for _, test := range []struct {
		name   string
		secret map[string]string
		server func(*server)
		says   string
	}{
		{name: "a key that the server doesn't know", secret: map[string]string{KeyTSIGKeyName: "other", KeyTSIGSecret: testSecret}, says: "BADKEY"},
		{name: "another key of that name", secret: map[string]string{KeyTSIGKeyName: "seed", KeyTSIGSecret: other}, says: "BADSIG"},
		{name: "an answer without a signature", server: func(s *server) { s.unsigned = true }, says: "answers without a signature"},
		{name: "an answer with another key", server: func(s *server) {
			s.before = func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
				reply := new(miekgdns.Msg).SetReply(m)
				reply.SetTsig(testKey, miekgdns.HmacSHA256, fudge, time.Now().Unix())
				raw, _, err := miekgdns.TsigGenerate(reply, other, m.IsTsig().MAC, false)
				if err == nil {
					_, _ = w.Write(raw)
				}
				return true
			}
		}, says: "signs its answer with another key"},
		{name: "an answer of another time", server: func(s *server) {
			s.before = func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
				reply := new(miekgdns.Msg).SetReply(m)
				reply.SetTsig(testKey, miekgdns.HmacSHA256, fudge, time.Now().Unix()-1000)
				_ = w.WriteMsg(reply)
				return true
			}
		}, says: "gives a time that differs"},
		{name: "a clock that goes wrong", server: func(s *server) { s.complaint = miekgdns.RcodeBadTime }, says: "BADTIME"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			s := startServer(t)
			if test.server != nil {
				test.server(s)
			}
			o := newOwner(newProvider(t, s.address, func(o *Options) {
				if test.secret != nil {
					o.Reader = reader(t, newSecret(test.secret))
				}
			}), record("a.example.org", "A", "192.0.2.1"))
			err := o.apply(t)
			g.Expect(err).To(MatchError(And(ContainSubstring(test.says), Not(ContainSubstring(testSecret)), Not(ContainSubstring(other)))))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorInfraUnauthorized))
			g.Expect(s.updated()).To(BeZero())
			g.Expect(o.saved).To(BeEmpty())
		})
	}
}

func TestWithoutAKeyNothingIsSigned(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	var signed bool
	s.misbehave(func(_ miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
		signed = signed || m.IsTsig() != nil
		return false
	})
	o := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1"))
	o.request.Secret = corev1.SecretReference{}
	g.Expect(o.apply(t)).To(Succeed())
	g.Expect(o.remove(t)).To(Succeed())
	g.Expect(signed).To(BeFalse())
}

func TestAServerThatIsNotAuthoritativeIsNotAsked(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	s.misbehave(func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
		reply := new(miekgdns.Msg).SetReply(m)
		reply.SetTsig(testKey, miekgdns.HmacSHA256, fudge, time.Now().Unix())
		_ = w.WriteMsg(reply)
		return true
	})
	err := newOwner(newProvider(t, s.address), record("a.example.org", "A", "192.0.2.1")).apply(t)
	g.Expect(err).To(MatchError(ContainSubstring("not authoritative")))
	g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
}

func TestNetworkTroubleMayPass(t *testing.T) {
	short := func(o *Options) { o.Timeout = 50 * time.Millisecond }
	for _, test := range []struct {
		name   string
		server func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool
		change func(*Options)
		cancel bool
		is     error
	}{
		{name: "a server that hangs", server: func(miekgdns.ResponseWriter, *miekgdns.Msg) bool { return true }, change: short},
		{name: "a server that closes the connection", server: func(w miekgdns.ResponseWriter, _ *miekgdns.Msg) bool { _ = w.Close(); return true }},
		{name: "a server that is down", change: func(o *Options) { o.Server = "127.0.0.1:1" }},
		{name: "a server that is not reached", change: func(o *Options) {
			short(o)
			o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}, is: context.DeadlineExceeded},
		{name: "an end of the program while a server hangs", server: func(miekgdns.ResponseWriter, *miekgdns.Msg) bool { return true }, cancel: true, is: context.Canceled},
		{name: "an answer that is none", server: func(w miekgdns.ResponseWriter, _ *miekgdns.Msg) bool {
			_, _ = w.Write([]byte("hello, world"))
			return true
		}},
		{name: "an answer to another question", server: func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
			reply := new(miekgdns.Msg).SetReply(m)
			reply.Id++
			_ = w.WriteMsg(reply)
			return true
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			s := startServer(t)
			asked := make(chan struct{}, 10)
			s.misbehave(func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool {
				asked <- struct{}{}
				return test.server(w, m)
			})
			o := newOwner(newProvider(t, s.address, func(o *Options) {
				if test.change != nil {
					test.change(o)
				}
			}), record("a.example.org", "A", "192.0.2.1"))

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.cancel {
				go func() {
					<-asked
					cancel()
				}()
			}
			err := o.provider.Apply(ctx, o.request)
			g.Expect(err).To(MatchError(ContainSubstring(o.provider.Server)))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(BeEmpty())
			if test.is != nil {
				g.Expect(err).To(MatchError(test.is))
			}
			g.Expect(o.saved).To(BeEmpty())
		})
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	g := NewWithT(t)
	s, counted := startServer(t), &connections{}
	provider := newProvider(t, s.address, func(o *Options) { o.Dial = counted.dial })
	var all sync.WaitGroup
	errs := make(chan error, 50)
	for i := range 50 {
		all.Go(func() {
			errs <- newOwner(provider, record(fmt.Sprintf("n%d.example.org", i), "A", "192.0.2.1")).apply(t)
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(s.served()).To(HaveLen(50))
	g.Expect(counted.most).To(BeNumerically("<=", maxConnections))
	g.Expect(counted.open).To(BeZero())
	g.Expect(provider.slots.of(s.address).TryAcquire(maxConnections)).To(BeTrue(), "none is in use")
}

// Many at a time would all have one and wait for another.
func TestNothingNeedsTwoConnectionsAtATime(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t)
	provider := newProvider(t, s.address, func(o *Options) { o.Timeout = time.Second })
	provider.slots = newSlots(1)
	o := newOwner(provider, record("a.example.org", "A", "192.0.2.1"))
	g.Expect(o.apply(t)).To(Succeed())

	s.set(record("a.example.org", "A", "192.0.2.9"))
	o.request.Record = record("b.example.org", "A", "192.0.2.1")
	g.Expect(o.apply(t)).To(Succeed(), "leaving an old name that another has taken over")

	o.status.Written = append(o.status.Written, localv1alpha1.WrittenRecord{
		Server: s.address, Zone: "example.com", Name: "b.example.com", Type: "A", Values: []string{"192.0.2.1"}, TTL: 60,
	})
	g.Expect(o.apply(t)).To(Succeed(), "removing what is in another zone")
	g.Expect(o.status.Written).To(HaveLen(1))
}

func TestAServerThatHangsDoesNotHoldUpAnother(t *testing.T) {
	g := NewWithT(t)
	good, bad := startServer(t), startServer(t)
	var hanging sync.WaitGroup
	hanging.Add(maxConnections)
	bad.misbehave(func(miekgdns.ResponseWriter, *miekgdns.Msg) bool { hanging.Done(); return true })
	provider := newProvider(t, good.address, allow(bad))

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range maxConnections {
		all.Go(func() {
			o := newOwner(provider, record(fmt.Sprintf("n%d.example.org", i), "A", "192.0.2.1"))
			o.request.Config.RFC2136 = &localv1alpha1.RFC2136Config{Server: bad.address}
			_ = provider.Apply(ctx, o.request)
		})
	}
	hanging.Wait()
	g.Expect(newOwner(provider, record("a.example.org", "A", "192.0.2.1")).apply(t)).To(Succeed())

	waiting := newOwner(provider, record("a.example.org", "A", "192.0.2.1"))
	waiting.request.Config.RFC2136 = &localv1alpha1.RFC2136Config{Server: bad.address}
	short, cancelShort := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancelShort()
	g.Expect(provider.Apply(short, waiting.request)).To(MatchError(ContainSubstring("8 exchanges running already")))
	cancel()
	all.Wait()
	g.Expect(provider.slots.of(bad.address).TryAcquire(maxConnections)).To(BeTrue(), "none is in use")
}

func BenchmarkApply(b *testing.B) {
	for name, change := range map[string]func(o *owner, i int){
		"unchanged": func(*owner, int) {},
		"changed":   func(o *owner, i int) { o.request.Record.TTL = int64(1 + i%2) },
	} {
		b.Run(name, func(b *testing.B) {
			g := NewWithT(b)
			s := startServer(b)
			o := newOwner(newProvider(b, s.address), record("a.example.org", "A", "192.0.2.1"))
			g.Expect(o.apply(b)).To(Succeed())
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				change(o, i)
				if err := o.apply(b); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
