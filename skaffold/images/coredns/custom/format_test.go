// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom_test

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/gardener/gardener-extension-provider-local/skaffold/images/coredns/custom"
)

func TestOverridesOfAnyOtherFormAreRefused(t *testing.T) {
	const target = " istio-ingressgateway.istio-ingress.svc.cluster.local answer auto"
	for name, line := range map[string]string{
		"any name":                    `rewrite stop name regex ^.*$` + target,
		"an unanchored name":          `rewrite stop name regex api\.local\.` + target,
		"a dot that matches anything": `rewrite stop name regex ^api.local\.$` + target,
		"a class":                     `rewrite stop name regex ^\w+\.local\.$` + target,
		"two wildcards":               `rewrite stop name regex ^.+\..+\.local\.$` + target,
		"a name that isn't closed":    `rewrite stop name regex ^api\.local$` + target,
		"another directive":           `forward . 192.0.2.1`,
		"a second line":               `rewrite stop name regex ^api\.local\.$` + target + "\nforward . 192.0.2.1",
		"a target outside":            `rewrite stop name regex ^api\.local\.$ example.org answer auto`,
		"a target with a placeholder": `rewrite stop name regex ^api\.local\.$ {0}.x.svc.cluster.local answer auto`,
		"another answer":              `rewrite stop name regex ^api\.local\.$ a.b.svc.cluster.local answer value a b`,
		"an empty label":              `rewrite stop name regex ^api\.\.local\.$` + target,
	} {
		t.Run(name, func(t *testing.T) {
			if owner, service, err := custom.ParseOverride(line); err == nil {
				t.Errorf("%q was taken for %s at %s", line, owner, service)
			}
		})
	}
}

// fuzzDeadline is how long one input may take, on a machine that is busy with others.
const fuzzDeadline = 20 * time.Second

// within ends the test if what it is called before has not ended by then. Call what it returns at the end.
func within(t *testing.T) (end func()) {
	timer := time.AfterFunc(fuzzDeadline, func() { panic(t.Name() + ": no end after " + fuzzDeadline.String()) })
	return func() { timer.Stop() }
}

// FuzzConfigMap gives a ConfigMap as anybody in the namespace may write it, and a query.
func FuzzConfigMap(f *testing.F) {
	for key, value := range sample().Data {
		f.Add(key, value, "x.ingress.local.gardener.cloud.")
	}
	f.Add("local.gardener.cloud.zone", strings.Repeat("a.", 10000)+" 1 IN A 192.0.2.1\n", strings.Repeat("a.", 120))
	f.Add("local.gardener.cloud.zone", "a.local.gardener.cloud. 1 IN TXT "+strings.Repeat("(", 5000)+"\n", "a.local.gardener.cloud.")
	f.Add("x.override", strings.Repeat(override("a.local.gardener.cloud"), 100), ".")
	f.Fuzz(func(t *testing.T, key, value, query string) {
		defer within(t)()
		configMap := configMap("coredns-custom-garden-0", 1, map[string]string{key: value})
		for _, rr := range custom.Find(configMap, query, "local.gardener.cloud.") {
			if !dns.IsSubDomain("local.gardener.cloud.", rr.Header().Name) && strings.HasPrefix(key, "local.gardener.cloud.") {
				t.Errorf("%q has %s", value, rr)
			}
		}
	})
}

func FuzzParseOverride(f *testing.F) {
	f.Add(strings.TrimSuffix(override("api.local.gardener.cloud"), "\n"))
	f.Add(strings.TrimSuffix(override("*.local.gardener.cloud"), "\n"))
	f.Add("rewrite stop name regex ^a\\.$ a.b.svc.c answer auto\n}")
	f.Fuzz(func(t *testing.T, line string) {
		defer within(t)()
		name, service, err := custom.ParseOverride(line)
		if err != nil {
			return
		}
		expected := strings.Replace(strings.TrimSuffix(override(strings.TrimSuffix(name, ".")), "\n"), "istio-ingressgateway.istio-ingress.svc.cluster.local", strings.TrimSuffix(service, "."), 1)
		if strings.Replace(line, service+" answer", strings.TrimSuffix(service, ".")+" answer", 1) != expected {
			t.Errorf("%q was taken for %q at %q, which is written %q", line, name, service, expected)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add("a.local.gardener.cloud. 120 IN A 1.2.3.4")
	f.Add(`a.local.gardener.cloud. 120 IN TXT "x" ; comment`)
	f.Add("$INCLUDE /etc/passwd")
	f.Fuzz(func(t *testing.T, line string) {
		defer within(t)()
		rr, err := custom.ParseRecord(line, "local.gardener.cloud.")
		if err != nil {
			return
		}
		if !dns.IsSubDomain("local.gardener.cloud.", rr.Header().Name) || strings.Contains(rr.String(), "\n") {
			t.Errorf("%q was taken for %s", line, rr)
		}
	})
}
