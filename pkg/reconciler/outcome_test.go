// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
)

func TestAProviderStatusIsWrittenIfItSaysSomethingElse(t *testing.T) {
	g := NewWithT(t)
	provider := func(raw string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(raw)} }
	infra := newInfrastructure()
	infra.Status.ProviderStatus = provider(`{"kind":"Any","hostPath":"/a"}`)
	before, err := statusOf(infra)
	g.Expect(err).NotTo(HaveOccurred())
	op := &Operation[infrastructureType]{Object: infra, before: before}

	infra.Status.ProviderStatus = provider(`{"hostPath":"/a","kind":"Any"}`)
	g.Expect(op.isUnchanged()).To(BeTrue(), "the API server orders its fields otherwise")
	infra.Status.ProviderStatus = provider(`{"hostPath":"/b","kind":"Any"}`)
	g.Expect(op.isUnchanged()).To(BeFalse())
	changes, _, err := op.changes()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(changes)).To(MatchJSON(`{"providerStatus":{"hostPath":"/b"}}`))
}

func TestATextThatIsTooLongForAStatusIsCutAndWrittenOnce(t *testing.T) {
	for name, failure := range map[string]func(error) error{
		"an error": func(err error) error { return err },
		"one to be tried again": func(err error) error {
			return &reconcilerutils.RequeueAfterError{Cause: err, RequeueAfter: time.Minute}
		},
		"what an object waits for":   func(err error) error { return Waiting(err, time.Minute) },
		"what is no text but binary": func(err error) error { return fmt.Errorf("\xff\xfe%w", err) },
	} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, newCluster(nil), infra)
			attempts := 0
			e.do = func(context.Context, *Operation[infrastructureType]) error {
				attempts++
				return failure(errors.New(strings.Repeat("ä€", 1<<18) + fmt.Sprint(attempts)))
			}
			for range 2 {
				e.pass(time.Minute)
				_, _ = e.tryReconcile(infra)
			}
			e.read(infra)
			texts := []string{infra.Status.LastOperation.Description}
			if infra.Status.LastError != nil {
				texts = append(texts, infra.Status.LastError.Description)
			}
			for _, text := range texts {
				e.Expect(len(text)).To(And(BeNumerically("<=", 2<<10), BeNumerically(">", 1<<10)))
				e.Expect(utf8.ValidString(text)).To(BeTrue())
				e.Expect(text).To(HaveSuffix(" ..."))
			}
			e.requests = nil
			_, _ = e.tryReconcile(infra)
			e.Expect(attempts).To(Equal(3))
			e.Expect(e.requests).To(BeEmpty(), "the status says it already")
		})
	}
}

func TestShorten(t *testing.T) {
	for name, test := range map[string]struct {
		text, want string
	}{
		"a short text":    {"ä", "ä"},
		"no text":         {"", ""},
		"what is no text": {"a\xffb", "ab"},
		"what just fits":  {strings.Repeat("x", descriptionMax), strings.Repeat("x", descriptionMax)},
		"one byte more":   {strings.Repeat("x", descriptionMax+1), strings.Repeat("x", descriptionMax-4) + " ..."},
		"half a rune":     {strings.Repeat("x", descriptionMax-5) + "ää€€", strings.Repeat("x", descriptionMax-5) + " ..."},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Shorten(test.text)).To(Equal(test.want))
			g.Expect(Shorten(Shorten(test.text))).To(Equal(test.want))
		})
	}
}
