// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package cluster fills the fresh runtime cluster with what a kind cluster would have, and with what makes room for the
// stand-ins: DNS Service, StorageClass, admission policies.
package cluster

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
)

//go:embed files
var files embed.FS

// Provisioner is the name of the StorageClass's provisioner, which the status controller is.
const Provisioner = "landscape.provider-local/folder"

// NodeCPU and NodeMemory are how many processors and how much memory nodes claim to have: charts request what real seeds need, and
// a machine requests its type's memory. skaffold/extension/values-landscape.yaml has the same.
const (
	NodeCPU    = "400"
	NodeMemory = "400Gi"
)

// DNS renders the cluster's DNS Service and what its server may read.
func DNS(network layout.Network) ([]*unstructured.Unstructured, error) {
	return render(network, images.Table{}, Machine{}, false, "dns.yaml")
}

// Kind renders what a kind cluster lacks: metrics-server, and room for what Gardener requests.
func Kind() ([]*unstructured.Unstructured, error) {
	return render(layout.Network{}, images.Table{}, Machine{}, false, "capacity.yaml", "metrics-server.yaml")
}

// Machine describes the machine that runs the nodes.
type Machine struct {
	// LacksSysResource reports that the machine cannot give CAP_SYS_RESOURCE, as some virtual machines and containers.
	LacksSysResource bool
	// Processors is GOMAXPROCS of the programs in pods.
	Processors int
}

// Base renders everything else that is always there. table decides who is stood in for.
func Base(table images.Table, machine Machine) ([]*unstructured.Unstructured, error) {
	names := []string{"base.yaml", "capacity.yaml", "gateway.yaml", "ippools.yaml", "status-controller.yaml", "targets.yaml", "times.yaml", "versions.yaml"}
	return render(layout.Network{}, table, machine, false, append(names, machine.policies()...)...)
}

// Shoot renders what each shoot needs: what makes room for the stand-ins, and its system components small and quick; and what
// the stand-in for gateways may read, should it become a seed.
func Shoot(table images.Table, machine Machine) ([]*unstructured.Unstructured, error) {
	return render(layout.Network{}, table, machine, true, append(machine.policies(), "gateway.yaml")...)
}

// policies are the files with the admission policies that are in shoots, too.
func (m Machine) policies() []string {
	names := []string{"stand-ins.yaml", "processors.yaml", "readiness.yaml", "replicas.yaml"}
	if m.LacksSysResource {
		names = append(names, "capabilities.yaml")
	}
	return names
}

// ManagedSeed renders what a shoot needs besides that is to be a seed.
func ManagedSeed(table images.Table) ([]*unstructured.Unstructured, error) {
	return render(layout.Network{}, table, Machine{}, true, "status-controller.yaml", "versions.yaml")
}

// ShootManifests renders both as YAML for this machine. optional names the optional images that the landscape has.
func ShootManifests(optional []string) (shoot, managedSeed []byte, err error) {
	table, errTable := images.Load(optional)
	machine, errMachine := ThisMachine()
	shootObjects, errShoot := Shoot(table, machine)
	seedObjects, errSeed := ManagedSeed(table)
	if err := errors.Join(errTable, errMachine, errShoot, errSeed); err != nil {
		return nil, nil, err
	}
	shoot, errShoot = encode(shootObjects)
	managedSeed, errSeed = encode(seedObjects)
	return shoot, managedSeed, errors.Join(errShoot, errSeed)
}

// policyFunctions make the CEL expressions of the stand-ins' policy.
func policyFunctions(table images.Table) template.FuncMap {
	return template.FuncMap{
		// One boolean for every container of a list.
		"standsIn": func(containers string) string {
			// The literals of CEL are close enough to those of Go.
			return fmt.Sprintf("'%s.map(c, c.image.matches(%q) && !c.image.matches(%q))'", containers, table.StandInPattern(), table.RealPattern())
		},
		// The patches for a list of containers.
		"patch": func(field, containers, standsIn, mode string) string {
			var terms []string
			for _, gone := range []string{"readinessProbe", "livenessProbe", "startupProbe", "lifecycle"} {
				terms = append(terms, fmt.Sprintf(
					"variables.%s.transformList(i, c, variables.%s[i] && has(c.%s), JSONPatch{op: \"remove\", path: \"/spec/%s/\" + string(i) + \"/%s\"})",
					containers, standsIn, gone, field, gone))
			}
			for _, set := range [][2]string{{"command", `["/stub"]`}, {"args", "[" + mode + "]"}} {
				terms = append(terms, fmt.Sprintf(
					"variables.%s.transformList(i, c, variables.%s[i], JSONPatch{op: \"add\", path: \"/spec/%s/\" + string(i) + \"/%s\", value: %s})",
					containers, standsIn, field, set[0], set[1]))
			}
			return strings.Join(terms, "\n        + ")
		},
	}
}

// render renders templates below files/.
func render(network layout.Network, table images.Table, machine Machine, shoot bool, names ...string) ([]*unstructured.Unstructured, error) {
	parsed, err := template.New("").Option("missingkey=error").Funcs(policyFunctions(table)).ParseFS(files, "files/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("rendering the manifests: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, name := range names {
		var out bytes.Buffer
		if err := parsed.ExecuteTemplate(&out, name, map[string]any{
			"ClusterDNSIP": network.ClusterDNSIP(), "NodeIP": network.NodeIP(),
			"DNSUser": node.DNSUser, "StatusControllerUser": node.StatusControllerUser, "IPAMUser": node.IPAMUser, "Provisioner": Provisioner,
			"NodeCPU": NodeCPU, "NodeMemory": NodeMemory, "Processors": machine.Processors, "Shoot": shoot,
			"Optional": table.Optional, "Registry": fmt.Sprintf("%s:%d", layout.RegistryHost, layout.RegistryPort),
		}); err != nil {
			return nil, fmt.Errorf("rendering %s: %w", name, err)
		}
		objects, err := decode(name, out.Bytes())
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			all = append(all, object)
			// Each policy is in force wherever it matches.
			if object.GetKind() == "MutatingAdmissionPolicy" {
				all = append(all, &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": object.GetAPIVersion(), "kind": "MutatingAdmissionPolicyBinding",
					"metadata": map[string]any{"name": object.GetName()}, "spec": map[string]any{"policyName": object.GetName()},
				}})
			}
		}
	}
	return all, nil
}

// Read reads the objects of a file.
func Read(path string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(path) // #nosec G304 -- a file of this repository.
	if err != nil {
		return nil, fmt.Errorf("reading objects: %w", err)
	}
	return decode(path, content)
}

func encode(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, object := range objects {
		content, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(content)
	}
	return out.Bytes(), nil
}

func decode(name string, content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decoding %s: %w", name, err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", name, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
