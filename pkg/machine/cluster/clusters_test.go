// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

const technicalID = "shoot--local--foo"

var ref = corev1.SecretReference{Namespace: technicalID, Name: "cloudprovider"}

// kubeconfig returns one for a server, after changes.
func kubeconfig(server string, changes ...func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	cluster, user := clientcmdapi.NewCluster(), clientcmdapi.NewAuthInfo()
	cluster.Server, cluster.InsecureSkipTLSVerify, user.Token = server, true, "token"
	for _, change := range changes {
		change(cluster, user)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.AuthInfos["u"] = cluster, user
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	out, err := clientcmd.Write(*config)
	if err != nil {
		panic(err)
	}
	return out
}

func credentials(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: technicalID, Name: name}, Data: data}
}

func remoteCredentials(name, server string) *corev1.Secret {
	return credentials(name, map[string][]byte{"kubeconfig": kubeconfig(server)})
}

// identity makes a client comparable.
type identity struct{ client.Client }

// seed counts the reads of Secrets.
func seed(reads *atomic.Int32, objects ...client.Object) client.Client {
	return &identity{fakeclient.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			reads.Add(1)
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()}
}

func TestTheSeedIsMeant(t *testing.T) {
	config := &rest.Config{Host: "seed"}
	for name, test := range map[string]struct {
		ref   corev1.SecretReference
		reads int32
	}{
		"by a Secret without kubeconfig": {ref, 1},
		"without any reference":          {corev1.SecretReference{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var reads atomic.Int32
			c := seed(&reads, credentials("cloudprovider", map[string][]byte{"other": []byte("x")}))

			found, err := New(c, config).Get(t.Context(), test.ref, technicalID)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.Client).To(BeIdenticalTo(c))
			g.Expect(found.Config).To(BeIdenticalTo(config))
			g.Expect(found.Namespace).To(Equal(technicalID))
			g.Expect(found.Remote).To(BeFalse())
			g.Expect(reads.Load()).To(Equal(test.reads))
		})
	}
}

func TestAnotherClusterIsMeantByAKubeconfig(t *testing.T) {
	g := NewWithT(t)
	var reads atomic.Int32
	c := seed(&reads, remoteCredentials("cloudprovider", "https://example.org"))
	clusters := New(c, &rest.Config{Host: "seed", QPS: 7, Burst: 8, UserAgent: "local"})

	found, err := clusters.Get(t.Context(), ref, technicalID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Remote).To(BeTrue())
	g.Expect(found.Namespace).To(Equal("infra-" + technicalID))
	g.Expect(found.Config.Host).To(Equal("https://example.org"))
	g.Expect(found.Config.UserAgent).To(Equal("local"))
	g.Expect(found.Config.Timeout).To(BeZero(), "its transport knows how long a watch may take")

	again, err := clusters.Get(t.Context(), ref, "shoot--local--bar")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Client).To(BeIdenticalTo(found.Client))
	g.Expect(again.Namespace).To(Equal("infra-shoot--local--bar"))
	g.Expect(reads.Load()).To(Equal(int32(2)), "one for each call")
}

func TestAClientIsKeptUntilTheKubeconfigChanges(t *testing.T) {
	g := NewWithT(t)
	var reads atomic.Int32
	secret := remoteCredentials("cloudprovider", "https://example.org")
	c := seed(&reads, secret)
	clusters := newClusters(c, nil, 2, guard{})
	get := func() *Cluster {
		t.Helper()
		found, err := clusters.Get(t.Context(), ref, technicalID)
		g.Expect(err).NotTo(HaveOccurred())
		return found
	}

	first := get()
	secret.Labels = map[string]string{"any": "change"}
	secret.Data["other"] = []byte("change")
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	g.Expect(get().Client).To(BeIdenticalTo(first.Client))

	secret.Data["kubeconfig"] = kubeconfig("https://example.com")
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	second := get()
	g.Expect(second.Client).NotTo(BeIdenticalTo(first.Client))
	g.Expect(second.Config.Host).To(Equal("https://example.com"))

	delete(secret.Data, "kubeconfig")
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	g.Expect(get().Remote).To(BeFalse())
	g.Expect(clusters.kept()).To(BeZero())
	g.Expect(clusters.shared).To(BeEmpty())
}

// kept is how many clients are kept.
func (c *clusters) kept() int { return c.clients.Len() }

func TestClientsAreBounded(t *testing.T) {
	g := NewWithT(t)
	var reads atomic.Int32
	var objects []client.Object
	for i := range 4 {
		objects = append(objects, remoteCredentials(fmt.Sprint(i), fmt.Sprintf("https://%d.example.org", i)))
	}
	clusters := newClusters(seed(&reads, objects...), nil, 2, guard{})
	get := func(i int) client.Client {
		t.Helper()
		found, err := clusters.Get(t.Context(), corev1.SecretReference{Namespace: technicalID, Name: fmt.Sprint(i)}, technicalID)
		g.Expect(err).NotTo(HaveOccurred())
		return found.Client
	}

	first, second := get(0), get(1)
	g.Expect(get(0)).To(BeIdenticalTo(first))
	get(2)
	g.Expect(clusters.kept()).To(Equal(2))
	g.Expect(get(0)).To(BeIdenticalTo(first), "it was used after the other")
	g.Expect(get(1)).NotTo(BeIdenticalTo(second))
}

