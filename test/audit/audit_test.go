// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// These lines are of a kube-apiserver with the landscape's policy, shortened.
const lines = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"1","stage":"ResponseComplete","verb":"create","user":{"username":"admin"},"objectRef":{"resource":"dnsrecords","namespace":"garden","name":"r","apiGroup":"extensions.gardener.cloud","apiVersion":"v1alpha1"},"responseStatus":{"metadata":{},"code":201},"requestObject":{"spec":{"class":"garden"}},"responseObject":{"apiVersion":"extensions.gardener.cloud/v1alpha1","kind":"DNSRecord","metadata":{"name":"r","namespace":"garden","uid":"57b915cc"},"spec":{"class":"garden","name":"a.b","type":"local"}},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.000002Z"}
{"kind":"Event","level":"RequestResponse","verb":"patch","user":{"username":"system:serviceaccount:of-garden:a"},"objectRef":{"resource":"dnsrecords","namespace":"garden","name":"r","apiGroup":"extensions.gardener.cloud","subresource":"status"},"responseStatus":{"code":200},"requestObject":{"status":{}},"responseObject":{"metadata":{"name":"r","uid":"57b915cc"},"spec":{"class":"garden"}},"stageTimestamp":"2026-01-02T03:04:06Z"}
{"kind":"Event","level":"RequestResponse","verb":"patch","user":{"username":"system:serviceaccount:of-seed:a"},"objectRef":{"resource":"workers","namespace":"shoot--a--b","name":"w","apiGroup":"extensions.gardener.cloud","subresource":"status"},"responseStatus":{"code":200},"responseObject":{"metadata":{"name":"w","uid":"b"},"spec":{"type":"local"}},"stageTimestamp":"2026-01-02T03:04:06Z"}
{"kind":"Event","level":"Metadata","verb":"create","user":{"username":"system:serviceaccount:of-seed:a"},"objectRef":{"resource":"secrets","namespace":"garden","name":"s"},"responseStatus":{"code":201},"stageTimestamp":"2026-01-02T03:04:07Z"}
{"kind":"Event","level":"RequestResponse","verb":"delete","user":{"username":"system:serviceaccount:of-garden:a"},"objectRef":{"resource":"dnsrecords","namespace":"garden","name":"r","apiGroup":"extensions.gardener.cloud"},"responseStatus":{"metadata":{},"status":"Success","details":{"name":"r"},"code":200},"responseObject":{"kind":"Status","metadata":{},"status":"Success"},"stageTimestamp":"2026-01-02T03:04:08Z"}
{"kind":"Event","verb":"watch","user":{"username":"admin"}}
`

func instances() (garden, seed Instance) {
	garden = Instance{Name: "garden", Classes: []string{"garden"}, In: func(namespace string) bool { return namespace == "of-garden" }}
	seed = Instance{Name: "seed", Classes: []string{"seed", "shoot"}, In: func(namespace string) bool { return namespace == "of-seed" }}
	return garden, seed
}

func TestEventsAreReadUpToAHalfWrittenLine(t *testing.T) {
	g := NewWithT(t)
	events, err := Parse(strings.NewReader(lines+`{"kind":"Event","verb":"cre`), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(events).To(HaveLen(6))
	g.Expect(events[0].ObjectRef).To(Equal(Object{Group: ExtensionsGroup, Resource: "dnsrecords", Namespace: "garden", Name: "r"}))
	g.Expect(events[0].Done).To(BeTemporally(">", events[0].Received))
	g.Expect([]bool{events[0].IsWrite(), events[0].Succeeded()}).To(Equal([]bool{true, true}))
	g.Expect([]bool{events[5].IsWrite(), events[5].Succeeded()}).To(Equal([]bool{false, false}))
	g.Expect(events[1].String()).To(ContainSubstring("patch dnsrecords/status garden/r: 200 by system:serviceaccount:of-garden:a"))
}

func TestEventsAreFiltered(t *testing.T) {
	g := NewWithT(t)
	events, err := Parse(strings.NewReader(lines), func(e Event) bool { return e.User.Username == "admin" && e.IsWrite() })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(events).To(HaveExactElements(HaveField("Verb", "create")))
}

func TestABrokenLineIsAnError(t *testing.T) {
	_, err := Parse(strings.NewReader("{}\nnot JSON\n"), nil)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("reading line 2 of the audit log")))
}

