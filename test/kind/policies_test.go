// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// Nobody may reach the server but friends, once there is the second policy.
const (
	denyAll = `kubectl apply -f - <<'POLICY'
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: deny-all
spec:
  podSelector:
    matchLabels: {app: server}
  policyTypes: [Ingress]
POLICY`
	allowFriends = `kubectl apply -f - <<'POLICY'
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: allow-friends
spec:
  podSelector:
    matchLabels: {app: server}
  ingress:
  - from:
    - podSelector:
        matchLabels: {app: friend}
    ports:
    - port: 8080
POLICY`
)

// TestNetworkPolicies has pods ask a server while policies come and go.
func TestNetworkPolicies(t *testing.T) {
	m := newMachine(t)
	g := NewWithT(t)
	m.run("make kind-up")
	m.run("docker tag $PROBE_IMAGE 127.0.0.1:5001/probe:test && docker push --quiet 127.0.0.1:5001/probe:test")
	m.run(`kubectl -n kube-system rollout status daemonset kube-network-policies --timeout 2m || { kubectl -n kube-system describe pods -l app=kube-network-policies; exit 1; }
kubectl apply -f test/kind/policies.yaml
kubectl wait pod --all --for condition=Ready --timeout 2m || { kubectl describe pods; exit 1; }`)
	address := func(pod string) string { return m.run("kubectl get pod " + pod + " -o jsonpath={.status.podIP}") }

	const passes, isDropped = `"name":"server"`, "deadline exceeded"
	expect := func(pod, what, why string) {
		t.Helper()
		for _, server := range []string{address("server") + ":8080", "server.default.svc.cluster.local"} {
			// Only the node is in the network of pods.
			ask := fmt.Sprintf(`docker exec gardener-local-control-plane timeout 5 bash -c "exec 3<>/dev/tcp/%s/8080; printf 'GET /fetch?url=http://%s HTTP/1.0\r\n\r\n' >&3; cat <&3"`, address(pod), server)
			g.Eventually(func() (string, error) { return m.try(ask) }).WithTimeout(time.Minute).WithPolling(time.Second).
				Should(ContainSubstring(what), "%s: %s asks %s", why, pod, server)
		}
	}
	expect("friend", passes, "there is no policy")
	expect("stranger", passes, "there is no policy")
	m.run(denyAll)
	expect("friend", isDropped, "nobody may come in")
	expect("stranger", isDropped, "nobody may come in")
	m.run(allowFriends)
	expect("friend", passes, "friends may come in")
	expect("stranger", isDropped, "only friends may come in")
	m.run("kubectl delete networkpolicies --all")
	expect("stranger", passes, "there is no policy any more")
	m.run("make kind-down")
}
