// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	// user is whom Gardener makes on a bastion.
	user = "gardener"
	// nobody has the addresses of documentation.
	nobody = "192.0.2.0/24"
)

// ourselves are the addresses that this machine may have to a bastion.
var ourselves = landscape.CurrentNetwork().Translate("172.18.0.0/16")

// bastionSpecs are those of a Bastion, which lets us log in to machines.
func bastionSpecs(cluster func() *shoot) {
	It("are reached by SSH through a bastion, from where it says alone", func(ctx SpecContext) {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		Expect(err).NotTo(HaveOccurred())
		signer, err := ssh.NewSignerFromKey(private)
		Expect(err).NotTo(HaveOccurred())
		authorized, err := ssh.NewPublicKey(public)
		Expect(err).NotTo(HaveOccurred())

		bastion := landscape.Create(ctx, l.Client, newBastion(ssh.MarshalAuthorizedKey(authorized)))
		landscape.EventuallySucceeded(ctx, l.Client, bastion)
		Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(bastion), bastion)).To(Succeed())
		Expect(bastion.Status.Ingress).To(HaveValue(HaveField("IP", beIn(addresses))))
		address := net.JoinHostPort(bastion.Status.Ingress.IP, "22")

		By("logging in to the bastion")
		var session *ssh.Client
		Eventually(func() (err error) {
			session, err = ssh.Dial("tcp", address, &ssh.ClientConfig{
				User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, Timeout: 5 * time.Second,
				HostKeyCallback: ssh.InsecureIgnoreHostKey(), // #nosec G106 -- it has just made its key.
			})
			return err
		}).Should(Succeed(), "the user data has run")
		DeferCleanup(func() { _ = session.Close() })

		By("reaching the SSH server of a machine from there")
		node := cluster().nodesOf(ctx, poolTwo)[0]
		Expect(banner(session, net.JoinHostPort(cluster().podOf(ctx, &node).Status.PodIP, "22"))).To(HavePrefix("SSH-2.0-"))

		By("being shut out when it is for others")
		change(ctx, l.Client, bastion, func() {
			bastion.Spec.Ingress = []extensionsv1alpha1.BastionIngressPolicy{{IPBlock: networkingv1.IPBlock{CIDR: nobody}}}
			metav1.SetMetaDataAnnotation(&bastion.ObjectMeta, v1beta1constants.GardenerOperation, v1beta1constants.GardenerOperationReconcile)
		})
		dial := func() error {
			conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			return err
		}
		Eventually(dial).Should(HaveOccurred())
		Consistently(dial, 3*time.Second).Should(HaveOccurred())

		By("leaving nothing behind")
		landscape.DeleteAndWait(ctx, l.Client, bastion)
		Expect(ofBastions(ctx)).To(BeEmpty())
	})
}

// newBastion is what gardenlet makes of a Bastion in the garden.
func newBastion(key []byte) *extensionsv1alpha1.Bastion {
	return &extensionsv1alpha1.Bastion{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"},
		Spec: extensionsv1alpha1.BastionSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			Ingress:     []extensionsv1alpha1.BastionIngressPolicy{{IPBlock: networkingv1.IPBlock{CIDR: ourselves}}},
			UserData: fmt.Appendf(nil, `#!/bin/bash
set -e
id %[1]s >/dev/null 2>&1 || useradd --create-home --shell /bin/bash %[1]s
install -d -m 0700 -o %[1]s -g %[1]s /home/%[1]s/.ssh
echo '%[2]s' >/home/%[1]s/.ssh/authorized_keys
chown %[1]s:%[1]s /home/%[1]s/.ssh/authorized_keys
`, user, key[:len(key)-1]),
		},
	}
}

// banner is how a server behind the bastion greets.
func banner(session *ssh.Client, address string) (string, error) {
	conn, err := session.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	greeting := make([]byte, 64)
	n, err := conn.Read(greeting)
	return string(greeting[:n]), err
}

// ofBastions are all objects of bastions.
func ofBastions(ctx context.Context) []string {
	GinkgoHelper()
	var names []string
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &networkingv1.NetworkPolicyList{}} {
		Expect(l.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"app": "bastion"})).To(Succeed())
		Expect(eachItem(list, func(obj client.Object) { names = append(names, fmt.Sprintf("%T %s", obj, obj.GetName())) })).To(Succeed())
	}
	return names
}
