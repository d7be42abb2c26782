// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gardener/gardener-extension-provider-local/skaffold/images/coredns/custom"
)

func sample() *corev1.ConfigMap {
	return configMap("coredns-custom-garden-0", 17, map[string]string{
		"api.local.gardener.cloud.override":              override("api.local.gardener.cloud"),
		"WILDCARD.ingress.local.gardener.cloud.override": override("*.ingress.local.gardener.cloud"),
		"gone.local.gardener.cloud.override":             strings.ReplaceAll(override("gone.local.gardener.cloud"), "istio-ingress.svc", "nowhere.svc"),
		"local.gardener.cloud.zone": strings.Join([]string{
			`api.local.gardener.cloud. 120 IN A 172.18.255.1`,
			`api.local.gardener.cloud. 120 IN AAAA 2001:db8::1`,
			`gone.local.gardener.cloud. 120 IN A 172.18.255.9`,
			`*.ingress.local.gardener.cloud. 120 IN A 172.18.255.2`,
			`plain.local.gardener.cloud. 120 IN A 172.18.255.3`,
			`own.ingress.local.gardener.cloud. 120 IN A 172.18.255.4`,
			`deep.er.local.gardener.cloud. 120 IN A 172.18.255.5`,
			`text.local.gardener.cloud. 120 IN TXT "a \"quoted\" word" "and; $more \\ \009"`,
			`alias.local.gardener.cloud. 120 IN CNAME plain.local.gardener.cloud.`,
			`alias-of-api.local.gardener.cloud. 120 IN CNAME api.local.gardener.cloud.`,
			`outside.local.gardener.cloud. 120 IN CNAME elsewhere.example.org.`,
			`broken.local.gardener.cloud. 120 IN CNAME broken.example.org.`,
			`none.local.gardener.cloud. 120 IN CNAME none.example.org.`,
			`loop.local.gardener.cloud. 120 IN CNAME loop.local.gardener.cloud.`,
		}, "\n") + "\n",
	})
}

func TestServerIsNoOpenResolver(t *testing.T) {
	s := startFor(t, "198.51.100.0/24")
	s.watch(t, "", sample())
	s.eventually(t, "tcp", "api.local.gardener.cloud", "A", "172.18.255.1")
	for _, test := range []struct{ network, query, expected string }{
		{"udp", "elsewhere.example.org", "REFUSED"},
		{"tcp", "elsewhere.example.org", "REFUSED"},
		{"udp", "istio-ingressgateway.istio-ingress.svc.cluster.local", "REFUSED"},
		{"udp", "plain.local.gardener.cloud", "172.18.255.3"},
		{"udp", "api.local.gardener.cloud", "172.18.255.1"},
	} {
		if answer := s.ask(t, test.network, test.query, "A"); answer != test.expected {
			t.Errorf("%s by %s: got %q, expected %q", test.query, test.network, answer, test.expected)
		}
	}
}

