// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mockcontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func deployment(name string, args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--foo--bar", Name: name}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "vpn"}, {Name: "kube-apiserver", Args: args}}
	return d
}

func TestMutate(t *testing.T) {
	args := []string{
		"--allow-privileged=true",
		"--egress-selector-config-file=/etc/kubernetes/egress/egress-selector-configuration.yaml",
		"--kubelet-preferred-address-types=InternalIP,Hostname,ExternalIP",
		"--kubelet-certificate-authority=/srv/kubernetes/ca-kubelet/bundle.crt",
		"--kubelet-client-certificate=/srv/kubernetes/apiserver-kubelet/tls.crt",
	}
	wanted := []string{
		"--allow-privileged=true",
		"--kubelet-preferred-address-types=ExternalDNS,InternalIP,Hostname,ExternalIP",
		"--kubelet-client-certificate=/srv/kubernetes/apiserver-kubelet/tls.crt",
	}
	deleted := deployment("kube-apiserver", args...)
	deleted.DeletionTimestamp = &metav1.Time{}

	for name, test := range map[string]struct {
		obj  client.Object
		want []string
	}{
		"the kube-apiserver calls kubelets directly, by name, without looking at certificates": {deployment("kube-apiserver", args...), wanted},
		"a second time changes nothing":                     {deployment("kube-apiserver", wanted...), wanted},
		"that of a shoot without workers calls no kubelets": {deployment("kube-apiserver", "--allow-privileged=true"), []string{"--allow-privileged=true"}},
		"other Deployments are left alone":                  {deployment("kube-scheduler", args...), args},
		"one that is deleted is left alone":                 {deleted, args},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect((&mutator{}).Mutate(t.Context(), test.obj, nil)).To(Succeed())
			g.Expect(test.obj.(*appsv1.Deployment).Spec.Template.Spec.Containers[1].Args).To(Equal(test.want))
		})
	}

	t.Run("a kube-apiserver without its container and other kinds do no harm", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect((&mutator{}).Mutate(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver"}}, nil)).To(Succeed())
		g.Expect((&mutator{}).Mutate(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver"}}, nil)).To(Succeed())
	})
}