func TestAllFilesOfALogAreReadInTheirOrder(t *testing.T) {
	g := NewWithT(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	line := func(verb string) []byte { return []byte(`{"verb":"` + verb + `"}` + "\n") }
	zipped := &bytes.Buffer{}
	writer := gzip.NewWriter(zipped)
	_, err := writer.Write(line("first"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(writer.Close()).To(Succeed())
	folder := filepath.Dir(log)
	for name, content := range map[string][]byte{
		"audit.log": line("fourth"), "audit-2026-01-03T00-00-00.000.log": line("third"), "audit-2026-01-01T00-00-00.000.log.gz": zipped.Bytes(),
		// This one is being compressed.
		"audit-2026-01-02T00-00-00.000.log": line("second"), "audit-2026-01-02T00-00-00.000.log.gz": []byte("half"),
	} {
		g.Expect(os.WriteFile(filepath.Join(folder, name), content, 0o600)).To(Succeed())
	}
	events, err := ReadFolder(log, nil)
	g.Expect(err).NotTo(HaveOccurred())
	var verbs []string
	for _, event := range events {
		verbs = append(verbs, event.Verb)
	}
	g.Expect(verbs).To(Equal([]string{"first", "second", "third", "fourth"}))

	// A power cut has left a part of a line, on which the log goes on.
	g.Expect(os.WriteFile(log, []byte("{\"kind\":\"Event\",\"verb\":\x00\x00{\"kind\":\"Event\",\"verb\":\"fourth\"}\n"), 0o600)).To(Succeed())
	events, err = ReadFolder(log, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(events).To(And(HaveLen(4), ContainElement(HaveField("Verb", "fourth"))))

	g.Expect(os.Remove(log)).To(Succeed())
	_, err = ReadFolder(log, nil)
	g.Expect(err).To(MatchError(os.ErrNotExist))
}

func TestInstancesThatKeepToTheirClasses(t *testing.T) {
	g := NewWithT(t)
	events, err := Parse(strings.NewReader(lines), nil)
	g.Expect(err).NotTo(HaveOccurred())
	garden, seed := instances()
	judgement := Judge(events, garden, seed)
	g.Expect(judgement.Violations).To(BeEmpty())
	g.Expect(judgement.Writes).To(Equal(map[string]map[string]int{"garden": {"garden": 2}, "seed": {"shoot": 1}}))
	g.Expect(Shared(events, garden, seed)).To(BeEmpty())
	g.Expect(Created(events)).To(Equal(map[string]bool{"57b915cc": true}))
}

func TestAForgedLineIsFound(t *testing.T) {
	const (
		seedsUser   = `"user":{"username":"system:serviceaccount:of-seed:a"}`
		gardensUser = `"user":{"username":"system:serviceaccount:of-garden:a"}`
		record      = `"objectRef":{"resource":"dnsrecords","namespace":"garden","name":"r","apiGroup":"extensions.gardener.cloud","subresource":"status"}`
		unknown     = `"objectRef":{"resource":"dnsrecords","namespace":"garden","name":"unknown","apiGroup":"extensions.gardener.cloud"}`
		done        = `"stageTimestamp":"2026-01-02T03:04:09Z"`
		ok          = `"responseStatus":{"code":200}`
	)
	for _, test := range []struct{ name, line, violation string }{
		{
			name:      "the seed's instance writes an object of class garden",
			line:      `{"verb":"update",` + seedsUser + `,` + record + `,` + ok + `,"responseObject":{"metadata":{},"spec":{"class":"garden"}},` + done + `}`,
			violation: "it is of class garden, but the seed instance is for [seed shoot]",
		},
		{
			name:      "the garden's instance writes an object without class",
			line:      `{"verb":"patch",` + gardensUser + `,` + record + `,` + ok + `,"responseObject":{"metadata":{},"spec":{}},` + done + `}`,
			violation: "it is of class shoot, but the garden instance is for [garden]",
		},
		{
			name:      "the garden's instance writes an object of class seed",
			line:      `{"verb":"patch",` + gardensUser + `,` + record + `,` + ok + `,"responseObject":{"metadata":{},"spec":{"class":"seed"}},` + done + `}`,
			violation: "it is of class seed",
		},
		{
			name:      "the answer to a deletion has no object, but one before had",
			line:      `{"verb":"delete",` + seedsUser + `,` + record + `,` + ok + `,"responseObject":{"kind":"Status","metadata":{}},` + done + `}`,
			violation: "it is of class garden, but the seed instance",
		},
		{
			name:      "the log has no object at all",
			line:      `{"verb":"delete",` + seedsUser + `,` + unknown + `,` + ok + `,` + done + `}`,
			violation: "does not tell of which class",
		},
		{
			name:      "the answer is no more than the metadata",
			line:      `{"verb":"patch",` + seedsUser + `,` + unknown + `,` + ok + `,"responseObject":{"kind":"PartialObjectMetadata","metadata":{"name":"unknown"}},` + done + `}`,
			violation: "does not tell of which class",
		},
		{
			name: "a refused write changes nothing",
			line: `{"verb":"patch",` + seedsUser + `,` + record + `,"responseStatus":{"code":403},` + done + `}`,
		},
		{
			name: "somebody else writes",
			line: `{"verb":"patch","user":{"username":"system:serviceaccount:garden:of-seed"},` + record + `,` + ok + `,` + done + `}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			events, err := Parse(strings.NewReader(lines+test.line+"\n"), nil)
			g.Expect(err).NotTo(HaveOccurred())
			garden, seed := instances()
			violations := Judge(events, garden, seed).Violations
			if test.violation == "" {
				g.Expect(violations).To(BeEmpty())
				return
			}
			g.Expect(violations).To(ConsistOf(ContainSubstring(test.violation)))
		})
	}
}

func TestAnObjectThatTwoInstancesWriteIsFound(t *testing.T) {
	g := NewWithT(t)
	forged := `{"verb":"update","user":{"username":"system:serviceaccount:of-garden:a"},"objectRef":{"resource":"secrets","namespace":"garden","name":"s"},"responseStatus":{"code":200}}`
	events, err := Parse(strings.NewReader(lines+forged+"\n"), nil)
	g.Expect(err).NotTo(HaveOccurred())
	garden, seed := instances()
	g.Expect(Shared(events, garden, seed)).To(Equal([]Object{{Resource: "secrets", Namespace: "garden", Name: "s"}}))
}
