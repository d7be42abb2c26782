// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const testService = "istio-ingressgateway.istio-ingress.svc.cluster.local"

func TestKeysAreUniqueAndFitAConfigMap(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("a.", 110) + "local.gardener.cloud"
	g.Expect(entry{name: "api.local"}.key()).To(Equal("api.local.override"))
	g.Expect(entry{name: "*.local"}.key()).To(Equal("WILDCARD.local.override"))
	g.Expect(entry{name: "wildcard.local"}.key()).To(Equal("wildcard.local.override"))
	for _, name := range []string{long, strings.Repeat("a.", 114) + "local.gardener.cloud", "*." + long[2:]} {
		g.Expect(entry{name: name}.key()).To(MatchRegexp(`^[-._a-zA-Z0-9]{1,253}$`))
	}
	g.Expect(entry{name: strings.Repeat("a.", 114) + "local"}.key()).NotTo(Equal(entry{name: strings.Repeat("b.", 114) + "local"}.key()))
}

// TestTheServerReadsWhatIsWritten keeps a sample that the tests of skaffold/images/coredns read: the two are modules of
// their own and have just this format in common. -update writes it again.
func TestTheServerReadsWhatIsWritten(t *testing.T) {
	g := NewWithT(t)
	s := newShards("coredns-custom-garden-").get("coredns-custom-garden-0")
	for _, r := range []struct {
		record  dns.Record
		service string
	}{
		{record("a", "api.local.gardener.cloud", "A", "172.18.255.1"), testService},
		{record("b", "*.ingress.local.gardener.cloud", "A", "172.18.255.1"), testService},
		{record("c", "plain.local.gardener.cloud", "AAAA", "2001:db8::1", "2001:db8::2"), ""},
		{record("d", "_text.local.gardener.cloud", "TXT", `say "hi" \ ; é`, strings.Repeat("x", 300)), ""},
		{record("e", "alias.local.gardener.cloud", "CNAME", "lb.example.org"), ""},
		{record("f", strings.Repeat("a.", 115)+"local.gardener.cloud", "A", "172.18.255.1"), testService},
	} {
		s.entries[r.record.Name] = render(r.record.Name, testZone, []dns.Record{r.record}, r.service)
	}
	configMap := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: s.name, Labels: map[string]string{LabelConfig: "true", LabelInstance: "garden"}, Annotations: map[string]string{AnnotationGeneration: "17"},
		},
		Data: s.data(),
	}
	rendered, err := yaml.Marshal(configMap)
	g.Expect(err).NotTo(HaveOccurred())
	golden(g, "configmap.yaml", rendered)
}

// golden compares with a file of testdata, which -update writes.
func golden(g Gomega, name string, actual []byte) {
	path := filepath.Join("testdata", name)
	if *update {
		g.Expect(os.MkdirAll("testdata", 0o750)).To(Succeed())
		g.Expect(os.WriteFile(path, actual, 0o600)).To(Succeed())
	}
	expected, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(actual)).To(Equal(string(expected)))
}

// fuzzDeadline is how long one input may take, on a machine that is busy with others.
const fuzzDeadline = 20 * time.Second

// within ends the test if what it is called before has not ended by then. Call what it returns at the end.
func within(t *testing.T) (end func()) {
	timer := time.AfterFunc(fuzzDeadline, func() { panic(t.Name() + ": no end after " + fuzzDeadline.String()) })
	return func() { timer.Stop() }
}

// FuzzLoad gives a ConfigMap as anybody in the namespace may leave it for the next start. Whatever is taken over of it must be
// a record that can be written.
func FuzzLoad(f *testing.F) {
	f.Add("local.gardener.cloud.zone", "a.local.gardener.cloud.\t120\tIN\tA\t192.0.2.1\n", "a.local.gardener.cloud", "A")
	f.Add("local.gardener.cloud.zone", "a.local.gardener.cloud.\t120\tIN\tTXT\t\"\\\"\" ( \"x\"\n", "a.local.gardener.cloud", "TXT")
	f.Add("local.gardener.cloud.zone", "$INCLUDE\t/etc/passwd\n$GENERATE\t1-100000 a A 192.0.2.1\n", "$INCLUDE", "A")
	f.Fuzz(func(t *testing.T, key, value, name, recordType string) {
		defer within(t)()
		if normalized, err := dns.NormalizeName(name); err != nil || normalized != name {
			return
		}
		s := newShards("x-")
		s.load("x-0", map[string]string{key: value})
		values, ttl := s.values(name, recordType)
		record := dns.Record{Name: name, Type: recordType, Values: values, TTL: ttl}
		for line := range strings.Lines(render(name, testZone, []dns.Record{record}, "").lines) {
			if rr, err := miekgdns.NewRR(line); err != nil || rr == nil {
				t.Errorf("%q of %q is written as %q: %v", values, value, line, err)
			}
		}
	})
}

// FuzzRecordCannotInject gives names and values as users write them. What passes the validation must become exactly one
// override line with exactly its tokens, and exactly the resource records that were asked for.
func FuzzRecordCannotInject(f *testing.F) {
	for _, recordType := range []string{"A", "AAAA", "CNAME", "TXT"} {
		f.Add("api.local.gardener.cloud", recordType, "192.0.2.1", "2001:db8::1")
		f.Add("*.Api.local.gardener.cloud.", recordType, "a.example.org", "x")
		f.Add("a b.local.gardener.cloud", recordType, "\"\nevil IN A 192.0.2.1", "\\\"")
		f.Add("a.local.gardener.cloud\n}\n.:53 {", recordType, "\" ; $INCLUDE /etc/passwd", "{$HOME} #")
		f.Add("{0}.local.gardener.cloud", recordType, "(\n)", "\x00\xff")
	}
	f.Fuzz(func(t *testing.T, name, recordType, first, second string) {
		defer within(t)()
		for _, values := range [][]string{{first}, {first, second}} {
			object := &extensionsv1alpha1.DNSRecord{Spec: extensionsv1alpha1.DNSRecordSpec{Name: name, RecordType: extensionsv1alpha1.DNSRecordType(recordType), Values: values}}
			record, err := dns.New(object, []string{testZone}, 120)
			if err != nil {
				continue
			}
			e := render(record.Name, testZone, []dns.Record{record}, testService)
			if err := checkInjection(e, record); err != nil {
				t.Errorf("%q %s %q: %v", name, recordType, values, err)
			}
		}
	})
}

