// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/skaffold/images/coredns/custom"
)

// TestServerReadsWhatTheExtensionWrites takes the sample that the tests of pkg/dns/coredns keep: the two are modules of
// their own and have just this format in common.
func TestServerReadsWhatTheExtensionWrites(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "pkg", "dns", "coredns", "testdata", "configmap.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	written := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(data, written); err != nil {
		t.Fatal(err)
	}
	if dropped := custom.Dropped(written); len(dropped) > 0 {
		t.Errorf("entries are left out: %v", dropped)
	}

	written.Namespace = namespace
	s := start(t)
	s.watch(t, "", written)
	s.eventually(t, "udp", written.Name+"._sync.local.gardener.cloud", "TXT", `"17"`)
	for _, test := range []struct{ network, name, rrtype, expected string }{
		{"tcp", "api.local.gardener.cloud", "A", "172.18.255.1"},
		{"udp", "api.local.gardener.cloud", "A", "10.4.0.10"},
		{"udp", "x.ingress.local.gardener.cloud", "A", "10.4.0.10"},
		{"udp", strings.Repeat("a.", 115) + "local.gardener.cloud", "A", "10.4.0.10"},
		{"udp", "alias.local.gardener.cloud", "CNAME", "lb.example.org."},
	} {
		if answer := s.ask(t, test.network, test.name, test.rrtype); answer != test.expected {
			t.Errorf("%s %s by %s is %q, expected %q", test.name, test.rrtype, test.network, answer, test.expected)
		}
	}
}

const benchmarkShard = 200

// shards are ConfigMaps with that many records in all, each with a gateway.
func shards(number int) []*corev1.ConfigMap {
	var all []*corev1.ConfigMap
	for first := 0; first < number; first += benchmarkShard {
		data := map[string]string{}
		var zone strings.Builder
		for i := first; i < min(first+benchmarkShard, number); i++ {
			name := benchmarkName(i)
			data[name+".override"] = override(name)
			fmt.Fprintf(&zone, "%s.\t120\tIN\tA\t172.18.255.1\n", name)
		}
		data["local.gardener.cloud.zone"] = zone.String()
		all = append(all, configMap(fmt.Sprintf("coredns-custom-seed-%d", len(all)), 1, data))
	}
	return all
}

func benchmarkName(i int) string {
	return fmt.Sprintf("api.shoot-%05d.project.external.local.gardener.cloud", i)
}

// BenchmarkChange measures from the write of a ConfigMap until a record in it resolves, in a server that already has that
// many others.
func BenchmarkChange(b *testing.B) {
	for _, number := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(number), func(b *testing.B) {
			s := start(b)
			client := s.watch(b, "", shards(number)...)
			s.eventually(b, "udp", benchmarkName(number-1), "A", "10.4.0.10")
			changed := shards(min(number, benchmarkShard))[0]
			round := 0
			for b.Loop() {
				round++
				address := fmt.Sprintf("10.%d.%d.%d", round>>16&255, round>>8&255, round&255)
				changed.Data["local.gardener.cloud.zone"] += fmt.Sprintf("new%d.local.gardener.cloud.\t120\tIN\tA\t%s\n", round, address)
				if _, err := client.CoreV1().ConfigMaps(namespace).Update(context.Background(), changed.DeepCopy(), metav1.UpdateOptions{}); err != nil {
					b.Fatal(err)
				}
				s.eventually(b, "tcp", fmt.Sprintf("new%d.local.gardener.cloud", round), "A", address)
			}
		})
	}
}

// BenchmarkQuery measures a query by UDP for a name with a gateway.
func BenchmarkQuery(b *testing.B) {
	for _, number := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(number), func(b *testing.B) {
			s := start(b)
			s.watch(b, "", shards(number)...)
			s.eventually(b, "udp", benchmarkName(number-1), "A", "10.4.0.10")
			for b.Loop() {
				if _, err := s.query("udp", benchmarkName(number-1), "A"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStock measures the way that isn't taken, with the same records: the plugins file and rewrite of CoreDNS, and a
// restart of the server for each change. It reports the time from the change until it resolves, and that of a query.
func BenchmarkStock(b *testing.B) {
	for _, number := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(number), func(b *testing.B) {
			directory := b.TempDir()
			instance, s := startStock(b, directory, number, 0)
			b.Cleanup(func() { _ = instance.Stop() })
			round := 0
			for b.Loop() {
				round++
				restarted, err := instance.Restart(stock(b, directory, number, round))
				if err != nil {
					b.Fatal(err)
				}
				instance = restarted
				s.eventually(b, "tcp", "new.local.gardener.cloud", "A", fmt.Sprintf("10.0.0.%d", round%250))
			}
			b.StopTimer()
			begin := time.Now()
			const queries = 200
			for range queries {
				if _, err := s.query("udp", benchmarkName(number-1), "A"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(time.Since(begin).Nanoseconds())/queries, "ns/query")
			b.StartTimer()
		})
	}
}

func startStock(b *testing.B, directory string, number, round int) (*caddy.Instance, *server) {
	if _, err := plugin(); err != nil {
		b.Fatal(err)
	}
	instance, err := caddy.Start(stock(b, directory, number, round))
	if err != nil {
		b.Fatal(err)
	}
	s := &server{}
	for _, listener := range instance.Servers() {
		s.udp, s.tcp = loopback(listener.LocalAddr()), loopback(listener.Addr())
	}
	return instance, s
}

func stock(b *testing.B, directory string, number, round int) caddy.Input {
	var overrides, zone strings.Builder
	zone.WriteString("@ IN SOA ns.dns hostmaster 1 7200 1800 86400 5\n")
	fmt.Fprintf(&zone, "new 120 IN A 10.0.0.%d\n", round%250)
	for _, s := range shards(number) {
		for key, value := range s.Data {
			if strings.HasSuffix(key, ".override") {
				overrides.WriteString(value)
			} else {
				zone.WriteString(value)
			}
		}
	}
	for name, content := range map[string]string{"overrides.conf": overrides.String(), "zone": zone.String()} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	content := strings.ReplaceAll(corefile, "custom literal", "file "+directory+"/zone")
	content = strings.ReplaceAll(content, "custom rewrite", "import "+directory+"/overrides.conf\n    hosts {\n 10.4.0.10 istio-ingressgateway.istio-ingress.svc.cluster.local\n fallthrough\n }\n    file "+directory+"/zone")
	return caddy.CaddyfileInput{Contents: []byte(content), Filepath: directory + "/Corefile", ServerTypeName: "dns"}
}
