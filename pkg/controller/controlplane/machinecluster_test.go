// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	machinecluster "github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

// found is a cluster of machines that is found for a Secret, or not.
type found struct {
	cluster *machinecluster.Cluster
	err     error
}

func (f found) Get(_ context.Context, secret corev1.SecretReference, technicalID string) (*machinecluster.Cluster, error) {
	if secret.Name != "cloudprovider" || technicalID != namespace {
		return nil, errors.New("asked for something else")
	}
	return f.cluster, f.err
}

func newClusterOf(t *testing.T, secretNamespace string, clusters machinecluster.Clusters) *cluster {
	t.Helper()
	c := newServedCluster(t)
	cp := c.controlPlane()
	cp.Spec.SecretRef = corev1.SecretReference{Namespace: secretNamespace, Name: "cloudprovider"}
	NewWithT(t).Expect(c.Update(t.Context(), cp)).To(Succeed())
	c.opts.DeployCloudController, c.opts.Clusters = true, clusters
	c.restart()
	return c
}

func (c *cluster) cloudControllerConfig() string {
	c.t.Helper()
	config, _, err := unstructured.NestedString(c.objects(SeedName)["ConfigMap "+namespace+"/cloud-controller"].(*unstructured.Unstructured).Object, "data", "config.yaml")
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	return config
}

func TestCloudControllerIsToldWhereTheMachinesAre(t *testing.T) {
	t.Run("in the seed", func(t *testing.T) {
		g := NewWithT(t)
		c := newClusterOf(t, namespace, found{cluster: &machinecluster.Cluster{Namespace: namespace}})
		c.mustReconcile()
		g.Expect(c.cloudControllerConfig()).To(ContainSubstring("seed:\n  namespace: " + namespace + "\nshoot:"))
		g.Expect(c.objects(SeedName)).To(HaveKey("Role " + namespace + "/cloud-controller"))
	})

	t.Run("in another cluster", func(t *testing.T) {
		g := NewWithT(t)
		c := newClusterOf(t, namespace, found{cluster: &machinecluster.Cluster{Namespace: "infra-" + namespace, Remote: true}})
		c.mustReconcile()
		g.Expect(c.cloudControllerConfig()).To(ContainSubstring("namespace: infra-" + namespace + "\n"))
		g.Expect(c.cloudControllerConfig()).NotTo(ContainSubstring("allowedCIDRs"))
		g.Expect(c.objects(SeedName)).NotTo(HaveKey("Role " + namespace + "/cloud-controller"))
		g.Expect(c.requests).NotTo(ContainElement("live Node"), "the seed's nodes do not count")

		deployment := &appsv1.Deployment{}
		object := c.objects(SeedName)["Deployment "+namespace+"/cloud-controller"].(*unstructured.Unstructured).Object
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object, deployment)).To(Succeed())
		g.Expect(deployment.Spec.Template.Spec.Volumes).To(ContainElement(HaveField("Secret", And(Not(BeNil()), HaveField("SecretName", "cloudprovider")))))
	})

	t.Run("in another cluster, where those in the seed are from before", func(t *testing.T) {
		g := NewWithT(t)
		c := newClusterOf(t, namespace, found{cluster: &machinecluster.Cluster{Namespace: "infra-" + namespace, Remote: true}})
		former, other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lb-uid"}}, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-apiserver"}}
		g.Expect(c.Create(t.Context(), former)).To(Succeed())
		g.Expect(c.Create(t.Context(), other)).To(Succeed())
		c.mustReconcile()
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(former), former)).To(Satisfy(apierrors.IsNotFound))
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(other), other)).To(Succeed())
		g.Expect(c.controlPlane().Status.LastOperation.Description).To(ContainSubstring("waiting until 1 load balancers in the seed are gone"))
	})

	t.Run("in another cluster, of which the operator allows some", func(t *testing.T) {
		g := NewWithT(t)
		c := newClusterOf(t, namespace, found{cluster: &machinecluster.Cluster{Namespace: "infra-" + namespace, Remote: true}})
		c.opts.AllowedCIDRs = []string{"192.0.2.0/24", "2001:db8::/32"}
		c.restart()
		c.mustReconcile()
		g.Expect(c.cloudControllerConfig()).To(ContainSubstring(`allowedCIDRs: ["192.0.2.0/24","2001:db8::/32"]`))
	})

	t.Run("in another cluster, by a Secret that no pod of the shoot can use", func(t *testing.T) {
		g := NewWithT(t)
		c := newClusterOf(t, "garden", found{cluster: &machinecluster.Cluster{Namespace: "infra-" + namespace, Remote: true}})
		g.Expect(c.mustReconcile().RequeueAfter).NotTo(BeZero())
		g.Expect(c.controlPlane().Status.LastError.Description).To(ContainSubstring("the Secret garden/cloudprovider"))
		g.Expect(c.controlPlane().Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
		g.Expect(c.managedResource(SeedName)).To(BeNil())
	})

	t.Run("not at all if that is not known", func(t *testing.T) {
		g := NewWithT(t)
		c := newClusterOf(t, namespace, found{err: errors.New("no luck")})
		_, err := c.reconcile()
		g.Expect(err).To(MatchError(ContainSubstring("no luck")))
		g.Expect(c.managedResource(SeedName)).To(BeNil())
	})
}

func TestLoadBalancersOfOthersNeedNodePorts(t *testing.T) {
	for _, needed := range []bool{false, true} {
		g := NewWithT(t)
		c := newClusterOf(t, namespace, nil)
		c.opts.NodePorts = needed
		c.restart()
		c.mustReconcile()
		g.Expect(c.cloudControllerConfig()).To(WithTransform(func(config string) bool { return strings.Contains(config, "nodePorts: true") }, Equal(needed)))
	}
}

func TestOnlyASeedOfOneNodeIsSaidToBeOne(t *testing.T) {
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	for name, test := range map[string]struct {
		nodes    []client.Object
		fail     error
		expected bool
	}{
		"one node":             {[]client.Object{node("a")}, nil, true},
		"two nodes":            {[]client.Object{node("a"), node("b")}, nil, false},
		"nodes not to be seen": {[]client.Object{node("a")}, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClusterOf(t, namespace, nil)
			for _, node := range test.nodes {
				g.Expect(c.Create(t.Context(), node)).To(Succeed())
			}
			c.fail = func(_ string, obj client.Object) error {
				if _, ok := obj.(*corev1.Node); ok {
					return test.fail
				}
				return nil
			}
			c.mustReconcile()
			if test.expected {
				g.Expect(c.cloudControllerConfig()).To(ContainSubstring("oneNode: true"))
			} else {
				g.Expect(c.cloudControllerConfig()).NotTo(ContainSubstring("oneNode"))
			}
		})
	}

	t.Run("and an API server that does not answer is asked again", func(t *testing.T) {
		g := NewWithT(t)
		c := newClusterOf(t, namespace, nil)
		c.fail = func(_ string, obj client.Object) error {
			if _, ok := obj.(*corev1.Node); ok {
				return errors.New("no answer")
			}
			return nil
		}
		_, err := c.reconcile()
		g.Expect(err).To(MatchError(ContainSubstring("no answer")))
	})
}