// newServer finds nothing, and tells when a connection is closed.
func newServer(t *testing.T) (*httptest.Server, <-chan struct{}) {
	t.Helper()
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = connState(closed)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, closed
}

func TestSecretsWithTheSameKubeconfigShareAClient(t *testing.T) {
	g := NewWithT(t)
	server, closed := newServer(t)

	var reads atomic.Int32
	one, two := remoteCredentials("one", server.URL), remoteCredentials("two", server.URL)
	c := seed(&reads, one, two)
	clusters := newClusters(c, nil, 4, guard{loopback: true})
	get := func(secret *corev1.Secret) client.Client {
		t.Helper()
		found, err := clusters.Get(t.Context(), corev1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}, technicalID)
		g.Expect(err).NotTo(HaveOccurred())
		return found.Client
	}

	shared := get(one)
	g.Expect(get(two)).To(BeIdenticalTo(shared))
	g.Expect(shared.Get(t.Context(), client.ObjectKey{Name: "any"}, &corev1.Namespace{})).NotTo(Succeed())

	one.Data["kubeconfig"] = kubeconfig("https://example.com")
	g.Expect(c.Update(t.Context(), one)).To(Succeed())
	g.Expect(get(one)).NotTo(BeIdenticalTo(shared))
	g.Expect(get(two)).To(BeIdenticalTo(shared))
	g.Consistently(closed, "100ms").ShouldNot(Receive(), "the other Secret still has the kubeconfig")

	two.Data["kubeconfig"] = kubeconfig("https://example.com")
	g.Expect(c.Update(t.Context(), two)).To(Succeed())
	g.Expect(get(two)).To(BeIdenticalTo(get(one)))
	g.Eventually(closed).Should(Receive(), "nobody has the kubeconfig any more")
	g.Expect(clusters.shared).To(HaveLen(1))
}

func TestConcurrentCallsShareOneClient(t *testing.T) {
	g := NewWithT(t)
	var reads atomic.Int32
	clusters := New(seed(&reads, remoteCredentials("cloudprovider", "https://example.org")), nil)

	clients := make([]client.Client, 32)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			if found, err := clusters.Get(context.Background(), ref, technicalID); err == nil {
				clients[i] = found.Client
			}
		})
	}
	group.Wait()
	g.Expect(clients[0]).NotTo(BeNil())
	for _, c := range clients {
		g.Expect(c).To(BeIdenticalTo(clients[0]))
	}
}

func TestTheConnectionsOfADroppedClientAreClosed(t *testing.T) {
	g := NewWithT(t)
	server, closed := newServer(t)

	var reads atomic.Int32
	secret := remoteCredentials("cloudprovider", server.URL)
	c := seed(&reads, secret)
	clusters := newClusters(c, nil, 2, guard{loopback: true})
	found, err := clusters.Get(t.Context(), ref, technicalID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Client.Get(t.Context(), client.ObjectKey{Name: "any"}, &corev1.Namespace{})).NotTo(Succeed())
	g.Expect(closed).NotTo(Receive(), "the connection is kept for the next request")

	secret.Data["kubeconfig"] = kubeconfig("https://example.com")
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	_, err = clusters.Get(t.Context(), ref, technicalID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(closed).Should(Receive())
}

func TestAServerDoesNotSendUsElsewhere(t *testing.T) {
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			g := NewWithT(t)
			var reached atomic.Bool
			elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
			defer elsewhere.Close()
			server := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL, code))
			defer server.Close()

			var reads atomic.Int32
			found, err := newClusters(seed(&reads, remoteCredentials("cloudprovider", server.URL)), nil, 2, guard{loopback: true}).Get(t.Context(), ref, technicalID)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.Client.Get(t.Context(), client.ObjectKey{Name: "any"}, &corev1.Namespace{})).NotTo(Succeed())

			// The driver and cloud-controller make clients of their own.
			own, err := rest.HTTPClientFor(found.Config)
			g.Expect(err).NotTo(HaveOccurred())
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			g.Expect(err).NotTo(HaveOccurred())
			response, err := own.Do(request)
			if err == nil {
				g.Expect(response.Body.Close()).To(Succeed())
			}
			g.Expect(err).To(MatchError(ContainSubstring("redirect")))
			g.Expect(reached.Load()).To(BeFalse())
		})
	}
}

