// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

// authority signs certificates as Gardener does for the VPN.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca-vpn"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	a.certificate = sign(t, template, template, a.key, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	g := NewWithT(t)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	g.Expect(err).NotTo(HaveOccurred())
	certificate, err := x509.ParseCertificate(der)
	g.Expect(err).NotTo(HaveOccurred())
	return certificate
}

// issue writes tls.crt, tls.key and ca.crt into a folder, as they are mounted.
func (a *authority) issue(t *testing.T, name string, usage x509.ExtKeyUsage) string {
	t.Helper()
	g := NewWithT(t)
	key := newKey(t)
	certificate := sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, a.certificate, key, a.key)
	keyDER, err := x509.MarshalECPrivateKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: certificate.Raw},
		"tls.key": {Type: "EC PRIVATE KEY", Bytes: keyDER},
		"ca.crt":  {Type: "CERTIFICATE", Bytes: a.certificate.Raw},
	} {
		g.Expect(os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600)).To(Succeed())
	}
	return dir
}

func (a *authority) credentials(t *testing.T, name string, usage x509.ExtKeyUsage) credentials {
	t.Helper()
	c, err := loadCredentials(a.issue(t, name, usage))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { listener.Close() })
	return listener
}

// start runs something until the test ends, or until the function that is returned was called.
func start(t *testing.T, run func(context.Context)) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { run(ctx); close(ended) }()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func serve(t *testing.T, handle func(context.Context, net.Conn)) string {
	t.Helper()
	listener := listen(t)
	start(t, func(ctx context.Context) { _ = relay.Serve(ctx, listener, 100, handle) })
	return listener.Addr().String()
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// setup is everything between a kube-apiserver and a target in a shoot, on loopback.
type setup struct {
	authority *authority
	server    *server
	// tunnel and local are the addresses of the server, envoy is where kube-apiserver connects to.
	tunnel, local, envoy string
	stopServer           func()
	// gateway joins clients to the server if they ask with the right header.
	gateway string
	// joined counts the connections that the gateway took.
	joined *atomic.Int32
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	s := &setup{authority: newAuthority(t), joined: &atomic.Int32{}}
	own := s.authority.credentials(t, serverName, x509.ExtKeyUsageServerAuth)
	s.server = &server{tls: own.server(clientName)}
	tunnel, local := listen(t), listen(t)
	s.tunnel, s.local = tunnel.Addr().String(), local.Addr().String()
	s.stopServer = start(t, func(ctx context.Context) { _ = s.server.serve(ctx, tunnel, local) })
	s.envoy = serve(t, letIn(dial, s.local, own.server("")))
	s.gateway = serve(t, func(ctx context.Context, conn net.Conn) {
		relay.ServeRequest(conn, func(request *http.Request) (net.Conn, int) {
			if request.Header.Get("X-Gardener-Destination") != "outbound|1194||vpn-seed-server.shoot--a--b.svc.cluster.local" {
				return nil, http.StatusForbidden
			}
			s.joined.Add(1)
			upstream, err := dial(ctx, "tcp", s.tunnel)
			if err != nil {
				return nil, http.StatusServiceUnavailable
			}
			return upstream, http.StatusOK
		})
	})
	return s
}

func (s *setup) client(t *testing.T, name string) *client {
	t.Helper()
	return &client{
		gateway:  s.gateway,
		header:   http.Header{"X-Gardener-Destination": {"outbound|1194||vpn-seed-server.shoot--a--b.svc.cluster.local"}},
		tls:      s.authority.credentials(t, name, x509.ExtKeyUsageClientAuth).client(serverName),
		networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		dial:     dial,
		resolve: func(_ context.Context, _, host string) ([]netip.Addr, error) {
			switch host {
			case "node":
				return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("127.0.0.1")}, nil
			case "unknown":
				return nil, errors.New("no such host")
			}
			address, err := netip.ParseAddr(host)
			return []netip.Addr{address}, err
		},
	}
}

// ask connects to target as kube-apiserver does.
func (s *setup) ask(t *testing.T, target string) (net.Conn, error) {
	t.Helper()
	own := s.authority.credentials(t, "kube-apiserver-http-proxy-client", x509.ExtKeyUsageClientAuth)
	conn, err := (&tls.Dialer{Config: own.client(serverName)}).DialContext(t.Context(), "tcp", s.envoy)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	return relay.Connect(conn, target, nil)
}

// status is what comes of asking for a target.
func (s *setup) status(t *testing.T, target string) int {
	t.Helper()
	conn, err := s.ask(t, target)
	if refused := (*relay.StatusError)(nil); errors.As(err, &refused) {
		return refused.Code
	}
	if err != nil {
		return 0
	}
	conn.Close()
	return http.StatusOK
}

