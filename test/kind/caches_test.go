// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestCaches has nodes pull an image of a public registry by its cache, whose upstream is the cluster's registry here.
func TestCaches(t *testing.T) {
	m := newMachine(t)
	g := NewWithT(t)
	objects := func() string {
		return m.run("docker ps --all --format '{{.Names}}'; docker volume ls --quiet; docker network ls --format '{{.Name}}'; ls -d .kind 2>/dev/null || true")
	}
	before := objects()
	t.Cleanup(func() { _, _ = m.try("make kind-down KIND_CACHES=1") })
	pull := func() {
		m.run(`kubectl wait node --all --for condition=Ready --timeout 2m
kubectl run agent --image registry.k8s.io/probe/agent:test -- agent -http :8080
kubectl wait pod agent --for condition=Ready --timeout 2m || { kubectl describe pod agent; docker logs provider-local-cache-registry.k8s.io; exit 1; }`)
	}

	m.env = append(m.env, "CACHE_UPSTREAM=http://provider-local-registry:5002")
	m.run("make kind-up KIND_CACHES=1")
	m.run("docker tag $PROBE_IMAGE 127.0.0.1:5001/probe/agent:test && docker push --quiet 127.0.0.1:5001/probe/agent:test")
	pull()

	g.Expect(m.run("make kind-down")).To(ContainSubstring("the caches stay"))
	g.Expect(objects()).To(Equal(strings.Replace(before, "bridge", `provider-local-cache-europe-docker.pkg.dev
provider-local-cache-gcr.io
provider-local-cache-quay.io
provider-local-cache-registry.k8s.io
bridge`, 1)), "the cluster is gone, the caches are not")

	m.run("make kind-up # with the caches that are there")
	m.run("docker stop --time 1 provider-local-registry # which does not have the image")
	pull()

	m.run("make kind-down KIND_CACHES=1")
	g.Expect(objects()).To(Equal(before))
}