func TestServerAnswersInBothViews(t *testing.T) {
	s := start(t)
	s.watch(t, "", sample())
	s.eventually(t, "tcp", "api.local.gardener.cloud", "A", "172.18.255.1")

	for _, test := range []struct {
		name, network, query, rrtype, expected string
	}{
		{"a name of a gateway from outside is as written", "tcp", "api.local.gardener.cloud", "A", "172.18.255.1"},
		{"a name of a gateway in the cluster is its Service", "udp", "api.local.gardener.cloud", "A", "10.4.0.10"},
		{"upper case is the same name", "udp", "API.Local.Gardener.Cloud", "A", "10.4.0.10"},
		{"IPv6 from outside is as written", "tcp", "api.local.gardener.cloud", "AAAA", "2001:db8::1"},
		{"IPv6 in the cluster is the Service's", "udp", "api.local.gardener.cloud", "AAAA", "fd00::10"},
		{"a wildcard from outside is as written", "tcp", "x.ingress.local.gardener.cloud", "A", "172.18.255.2"},
		{"a wildcard in the cluster is the Service", "udp", "x.ingress.local.gardener.cloud", "A", "10.4.0.10"},
		{"a wildcard covers more than one label", "udp", "y.x.ingress.local.gardener.cloud", "A", "10.4.0.10"},
		{"a wildcard does not cover its parent", "udp", "ingress.local.gardener.cloud", "A", "NOERROR SOA"},
		{"a wildcard does not shadow a name below it", "udp", "own.ingress.local.gardener.cloud", "A", "172.18.255.4"},
		{"a name without a gateway is the same in the cluster", "udp", "plain.local.gardener.cloud", "A", "172.18.255.3"},
		{"a name whose Service is gone is as written", "udp", "gone.local.gardener.cloud", "A", "172.18.255.9"},
		{"a type that a name hasn't is no data", "udp", "plain.local.gardener.cloud", "AAAA", "NOERROR SOA"},
		{"a name that isn't is denied", "udp", "nobody.local.gardener.cloud", "A", "NXDOMAIN SOA"},
		{"a name above another exists", "udp", "er.local.gardener.cloud", "A", "NOERROR SOA"},
		{"text is as written", "udp", "text.local.gardener.cloud", "TXT", `"a \"quoted\" word" "and; $more \\ \009"`},
		{"an alias is followed", "tcp", "alias.local.gardener.cloud", "A", "plain.local.gardener.cloud. 172.18.255.3"},
		{"an alias of a gateway's name in the cluster is the Service", "udp", "alias-of-api.local.gardener.cloud", "A", "api.local.gardener.cloud. 10.4.0.10"},
		{"an alias to elsewhere is followed", "udp", "outside.local.gardener.cloud", "A", "elsewhere.example.org. 192.0.2.7"},
		{"an alias itself is as written", "udp", "alias.local.gardener.cloud", "CNAME", "plain.local.gardener.cloud."},
		{"the generation can be asked for", "udp", "coredns-custom-garden-0._sync.local.gardener.cloud", "TXT", `"17"`},
		{"a generation of another ConfigMap is none", "udp", "coredns-custom-seed-0._sync.local.gardener.cloud", "TXT", "NXDOMAIN SOA"},
		{"the zone has a name server", "udp", "local.gardener.cloud", "NS", "ns.dns.local.gardener.cloud."},
		{"a zone is not handed out", "tcp", "local.gardener.cloud", "AXFR", "REFUSED"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if answer := s.ask(t, test.network, test.query, test.rrtype); answer != test.expected {
				t.Errorf("%s %s by %s is %q, expected %q", test.query, test.rrtype, test.network, answer, test.expected)
			}
		})
	}

	for query, expected := range map[string]string{"broken.local.gardener.cloud": "SERVFAIL", "none.local.gardener.cloud": "NXDOMAIN SOA"} {
		t.Run("an alias has the answer of its target: "+expected, func(t *testing.T) {
			answer, err := s.query("udp", query, "A")
			if err != nil {
				t.Fatal(err)
			}
			code := dns.RcodeToString[answer.Rcode]
			for _, rr := range answer.Ns {
				code += " " + dns.TypeToString[rr.Header().Rrtype]
			}
			if code != expected || len(answer.Answer) != 1 {
				t.Errorf("got %s beside %v, expected %s beside the alias", code, answer.Answer, expected)
			}
		})
	}

	t.Run("a loop of aliases ends", func(t *testing.T) {
		answer, err := s.query("udp", "loop.local.gardener.cloud", "A")
		if err != nil || len(answer.Answer) > 2*8 {
			t.Errorf("expected an end, got %v, %v", answer, err)
		}
	})
}

