// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

func newTestHost(blocks ...networkingv1.IPBlock) *host {
	return &host{
		bastion: "cli-0", userData: []byte("#!/bin/bash\nid gardener || useradd gardener -mU\n"),
		image: image{reference: "registry.example/machine:1", version: "1.0.0"}, ingress: blocks,
	}
}

func TestObjectsAreThoseOfTheGoldenFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		host      *host
		nodePorts bool
	}{
		"both-families": {newTestHost(networkingv1.IPBlock{CIDR: "192.0.2.0/24", Except: []string{"192.0.2.128/25"}}, networkingv1.IPBlock{CIDR: "2001:db8::/64"}), false},
		"nobody":        {newTestHost(), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			key := keyOf("shoot--local--foo", tt.host.bastion)
			var out bytes.Buffer
			scheme := testScheme(t)
			for _, object := range []client.Object{tt.host.networkPolicy(key), tt.host.secret(key), tt.host.pod(key), tt.host.service(key, tt.nodePorts)} {
				gvk, err := apiutil.GVKForObject(object, scheme)
				g.Expect(err).NotTo(HaveOccurred())
				object.GetObjectKind().SetGroupVersionKind(gvk)
				data, err := yaml.Marshal(object)
				g.Expect(err).NotTo(HaveOccurred())
				out.WriteString("---\n")
				out.Write(data)
			}

			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				g.Expect(os.WriteFile(golden, out.Bytes(), 0o600)).To(Succeed())
			}
			expected, err := os.ReadFile(golden)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out.String()).To(Equal(string(expected)))
		})
	}
}
