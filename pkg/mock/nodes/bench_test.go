// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// answering is an API server that answers any request with an empty object of the kind that it is about.
type answering struct{}

func (answering) RoundTrip(request *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, request.Body)
	body := []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod","resourceVersion":"6"}}`)
	if request.Method == http.MethodPost || bytes.Contains([]byte(request.URL.Path), []byte("/nodes/")) {
		body = []byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"node","resourceVersion":"6"}}`)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}, nil
}

// benchmarkShoot is a shoot with one pool, of which no Node exists, and a Node of its own for pods.
func benchmarkShoot(b *testing.B) (*shoot, *group) {
	b.Helper()
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: "http://benchmark", Transport: answering{}, QPS: -1})
	if err != nil {
		b.Fatal(err)
	}
	f := New(Options{Connect: func(_ context.Context, _ string) (*rest.Config, error) { return nil, nil }, Log: logr.Discard(), Kubelet: KubeletEndpoint{Host: "kubelet", Port: 10250}})
	s := newShoot(f.opts, client.ObjectKey{Namespace: "shoot--foo--bar", Name: "w"}, clients, "")
	b.Cleanup(s.stop)
	groups, err := groupsFor(testWorker(1), testCluster())
	if err != nil {
		b.Fatal(err)
	}
	s.want(groups, nil)
	add(b, s.nodes.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.0.0.0/16"}}}))
	return s, groups[0]
}

func add(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPodRuns is what a new pod costs until it runs, the API server aside.
func BenchmarkPodRuns(b *testing.B) {
	s, _ := benchmarkShoot(b)
	pod := testPod(func(p *corev1.Pod) { p.ResourceVersion = "5" })
	add(b, s.pods.GetStore().Add(pod))
	key := item{Namespace: pod.Namespace, Name: pod.Name}
	b.ReportAllocs()
	for b.Loop() {
		s.forget(key)
		add(b, s.syncPod(b.Context(), key))
	}
}

// BenchmarkPodStays is what an event costs of a pod that runs and stays as it is.
func BenchmarkPodStays(b *testing.B) {
	s, _ := benchmarkShoot(b)
	pod := runningPod(func(p *corev1.Pod) { p.ResourceVersion = "5" })
	add(b, s.pods.GetStore().Add(pod))
	b.ReportAllocs()
	for b.Loop() {
		add(b, s.syncPod(b.Context(), item{Namespace: pod.Namespace, Name: pod.Name}))
	}
}

// BenchmarkNodeCreated is what a new Node costs, the API server aside.
func BenchmarkNodeCreated(b *testing.B) {
	s, g := benchmarkShoot(b)
	b.ReportAllocs()
	for number := 0; b.Loop(); number++ {
		add(b, s.createNode(b.Context(), g, fmt.Sprintf("%s-%d", g.name, number%1000)))
	}
}

// BenchmarkNodeStays is what an event costs of a Node that is as it should be.
func BenchmarkNodeStays(b *testing.B) {
	s, g := benchmarkShoot(b)
	node := existingNode(s, g)
	add(b, s.nodes.GetStore().Add(node))
	s.plan()
	b.ReportAllocs()
	for b.Loop() {
		add(b, s.syncNode(b.Context(), item{Name: node.Name}))
	}
}