func TestTunnel(t *testing.T) {
	echo := func(t *testing.T) string {
		t.Helper()
		return serve(t, func(_ context.Context, conn net.Conn) {
			content, _ := io.ReadAll(conn)
			_, _ = conn.Write(append([]byte("echo "), content...))
		})
	}

	t.Run("joins kube-apiserver and what is in the shoot", func(t *testing.T) {
		g := NewWithT(t)
		s, target := newSetup(t), echo(t)
		start(t, s.client(t, clientName).run)
		g.Eventually(func() int { return s.status(t, target) }).Should(Equal(http.StatusOK))
		conn, err := s.ask(t, target)
		g.Expect(err).NotTo(HaveOccurred())
		large := make([]byte, 1<<20)
		_, err = conn.Write(large)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(closeWrite(conn)).To(Succeed())
		content, err := io.ReadAll(conn)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(content).To(HaveLen(len("echo ") + len(large)))
	})

	t.Run("is no open proxy", func(t *testing.T) {
		g := NewWithT(t)
		s, target := newSetup(t), echo(t)
		start(t, s.client(t, clientName).run)
		g.Eventually(func() int { return s.status(t, target) }).Should(Equal(http.StatusOK))
		_, port, err := net.SplitHostPort(target)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(s.status(t, "node:"+port)).To(Equal(http.StatusOK), "a name, one of whose addresses is in the shoot")
		g.Expect(s.status(t, "192.0.2.1:443")).To(Equal(http.StatusForbidden))
		g.Expect(s.status(t, "unknown:443")).To(Equal(http.StatusForbidden))
		g.Expect(s.status(t, "127.0.0.1")).To(Equal(http.StatusForbidden))
		gone := listen(t)
		g.Expect(gone.Close()).To(Succeed())
		g.Expect(s.status(t, gone.Addr().String())).To(Equal(http.StatusBadGateway))
	})

	t.Run("answers that there is none", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(newSetup(t).status(t, "127.0.0.1:443")).To(Equal(http.StatusServiceUnavailable))
	})

	t.Run("is made again when it breaks", func(t *testing.T) {
		g := NewWithT(t)
		s, target := newSetup(t), echo(t)
		start(t, s.client(t, clientName).run)
		g.Eventually(func() int { return s.status(t, target) }).Should(Equal(http.StatusOK))
		s.server.tunnels.lock.Lock()
		first := s.server.tunnels.all[0]
		s.server.tunnels.lock.Unlock()
		g.Expect(first.Close()).To(Succeed())
		g.Eventually(s.joined.Load).WithTimeout(5 * time.Second).Should(BeEquivalentTo(2))
		g.Eventually(func() int { return s.status(t, target) }).Should(Equal(http.StatusOK))
	})

	t.Run("leaves to a newer one, and takes its place when that is gone", func(t *testing.T) {
		g := NewWithT(t)
		s := newSetup(t)
		count := func() int {
			s.server.tunnels.lock.Lock()
			defer s.server.tunnels.lock.Unlock()
			return len(s.server.tunnels.all)
		}
		// What is dialled tells who serves.
		var served atomic.Value
		clientAs := func(name string) *client {
			c := s.client(t, clientName)
			c.resolve = func(context.Context, string, string) ([]netip.Addr, error) {
				served.Store(name)
				return nil, errors.New("nothing to reach")
			}
			return c
		}
		start(t, clientAs("old").run)
		g.Eventually(count).Should(Equal(1))
		stopNew := start(t, clientAs("new").run)
		g.Eventually(count).Should(Equal(2))
		g.Expect(s.status(t, "127.0.0.1:1")).To(Equal(http.StatusForbidden))
		g.Expect(served.Load()).To(Equal("new"))
		stopNew()
		g.Eventually(count).Should(Equal(1))
		g.Expect(s.status(t, "127.0.0.1:1")).To(Equal(http.StatusForbidden))
		g.Expect(served.Load()).To(Equal("old"))
		g.Expect(s.joined.Load()).To(BeEquivalentTo(2), "neither has to connect again")
	})

	t.Run("is kept no more than some times", func(t *testing.T) {
		g := NewWithT(t)
		s := newSetup(t)
		for range spareTunnels + 1 {
			c := s.client(t, clientName)
			start(t, func(ctx context.Context) { _ = c.tunnel(ctx) })
		}
		g.Eventually(s.joined.Load).Should(BeEquivalentTo(spareTunnels + 1))
		g.Eventually(func() int {
			s.server.tunnels.lock.Lock()
			defer s.server.tunnels.lock.Unlock()
			return len(s.server.tunnels.all)
		}).Should(Equal(spareTunnels))
	})

	t.Run("ends with what goes through it when the server ends", func(t *testing.T) {
		g := NewWithT(t)
		s := newSetup(t)
		waiting := serve(t, func(_ context.Context, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		start(t, s.client(t, clientName).run)
		g.Eventually(func() int { return s.status(t, waiting) }).Should(Equal(http.StatusOK))
		conn, err := s.ask(t, waiting)
		g.Expect(err).NotTo(HaveOccurred())
		s.stopServer()
		_, err = io.ReadAll(conn)
		g.Expect(err == nil || errors.Is(err, io.ErrUnexpectedEOF)).To(BeTrue(), "%v", err)
	})
}

func closeWrite(conn net.Conn) error {
	return conn.(interface{ CloseWrite() error }).CloseWrite()
}

func TestCertificatesAreVerified(t *testing.T) {
	s := newSetup(t)
	try := func(t *testing.T, c *client) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return c.tunnel(ctx)
	}
	t.Run("a client of another name is no tunnel", func(t *testing.T) {
		NewWithT(t).Expect(try(t, s.client(t, "kube-apiserver-http-proxy-client"))).To(MatchError(ContainSubstring("bad certificate")))
	})
	t.Run("a client of another authority is no tunnel", func(t *testing.T) {
		c := s.client(t, clientName)
		other := newAuthority(t).credentials(t, clientName, x509.ExtKeyUsageClientAuth)
		c.tls.Certificates = []tls.Certificate{other.certificate}
		NewWithT(t).Expect(try(t, c)).To(HaveOccurred())
	})
	t.Run("a server of another authority gets no tunnel", func(t *testing.T) {
		c := s.client(t, clientName)
		c.tls.RootCAs = newAuthority(t).credentials(t, clientName, x509.ExtKeyUsageClientAuth).authorities
		NewWithT(t).Expect(try(t, c)).To(MatchError(ContainSubstring("unknown authority")))
	})
	t.Run("a server of another name gets no tunnel", func(t *testing.T) {
		c := s.client(t, clientName)
		c.tls.ServerName = "other"
		NewWithT(t).Expect(try(t, c)).To(MatchError(ContainSubstring("not other")))
	})
	t.Run("a gateway that doesn't know us makes no tunnel", func(t *testing.T) {
		c := s.client(t, clientName)
		c.header = http.Header{}
		NewWithT(t).Expect(try(t, c)).To(MatchError(ContainSubstring("403")))
	})
	t.Run("who has no certificate is not let in", func(t *testing.T) {
		g := NewWithT(t)
		own := s.authority.credentials(t, "some", x509.ExtKeyUsageClientAuth).client(serverName)
		own.Certificates = nil
		conn, err := (&tls.Dialer{Config: own}).DialContext(t.Context(), "tcp", s.envoy)
		if err == nil {
			defer conn.Close()
			_, err = relay.Connect(conn, "127.0.0.1:443", nil)
		}
		g.Expect(err).To(HaveOccurred())
	})
}

