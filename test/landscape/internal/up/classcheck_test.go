// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestClassCheck(t *testing.T) {
	const done = "2026-01-02T03:04:0%dZ"
	write := func(second int, namespace, class, object string) string {
		return fmt.Sprintf(`{"verb":"patch","user":{"username":"system:serviceaccount:%s:a"},"objectRef":{"resource":"extensions","namespace":"n","name":%q,"apiGroup":"extensions.gardener.cloud"},"responseStatus":{"code":200},"responseObject":{"metadata":{"name":%q},"spec":{"class":%q}},"stageTimestamp":%q}`+"\n",
			namespace, object, object, class, fmt.Sprintf(done, second))
	}
	secret := func(namespace string) string {
		return fmt.Sprintf(`{"verb":"update","user":{"username":"system:serviceaccount:%s:a"},"objectRef":{"resource":"secrets","namespace":"garden","name":"s"},"responseStatus":{"code":200},"stageTimestamp":%q}`+"\n", namespace, fmt.Sprintf(done, 5))
	}
	const garden, seed, other = "runtime-extension-foreign", "extension-foreign-ab1c2", "extension-foreign-other-ab1c2"
	right := write(1, garden, "garden", "a") + write(1, seed, "seed", "b") + write(1, seed, "", "c")
	for _, test := range []struct {
		name, log string
		since     time.Time
		shared    []string
		want      string
	}{
		{name: "instances that keep to their classes", log: right},
		{name: "another extension whose name goes on", log: right + write(2, other, "garden", "a")},
		{name: "an instance of the seed that writes for the garden", log: right + write(2, seed, "garden", "a"), want: "do not keep to their classes: 1 cases"},
		{name: "which was mended since", log: write(1, seed, "garden", "a") + write(2, garden, "garden", "a") + write(2, seed, "seed", "b"), since: time.Date(2026, 1, 2, 3, 4, 2, 0, time.UTC)},
		{name: "an object that both write", log: right + secret(garden) + secret(seed), want: "do not keep to their classes"},
		{name: "which they may", log: right + secret(garden) + secret(seed), shared: []string{"secrets/garden/*"}},
		{name: "a pattern that is none", log: right, shared: []string{"["}, want: "--shared [: syntax error in pattern"},
		{name: "an instance that did nothing", log: write(1, seed, "seed", "b"), want: "this proves nothing about foreign: that of the garden wrote to no extension object"},
		{name: "many wrong writes", log: right + string(bytes.Repeat([]byte(write(2, seed, "garden", "a")), 30)), want: "30 cases, of which 20 are above"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			var out bytes.Buffer
			l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Out: &out}
			g.Expect(os.MkdirAll(filepath.Dir(l.Layout.AuditLog()), 0o700)).To(Succeed())
			g.Expect(os.WriteFile(l.Layout.AuditLog(), []byte(test.log), 0o600)).To(Succeed())
			err := l.ClassCheck("foreign", test.since, test.shared)
			if test.want != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.want)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred(), out.String())
			g.Expect(out.String()).To(ContainSubstring("Both instances of foreign keep to the objects of their classes."))
		})
	}
	err := Landscape{Layout: layout.Layout{Root: t.TempDir()}}.ClassCheck("foreign", time.Time{}, nil)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("there is no audit log")))
}