func TestServerFollowsChanges(t *testing.T) {
	s := start(t)
	client := s.watch(t, "", sample())
	s.eventually(t, "udp", "plain.local.gardener.cloud", "A", "172.18.255.3")
	configMaps := client.CoreV1().ConfigMaps(namespace)
	ctx := context.Background()

	changed := configMap("coredns-custom-garden-0", 18, map[string]string{
		"local.gardener.cloud.zone": "plain.local.gardener.cloud. 120 IN A 172.18.255.33\n",
	})
	if _, err := configMaps.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "udp", "coredns-custom-garden-0._sync.local.gardener.cloud", "TXT", `"18"`)
	if answer := s.ask(t, "udp", "plain.local.gardener.cloud", "A"); answer != "172.18.255.33" {
		t.Errorf("the generation is served and the record is %s", answer)
	}

	second := configMap("coredns-custom-seed-0", 1, map[string]string{
		"local.gardener.cloud.zone": "plain.local.gardener.cloud. 120 IN A 172.18.255.34\nnew.local.gardener.cloud. 120 IN A 172.18.255.35\n",
	})
	if _, err := configMaps.Create(ctx, second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "udp", "new.local.gardener.cloud", "A", "172.18.255.35")
	if answer := s.ask(t, "udp", "plain.local.gardener.cloud", "A"); answer != "172.18.255.33" {
		t.Errorf("a name that two ConfigMaps have must be the first one's, it is %s", answer)
	}

	if err := configMaps.Delete(ctx, "coredns-custom-garden-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "udp", "plain.local.gardener.cloud", "A", "172.18.255.34")
}

func TestTheHostGetsTheViewFromOutsideByAnyProtocol(t *testing.T) {
	s := start(t)
	s.watch(t, "", sample())
	s.eventually(t, "host udp", "api.local.gardener.cloud", "A", "172.18.255.1")

	for _, test := range []struct {
		name, query, rrtype, expected string
	}{
		{"a name of a gateway", "api.local.gardener.cloud", "A", "172.18.255.1"},
		{"its other family", "api.local.gardener.cloud", "AAAA", "2001:db8::1"},
		{"a wildcard", "any.ingress.local.gardener.cloud", "A", "172.18.255.2"},
		{"a name below a wildcard", "own.ingress.local.gardener.cloud", "A", "172.18.255.4"},
		{"an alias", "alias-of-api.local.gardener.cloud", "A", "api.local.gardener.cloud. 172.18.255.1"},
		{"an alias of a name outside is not followed", "outside.local.gardener.cloud", "A", "elsewhere.example.org."},
		{"no such name", "nobody.local.gardener.cloud", "A", "NXDOMAIN SOA"},
		{"a name outside of the zones is not forwarded", "elsewhere.example.org", "A", "REFUSED"},
		{"nor is that of a Service", "istio-ingressgateway.istio-ingress.svc.cluster.local", "A", "REFUSED"},
		{"nor the zone above", "gardener.cloud", "SOA", "REFUSED"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, network := range []string{"host udp", "host tcp"} {
				if answer := s.ask(t, network, test.query, test.rrtype); answer != test.expected {
					t.Errorf("%s %s by %s is %q, expected %q", test.query, test.rrtype, network, answer, test.expected)
				}
			}
		})
	}

	if answer := s.ask(t, "udp", "api.local.gardener.cloud", "A"); answer != "10.4.0.10" {
		t.Errorf("pods get %q at their own listener", answer)
	}
}

func TestServerLeavesOutWhatAHandEditPutsIn(t *testing.T) {
	s := start(t)
	edited := sample()
	edited.Data["evil.override"] = "rewrite stop name regex .* evil.default.svc.cluster.local answer auto"
	edited.Data["directive.override"] = override("api.local.gardener.cloud") + "forward . 192.0.2.1"
	edited.Data["local.gardener.cloud.zone"] += "$GENERATE 1-1000000 host$ A 10.0.0.1\nexample.org. 1 IN A 192.0.2.1\nplain.local.gardener.cloud. 1 IN NS ns.example.org.\nnot a record\n"
	edited.Data["Corefile"] = ".:53 { forward . 192.0.2.1 }"
	s.watch(t, "", edited)
	s.eventually(t, "udp", "plain.local.gardener.cloud", "A", "172.18.255.3")

	for query, expected := range map[string]string{
		"nobody.local.gardener.cloud": "NXDOMAIN SOA",
		"host1.local.gardener.cloud":  "NXDOMAIN SOA",
		"api.local.gardener.cloud":    "10.4.0.10",
	} {
		if answer := s.ask(t, "udp", query, "A"); answer != expected {
			t.Errorf("%s is %q, expected %q", query, answer, expected)
		}
	}
}