func TestProbes(t *testing.T) {
	g := NewWithT(t)
	s := newSetup(t)
	for _, path := range []string{"readiness", "liveness"} {
		g.Expect(program.Ask(t.Context(), "tcp", s.local, "/"+path)).To(Succeed())
	}
	g.Expect(program.Ask(t.Context(), "tcp", s.local, "/other")).To(MatchError(ContainSubstring("404")))
	s.stopServer()
	g.Expect(program.Ask(t.Context(), "tcp", s.local, "/liveness")).NotTo(Succeed())
}

func TestNetworksOfTheShoot(t *testing.T) {
	g := NewWithT(t)
	networks := func(pods, services string) ([]netip.Prefix, error) {
		return shootNetworks(func(name string) string {
			return map[string]string{"SHOOT_POD_NETWORKS": pods, "SHOOT_SERVICE_NETWORKS": services}[name]
		})
	}
	g.Expect(networks("10.0.0.0/16, 10.1.0.0/16", "10.2.0.0/16")).To(Equal([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16"),
	}))
	g.Expect(networks("", "")).To(BeEmpty())
	_, err := networks("", "10.0.0.0")
	g.Expect(err).To(MatchError(ContainSubstring("reading SHOOT_SERVICE_NETWORKS")))
}

func TestAddressesThatAreNotOfTheShootAreNotBehindTheTunnel(t *testing.T) {
	g := NewWithT(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	networks, err := shootNetworks(func(name string) string { return map[string]string{"SHOOT_NODE_NETWORKS": "10.250.0.0/16"}[name] })
	g.Expect(err).NotTo(HaveOccurred())
	s := &server{networks: networks}

	conn, err := s.connect(t.Context(), listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conn.Close()).To(Succeed())
	for _, target := range []string{"10.250.0.7:10250", "name:10250"} {
		_, err = s.connect(t.Context(), target)
		g.Expect(err).To(MatchError(errNoTunnel), target)
	}
}
