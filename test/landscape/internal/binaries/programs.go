// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"path/filepath"
)

// Programs lists everything that the landscape builds, in the order in which it is built. root is the repository's folder.
func Programs(root string) []Program {
	landscape := filepath.Join(root, "test", "landscape")
	modules := filepath.Join(landscape, "modules")
	var programs []Program
	add := func(module, upstream string, versions []string, packages map[string]string, order ...string) {
		for _, name := range order {
			programs = append(programs, Program{
				Name: name, Dir: filepath.Join(modules, module), Package: packages[name], Module: upstream, Versions: versions,
			})
		}
	}

	const kubernetes = "k8s.io/kubernetes"
	packagesOfKubernetes := map[string]string{
		"etcd":                    "go.etcd.io/etcd/server/v3",
		"kube-apiserver":          kubernetes + "/cmd/kube-apiserver",
		"kubectl":                 kubernetes + "/cmd/kubectl",
		"kubelet":                 kubernetes + "/cmd/kubelet",
		"kube-controller-manager": kubernetes + "/cmd/kube-controller-manager",
		"kube-scheduler":          kubernetes + "/cmd/kube-scheduler",
		"kube-proxy":              kubernetes + "/cmd/kube-proxy",
	}
	add("kubernetes", kubernetes, kubernetesVersions(""), packagesOfKubernetes,
		"etcd", "kube-apiserver", "kubectl", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy")
	// The version that a shoot is updated from is the same code, linked anew: Gardener only looks at what it calls itself.
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"} {
		formerName := name + "-" + FormerKubernetes
		packagesOfKubernetes[formerName] = packagesOfKubernetes[name]
		add("kubernetes", kubernetes, kubernetesVersions("="+FormerKubernetes), packagesOfKubernetes, formerName)
	}

	const gardener = "github.com/gardener/gardener"
	commands := []string{
		"gardener-operator", "gardener-resource-manager", "gardener-apiserver", "gardener-controller-manager", "gardener-scheduler",
		"gardener-admission-controller", "gardenlet", "gardener-node-agent",
	}
	packages := map[string]string{}
	for _, name := range commands {
		packages[name] = gardener + "/cmd/" + name
	}
	add("gardener", gardener, []string{"k8s.io/component-base/version.gitVersion"}, packages, commands...)

	// Gardener's module pins it, as it has to be the version that Gardener's own code goes with.
	const machines = "github.com/gardener/machine-controller-manager"
	add("gardener", machines, []string{machines + "/pkg/version.Version"},
		map[string]string{"machine-controller-manager": machines + "/cmd/machine-controller-manager"}, "machine-controller-manager")

	const druid = "github.com/gardener/etcd-druid"
	add("etcd-druid", druid, []string{druid + "/internal/version.gitVersion"},
		map[string]string{"etcd-druid": druid + "/cmd"}, "etcd-druid")

	const backupRestore = "github.com/gardener/etcd-backup-restore"
	add("etcd-backup-restore", backupRestore, []string{backupRestore + "/pkg/version.Version"},
		map[string]string{"etcdbrctl": backupRestore}, "etcdbrctl")

	// The networking of shoots with machines; at the version of Gardener that it was made for, not at ours.
	const calico = "github.com/gardener/gardener-extension-networking-calico"
	add("networking-calico", calico, []string{"k8s.io/component-base/version.gitVersion"},
		map[string]string{"gardener-extension-networking-calico": calico + "/cmd/gardener-extension-networking-calico"},
		"gardener-extension-networking-calico")

	const metrics = "sigs.k8s.io/metrics-server"
	add("metrics-server", metrics, []string{"k8s.io/client-go/pkg/version.gitVersion"},
		map[string]string{"metrics-server": metrics + "/cmd/metrics-server"}, "metrics-server")

	const helm = "helm.sh/helm/v3"
	add("helm", helm, []string{helm + "/internal/version.version"}, map[string]string{"helm": helm + "/cmd/helm"}, "helm")

	const skaffold = "github.com/GoogleContainerTools/skaffold/v2"
	add("skaffold", skaffold, []string{skaffold + "/pkg/skaffold/version.version"},
		map[string]string{"skaffold": skaffold + "/cmd/skaffold"}, "skaffold")

	return append(programs,
		Program{Name: "coredns", Dir: filepath.Join(root, "skaffold", "images", "coredns"), Package: "."},
		Program{Name: "stub", Dir: landscape, Package: "./stub"},
		Program{Name: "etcd-wrapper", Dir: filepath.Join(landscape, "standins"), Package: "./etcd-wrapper"},
		Program{Name: "gateway", Dir: filepath.Join(landscape, "standins"), Package: "./gateway"},
		Program{Name: "vpn", Dir: filepath.Join(landscape, "standins"), Package: "./vpn"},
		Program{Name: "ipam", Dir: filepath.Join(landscape, "standins"), Package: "./ipam"},
		Program{Name: "calico-node", Dir: filepath.Join(landscape, "standins"), Package: "./calico-node"},
	)
}

// FormerKubernetes is the patch version from which shoots are updated to the one that is pinned.
const FormerKubernetes = "v1.36.2"

// kubernetesVersions are the variables by which Kubernetes knows its version: the API server reports it, and Gardener
// compares it. value is "=VERSION" for another than the pinned one.
func kubernetesVersions(value string) []string {
	var variables []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		variables = append(variables, pkg+".gitVersion"+value, pkg+".gitMajor=1", pkg+".gitMinor=36")
	}
	return variables
}
