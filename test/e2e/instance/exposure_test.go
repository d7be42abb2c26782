// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"net"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

// The cluster of the instance plays two more: the self-hosted shoot, and the one in which its machines are pods. A probe stands in for
// a machine with an API server.
var _ = Describe("A SelfHostedShootExposure", func() {
	It("makes the machines of a self-hosted shoot reachable at one address", func(ctx SpecContext) {
		machines := machine.RemoteNamespace(shootNamespace)
		createNamespaces(ctx, []string{machines}, func(*corev1.Namespace) {})
		pod := landscape.ProbePod(machines, "machine-one", probeImage, "serve", "-name", "one", "-http", ":"+strconv.Itoa(httpPort))
		pod.Labels = machine.Labels("one")
		create(ctx, pod)
		landscape.EventuallyPodReady(ctx, c, pod)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())

		credentials := create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: shootNamespace, Name: "machines"},
			Data:       map[string][]byte{"kubeconfig": kubeconfigFor(ctx, machines)},
		})
		exposure := create(ctx, &extensionsv1alpha1.SelfHostedShootExposure{
			ObjectMeta: metav1.ObjectMeta{Namespace: shootNamespace, Name: "one"},
			Spec: extensionsv1alpha1.SelfHostedShootExposureSpec{
				DefaultSpec:    extensionsv1alpha1.DefaultSpec{Type: "local"},
				CredentialsRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: shootNamespace, Name: credentials.Name},
				Port:           httpPort,
				Endpoints: []extensionsv1alpha1.ControlPlaneEndpoint{{
					NodeName: pod.Name, Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: pod.Status.PodIP}},
				}},
			},
		})
		landscape.EventuallySucceeded(ctx, c, exposure)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(exposure), exposure)).To(Succeed())
		Expect(exposure.Status.Ingress).To(HaveLen(1))
		url := "http://" + net.JoinHostPort(exposure.Status.Ingress[0].IP, strconv.Itoa(httpPort))
		Eventually(func() (probe.Answer, error) { return probe.Fetch(ctx, url, "") }).Should(HaveField("Name", "one"), "kube-proxy forwards to the machine")

		By("leading to no address that is not the machine's")
		exposure.Spec.Endpoints[0].Addresses[0].Address = "10.1.2.3"
		metav1.SetMetaDataAnnotation(&exposure.ObjectMeta, v1beta1constants.GardenerOperation, v1beta1constants.GardenerOperationReconcile)
		Expect(c.Update(ctx, exposure)).To(Succeed())
		Eventually(get(ctx, exposure)).Should(HaveField("Status.LastError", HaveValue(HaveField("Description", ContainSubstring("no InternalIP of a machine")))))

		By("leaving nothing behind")
		landscape.DeleteAndWait(ctx, c, exposure)
		for _, list := range []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &networkingv1.NetworkPolicyList{}} {
			Expect(c.List(ctx, list, client.InNamespace(machines))).To(Succeed())
			Expect(list).To(HaveField("Items", BeEmpty()))
		}
	})
})

// kubeconfigFor is that of a user with the permissions which the controller documents, in one namespace.
func kubeconfigFor(ctx context.Context, namespace string) []byte {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "exposure"}
	account := create(ctx, &corev1.ServiceAccount{ObjectMeta: meta})
	create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "create", "patch", "delete"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"create", "patch", "delete"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"create", "patch", "delete"}},
	}})
	create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
	})
	token, err := clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	authorities := named[*corev1.ConfigMap](namespace, "kube-root-ca.crt")
	Expect(c.Get(ctx, client.ObjectKeyFromObject(authorities), authorities)).To(Succeed())

	slices := &discoveryv1.EndpointSliceList{}
	Expect(c.List(ctx, slices, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})).To(Succeed())
	Expect(slices.Items).NotTo(BeEmpty())
	server := net.JoinHostPort(slices.Items[0].Endpoints[0].Addresses[0], strconv.Itoa(int(*slices.Items[0].Ports[0].Port)))
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: meta.Name,
		Contexts:       map[string]*clientcmdapi.Context{meta.Name: {Cluster: meta.Name, AuthInfo: meta.Name}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{meta.Name: {Token: token.Status.Token}},
		Clusters: map[string]*clientcmdapi.Cluster{meta.Name: {
			Server: "https://" + server, TLSServerName: "kubernetes.default.svc", CertificateAuthorityData: []byte(authorities.Data["ca.crt"]),
		}},
	})
	Expect(err).NotTo(HaveOccurred())
	return kubeconfig
}
