// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package skaffold_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestTheMachineImageIsBuiltByTheEngineThatThereIs(t *testing.T) {
	const image = repository + "/gardener-extension-provider-local/machine:v1"
	const arguments = " --tag " + image + " --build-arg REGISTRY=registry.local.gardener.cloud:5001 /context"
	for _, test := range []struct {
		name      string
		programs  []string
		env       []string
		log, says string
	}{
		{
			name: "Docker", programs: []string{"docker", "podman"},
			log: "docker buildx version\ndocker buildx build --load" + arguments + "\ndocker push " + image + "\n",
		},
		{
			name: "Docker without buildx", programs: []string{"docker"}, env: []string{"BROKEN=buildx version"},
			log: "docker buildx version\ndocker build" + arguments + "\ndocker push " + image + "\n",
		},
		{
			name: "podman, which has to be told that the registry speaks plain HTTP", programs: []string{"podman"},
			log: "podman build" + arguments + "\npodman push --tls-verify=false " + image + "\n",
		},
		{
			name: "the one that is asked for, for another platform", programs: []string{"docker", "podman"}, env: []string{"CONTAINER_ENGINE=podman", "PLATFORMS=linux/arm64"},
			log: "podman build --tag " + image + " --build-arg REGISTRY=registry.local.gardener.cloud:5001 --platform linux/arm64 /context\npodman push --tls-verify=false " + image + "\n",
		},
		{
			name: "an image that the engine has", programs: []string{"docker"}, env: []string{"MACHINE_IMAGE=mine:1"},
			log: "docker tag mine:1 " + image + "\ndocker push " + image + "\n",
		},
		{
			name: "with the proxies of the environment", programs: []string{"docker"}, env: []string{"BROKEN=buildx version", "HTTPS_PROXY=http://proxy:3128", "no_proxy=local"},
			log: "docker buildx version\ndocker build --tag " + image + " --build-arg REGISTRY=registry.local.gardener.cloud:5001 --build-arg HTTPS_PROXY --build-arg no_proxy /context\ndocker push " + image + "\n",
		},
		{name: "none", says: "which takes Docker or podman"},
		{name: "nothing that is pushed when it can't be built", programs: []string{"docker"}, env: []string{"BROKEN=buildx build"},
			log: "docker buildx version\ndocker buildx build --load" + arguments + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			bin := t.TempDir()
			log := filepath.Join(bin, "log")
			for _, program := range test.programs {
				stub := "#!/bin/bash\necho \"${0##*/} $*\" >>" + log + "\n[[ \"$1 $2\" != \"${BROKEN:-}\" ]]\n"
				g.Expect(os.WriteFile(filepath.Join(bin, program), []byte(stub), 0o700)).To(Succeed()) // #nosec G306 -- a script
			}
			for _, program := range []string{"bash", "env", "dirname"} {
				path, err := exec.LookPath(program)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(os.Symlink(path, filepath.Join(bin, program))).To(Succeed())
			}
			cmd := exec.CommandContext(t.Context(), "./build")
			cmd.Dir = filepath.Join("images", "machine")
			cmd.Env = append([]string{"PATH=" + bin, "IMAGE=" + image, "BUILD_CONTEXT=/context"}, test.env...)
			out, err := cmd.CombinedOutput()
			if test.says != "" || len(test.env) > 0 && test.env[0] == "BROKEN=buildx build" {
				g.Expect(err).To(HaveOccurred())
			} else {
				g.Expect(err).NotTo(HaveOccurred(), string(out))
			}
			g.Expect(string(out)).To(ContainSubstring(test.says))
			if test.log != "" {
				g.Expect(os.ReadFile(log)).To(BeEquivalentTo(test.log))
			}
		})
	}
}