func checkInjection(e entry, record dns.Record) error {
	// A Corefile ends a line at \n, and splits it at white space; quotes, braces, # and \ before a space or a quote have a
	// meaning of their own.
	line, ok := strings.CutSuffix(e.override, "\n")
	if !ok || strings.ContainsAny(line, "\n\r\t\"'`{}#%") || strings.Contains(line, `\ `) {
		return fmt.Errorf("the line %q is more than words", e.override)
	}
	words := strings.Split(line, " ")
	expected := []string{"rewrite", "stop", "name", "regex", quote(record.Name), testService, "answer", "auto"}
	if !slices.Equal(words, expected) {
		return fmt.Errorf("the words are %q", words)
	}
	if !regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`).MatchString(e.key()) {
		return fmt.Errorf("the key %q is not one of a ConfigMap", e.key())
	}
	if strings.HasPrefix(record.Name, "*.") {
		if pattern := regexp.MustCompile(words[4]); !pattern.MatchString("x"+record.Name[1:]+".") || pattern.MatchString(record.Name[2:]+".") || pattern.MatchString("x"+record.Name[1:]+".evil.") {
			return fmt.Errorf("%s matches other names", words[4])
		}
	} else if pattern := regexp.MustCompile(words[4]); !pattern.MatchString(record.Name+".") || pattern.MatchString("x"+record.Name+".") || pattern.MatchString(strings.ReplaceAll(record.Name, ".", "x")+".") {
		return fmt.Errorf("%s matches other names", words[4])
	}

	parser := miekgdns.NewZoneParser(strings.NewReader(e.lines), testZone+".", "")
	parser.SetIncludeAllowed(true)
	var values []string
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		if rr.Header().Name != record.Name+"." || miekgdns.TypeToString[rr.Header().Rrtype] != record.Type {
			return fmt.Errorf("the zone has %s", rr)
		}
		values = append(values, dns.ValueOf(rr))
	}
	slices.Sort(values)
	if err := parser.Err(); err != nil {
		return fmt.Errorf("reading the zone: %w", err)
	}
	if !slices.Equal(values, record.Values) {
		return fmt.Errorf("the zone has %q", values)
	}
	return nil
}

func numbered(i int) entry {
	name := fmt.Sprintf("api.shoot-%05d.project.external.local.gardener.cloud", i)
	return render(name, testZone, []dns.Record{record("x", name, "A", gatewayIP)}, testService)
}

func TestShardsStayBelowTheirSizeAndKeepNamesWhereTheyAre(t *testing.T) {
	g := NewWithT(t)
	s := newShards("x-")
	for i := range 2000 {
		g.Expect(s.put(numbered(i))).To(HaveLen(1))
	}
	g.Expect(len(s.all)).To(BeNumerically("~", 10, 3))
	for _, one := range s.all {
		size := 0
		for key, value := range one.data() {
			size += len(key) + len(value)
		}
		g.Expect(size).To(And(BeNumerically("<=", shardSize), BeNumerically("~", one.size, 2048)), "what is counted is what is written")
	}

	g.Expect(s.put(numbered(7))).To(BeEmpty(), "the same again touches nothing")
	in := s.where[numbered(7).name]
	other := numbered(7)
	other.override = ""
	g.Expect(s.put(other)).To(ConsistOf(in), "a change touches the one it is in")
	g.Expect(s.remove(numbered(7).name)).To(ConsistOf(in))
	g.Expect(s.remove(numbered(7).name)).To(BeEmpty())
	g.Expect(s.put(numbered(9999))).To(ConsistOf(in), "room that became free is used again")
}

func TestAnEntryThatOutgrowsItsShardMoves(t *testing.T) {
	g := NewWithT(t)
	s := newShards("x-")
	s.put(numbered(1))
	for i := range 5 {
		grown := numbered(i + 10)
		grown.lines = strings.Repeat("x", 60<<10)
		s.put(grown)
	}
	small := s.where[numbered(1).name]
	grown := numbered(1)
	grown.lines = strings.Repeat("x", maxShardSize+1)
	g.Expect(s.put(grown)).To(And(HaveLen(2), ContainElement(small)))
	g.Expect(s.where[grown.name]).NotTo(Equal(small))
	g.Expect(small.entries).NotTo(HaveKey(grown.name))
}

func TestThereAreNoMoreConfigMapsThanAnInstanceMayWrite(t *testing.T) {
	g := NewWithT(t)
	s := newShards("x-")
	for i := range maxShards + 3 {
		large := numbered(i)
		large.lines = strings.Repeat("x", shardSize)
		s.put(large)
	}
	g.Expect(s.all).To(HaveLen(maxShards))
	g.Expect(s.names).To(ContainElements("x-0", fmt.Sprintf("x-%d", maxShards-1)))
	for name := range s.all {
		g.Expect(s.may(name)).To(BeTrue(), name)
	}
	for _, name := range []string{"x-", "x-256", "x-1000", "x-01", "x-a", "y-1", "x--1"} {
		g.Expect(s.may(name)).To(BeFalse(), name)
	}
}