func TestServerDoesNotDenyNamesBeforeItKnowsThem(t *testing.T) {
	s := start(t)
	if answer := s.ask(t, "udp", "api.local.gardener.cloud", "A"); answer != "SERVFAIL" {
		t.Errorf("without a state the answer must be one that is asked again, it is %s", answer)
	}
}

func TestServerStartsWithItsLastStateWhenTheAPIServerIsAway(t *testing.T) {
	directory := t.TempDir()
	s := start(t)
	s.watch(t, directory, sample())
	s.eventually(t, "udp", "plain.local.gardener.cloud", "A", "172.18.255.3")
	waitForFile(t, filepath.Join(directory, "state.json"))

	s.store.Reset()
	client := fake.NewClientset()
	var away atomic.Bool
	away.Store(true)
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if away.Load() {
			return true, nil, errors.New("the API server is away")
		}
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := custom.Watch(ctx, s.store, client, namespace, directory); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "udp", "plain.local.gardener.cloud", "A", "172.18.255.3")

	// The API server comes back and knows nothing of it any more.
	away.Store(false)
	s.eventually(t, "udp", "plain.local.gardener.cloud", "A", "NXDOMAIN SOA")
}

func TestOnlyAServerWithoutAStateIsSaidToHaveNone(t *testing.T) {
	// After any other error client-go sleeps by a time from outside of the bubble.
	for name, test := range map[string]struct {
		answer error
		said   bool
	}{
		"the API server answers": {},
		"the API server is away": {answer: apierrors.NewResourceExpired("away"), said: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines bytes.Buffer
				log.SetOutput(&lines)
				defer log.SetOutput(os.Stderr)
				client := fake.NewClientset(sample())
				client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
					return test.answer != nil, nil, test.answer
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if err := custom.Watch(ctx, custom.NewStore(prometheus.NewRegistry()), client, namespace, t.TempDir()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute) // This is no real time.
				synctest.Wait()
				if said := strings.Contains(lines.String(), "No state after"); said != test.said {
					t.Errorf("a warning that there is no state: %t, want %t:\n%s", said, test.said, lines.String())
				}
			})
		})
	}
}

func TestStateIsKeptOnceThereIsRoomForIt(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(directory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	save := custom.NewSaver(directory, sample())
	if err := save(); err == nil {
		t.Fatal("a file in the place of the folder must be an error")
	}
	if err := os.Remove(directory); err != nil {
		t.Fatal(err)
	}
	if err := save(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(directory, "state.json")); err != nil {
		t.Errorf("nothing is written, as nothing has changed: %v", err)
	}
}

func waitForFile(t *testing.T, path string) {
	t.Helper()
	for range 500 {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("no file %s after 10 seconds", path)
}

func TestServerFailsNoQueryWhileItChanges(t *testing.T) {
	s := start(t)
	client := s.watch(t, "", sample())
	s.eventually(t, "udp", "plain.local.gardener.cloud", "A", "172.18.255.3")

	ctx, cancel := context.WithCancel(context.Background())
	var queries, failures atomic.Int64
	var group sync.WaitGroup
	for _, network := range []string{"udp", "tcp"} {
		group.Add(1)
		go func() {
			defer group.Done()
			for ctx.Err() == nil {
				answer, err := s.query(network, "plain.local.gardener.cloud", "A")
				queries.Add(1)
				if err != nil || answer.Rcode != dns.RcodeSuccess || len(answer.Answer) != 1 {
					failures.Add(1)
				}
			}
		}()
	}
	for generation := range 50 {
		changed := sample()
		changed.Annotations[custom.AnnotationGeneration] = time.Now().Format("150405") + "000"
		if _, err := client.CoreV1().ConfigMaps(namespace).Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("change %d: %v", generation, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	group.Wait()
	if failures.Load() > 0 || queries.Load() < 50 {
		t.Errorf("%d of %d queries failed", failures.Load(), queries.Load())
	}
}
