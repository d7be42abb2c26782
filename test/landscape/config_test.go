// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

func TestConfigure(t *testing.T) {
	const head = "apiVersion: landscape.local.gardener.cloud/v1alpha1\nkind: Landscape\n"
	for _, test := range []struct {
		name, file, want string
		until            string
		kubernetes       []string
	}{
		{name: "sets flags", file: head + "until: garden\nnetwork: 172.30.0.0/16\nkubernetes: [\"1.35\", \"1.34\"]\n", until: "garden", kubernetes: []string{"1.35", "1.34"}},
		{name: "takes a text as it is", file: head + "until: a [b] c\n", until: "a [b] c"},
		{name: "leaves out what has no value", file: head + "until:\nkubernetes: []\n"},
		{name: "loses against the command line", file: head + "components: [autoscaling]\n"},
		{name: "another version", file: "apiVersion: v1\nkind: Landscape\n", want: "expected apiVersion landscape.local.gardener.cloud/v1alpha1 and kind Landscape"},
		{name: "an unknown field", file: head + "untill: garden\n", want: "there is no field untill"},
		{name: "the file itself", file: head + "config: x\n", want: "there is no field config"},
		{name: "a field twice", file: head + "until: a\nuntil: b\n", want: `key "until" already set`},
		{name: "a wrong value", file: head + "network: 10.0.0.0/8\n", want: "network: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(t.TempDir(), "landscape.yaml")
			g.Expect(os.WriteFile(file, []byte(test.file), 0o600)).To(Succeed())
			cmd := upCommand()
			g.Expect(cmd.ParseFlags([]string{"--components", "observability"})).To(Succeed())
			err := configure(cmd, file)
			if test.want != "" {
				g.Expect(err).To(MatchError(And(ContainSubstring(file), ContainSubstring(test.want))))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			until, err := cmd.Flags().GetString("until")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(until).To(Equal(test.until))
			g.Expect(cmd.Flags().GetStringSlice("kubernetes")).To(ConsistOf(test.kubernetes))
			g.Expect(cmd.Flags().GetStringSlice("components")).To(ConsistOf("observability"))
		})
	}
	g := NewWithT(t)
	g.Expect(configure(upCommand(), "/nowhere")).To(MatchError(os.ErrNotExist))
}

func TestTheSchemaHasTheFlagsOfUp(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("landscape.schema.json")
	g.Expect(err).NotTo(HaveOccurred())
	var schema struct{ Properties map[string]any }
	g.Expect(json.Unmarshal(content, &schema)).To(Succeed())
	want := []string{"apiVersion", "kind"}
	upCommand().Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != configFlag {
			want = append(want, flag.Name)
		}
	})
	var have []string
	for name := range schema.Properties {
		have = append(have, name)
	}
	g.Expect(have).To(ConsistOf(want))
}