func TestMistakesHaveACodeOfGardener(t *testing.T) {
	file := t.TempDir() + "/secret"
	type change = func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
	with := func(changes ...change) []byte { return kubeconfig("https://example.org", changes...) }

	for name, test := range map[string]struct {
		kubeconfig []byte
		message    string
	}{
		"an empty kubeconfig":       {[]byte{}, "it is empty"},
		"one that is no YAML":       {[]byte("\t{"), "not YAML with apiVersion v1 and kind Config"},
		"one that says nothing":     {[]byte("{}"), "no configuration"},
		"one with many elements":    {[]byte("users: [" + strings.Repeat("~,", 5000) + "~]"), "at most 4096"},
		"one of another kind":       {[]byte("apiVersion: v1\nkind: Pod\n"), "kind Config"},
		"one that is far too large": {[]byte(strings.Repeat("#", 256<<10+1)), "262145 bytes"},
		"one with aliases":          {[]byte("apiVersion: v1\nkind: Config\npreferences: &a {}\nextensions: [*a]\n"), "aliases"},
		"a CA in a file": {with(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthority, c.InsecureSkipTLSVerify = file, false
		}), "certificate-authority-data"},
		"a certificate in a file": {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = file }), "client certificate files are not supported"},
		"a key in a file":         {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = file }), "client key files are not supported"},
		"a token in a file":       {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = file }), "token files are not supported"},
		"a command": {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "touch"}
		}), "exec configurations are not supported"},
		"an auth provider": {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}), "auth provider"},
		"another user":            {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = "admin" }), "impersonation"},
		"another user's ID":       {with(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ImpersonateUID = "1" }), "impersonation"},
		"a server without TLS":    {kubeconfig("http://example.org"), "https"},
		"a server that is no URL": {kubeconfig("example.org:443"), "https"},
		"no server":               {kubeconfig(""), "https"},
		"a proxy":                 {with(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://proxy.example.org" }), "proxy-url"},
		"a CA that is none": {with(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData, c.InsecureSkipTLSVerify = []byte("x"), false
		}), "certificate"},
		"a context that is not there": {[]byte(strings.ReplaceAll(string(with()), "current-context: x", "current-context: y")), "context"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var reads atomic.Int32
			clusters := newClusters(seed(&reads, credentials("cloudprovider", map[string][]byte{"kubeconfig": test.kubeconfig})), nil, 2, guard{})

			_, err := clusters.Get(t.Context(), ref, technicalID)
			g.Expect(err).To(MatchError(And(ContainSubstring("kubeconfig in the Secret "+technicalID+"/cloudprovider can't be used: "), ContainSubstring(test.message))))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
			g.Expect(err).NotTo(MatchError(ContainSubstring("no such file")), "the file system was looked at")
			g.Expect(clusters.kept()).To(BeZero())
		})
	}
}

func TestCredentialsWithUserDataAreAMistake(t *testing.T) {
	g := NewWithT(t)
	var reads atomic.Int32
	secret := remoteCredentials("cloudprovider", "https://example.org")
	secret.Data["userData"] = []byte("#!/bin/sh")
	_, err := New(seed(&reads, secret), nil).Get(t.Context(), ref, technicalID)
	g.Expect(err).To(MatchError(ContainSubstring("the key userData, which would replace what machines run at boot: remove it")))
	g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
}

func TestReferencesThatLeadNowhere(t *testing.T) {
	for name, test := range map[string]struct {
		ref     corev1.SecretReference
		message string
	}{
		"are those to a Secret that is missing": {ref, "create it"},
		"are those without name":                {corev1.SecretReference{Namespace: technicalID}, "incomplete"},
		"are those without namespace":           {corev1.SecretReference{Name: "cloudprovider"}, "incomplete"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var reads atomic.Int32
			_, err := New(seed(&reads), nil).Get(t.Context(), test.ref, technicalID)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
		})
	}
}

func TestWhatIsNoMistakeHasNoCode(t *testing.T) {
	g := NewWithT(t)
	down := errors.New("connection refused")
	c := fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	}).Build()

	_, err := New(c, nil).Get(t.Context(), ref, technicalID)
	g.Expect(err).To(MatchError(down))
	g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(BeEmpty())

	_, err = New(c, nil).Get(t.Context(), ref, "")
	g.Expect(err).To(MatchError(ContainSubstring("technical ID")))
}

// BenchmarkGet is what each operation pays: a read of the Secret, here without the request, and a hash.
func BenchmarkGet(b *testing.B) {
	secret := remoteCredentials("cloudprovider", "https://example.org")
	c := fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			*obj.(*corev1.Secret) = *secret
			return nil
		},
	}).Build()
	clusters := New(c, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := clusters.Get(b.Context(), ref, technicalID); err != nil {
			b.Fatal(err)
		}
	}
}

func connState(closed chan<- struct{}) func(net.Conn, http.ConnState) {
	return func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			select {
			case closed <- struct{}{}:
			default:
			}
		}
	}
}
