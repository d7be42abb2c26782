// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestCPUIsUserAndKernelTimeWhateverTheNameIs(t *testing.T) {
	g := NewWithT(t)
	cpu, err := parseCPU([]byte("42 (a b) c) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 7 7 20 0 9 0 100 1000 10"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cpu).To(Equal(2 * time.Second))

	_, err = parseCPU([]byte("42 (a) S 1"))
	g.Expect(err).To(HaveOccurred())
}

func TestMemoryOfAProcessThatIsAlive(t *testing.T) {
	g := NewWithT(t)
	memory, err := MemoryOf(os.Getpid())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(memory.Anonymous).To(And(BeNumerically(">", 100<<10), BeNumerically("<=", memory.Peak)))

	_, err = parseMemory([]byte("Name:\ta\nState:\tZ (zombie)\n"))
	g.Expect(err).To(MatchError(ContainSubstring("has ended")))
}

func TestAuditLogCountsTheRequestsOfAUserSinceAMark(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	file, err := os.Create(path)
	g.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	write := func(user, verb, resource, subresource string, code int) {
		_, err := fmt.Fprintf(file, `{"verb":%q,"user":{"username":%q},"objectRef":{"apiGroup":"g","resource":%q,"subresource":%q},"responseStatus":{"code":%d},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z"}`+"\n",
			verb, user, resource, subresource, code)
		g.Expect(err).NotTo(HaveOccurred())
	}
	write("a", "patch", "before", "", 200)

	log, err := OpenAuditLog(path, "a", "b")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = log.Close() }()
	write("a", "patch", "marked", "", 200)
	mark, err := log.Mark("a")
	g.Expect(err).NotTo(HaveOccurred())
	write("a", "patch", "things", "status", 200)
	write("a", "patch", "things", "status", 409)
	write("a", "create", "things", "", 409)
	write("a", "watch", "things", "", 200)
	write("a", "update", "leases", "", 200)
	write("b", "patch", "things", "", 200)
	write("c", "patch", "things", "", 200)
	_, err = file.WriteString(`{"verb":"patch","user":{"username":"a"},`)
	g.Expect(err).NotTo(HaveOccurred())

	got, err := log.Since(mark)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(Requests{
		{Verb: "patch", Resource: "things.g/status", Code: 200}: 1,
		{Verb: "patch", Resource: "things.g/status", Code: 409}: 1,
		{Verb: "create", Resource: "things.g", Code: 409}:       1,
	}))
	g.Expect(got.Conflicts()).To(Equal(1))
	g.Expect(got.ByVerb()).To(Equal(map[string]int{"patch status": 2, "create": 1}))

	_, err = file.WriteString(`"objectRef":{"resource":"late"},"responseStatus":{"code":200}}` + "\n")
	g.Expect(err).NotTo(HaveOccurred())
	got, err = log.Since(mark)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(HaveKeyWithValue(Request{Verb: "patch", Resource: "late", Code: 200}, 1), "the half line is read when it is whole")
}
