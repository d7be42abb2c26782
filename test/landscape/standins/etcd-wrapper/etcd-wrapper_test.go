// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.uber.org/zap"
)

// etcd starts within a second; all but a stuck test is far below this.
const patience = 30 * time.Second

// fakeSidecar answers as backup-restore does: the initialisation needs a start, and whoever reads its end puts it back.
type fakeSidecar struct {
	mu sync.Mutex
	// requests are the paths asked for, with their queries, without repetitions.
	requests []string
	state    string
	// failures is how many initialisations fail, and how many times /config can't be had.
	failures int
	yaml     string
}

func (f *fakeSidecar) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if asked := request.URL.RequestURI(); len(f.requests) == 0 || f.requests[len(f.requests)-1] != asked {
		f.requests = append(f.requests, asked)
	}
	switch request.URL.Path {
	case "/initialization/status":
		_, _ = io.WriteString(w, f.state)
		switch f.state {
		case stateInProgress:
			f.state = stateSuccessful
			if f.failures > 0 {
				f.state = stateFailed
				f.failures--
			}
		case stateSuccessful, stateFailed:
			f.state = stateNew
		}
	case "/initialization/start":
		f.state = stateInProgress
	case "/config":
		_, _ = io.WriteString(w, f.yaml)
	default:
		http.NotFound(w, request)
	}
}

func (f *fakeSidecar) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// member is one member and its folder, which outlives a run.
type member struct {
	opts    options
	sidecar *fakeSidecar
	yaml    string
	// scheme and client reach /readyz and /stop.
	scheme string
	client *http.Client
	// clientPort is etcd's; cert and key are files of all, where it is secure.
	clientPort int
	cert, key  string
}

func url(tls bool, host string, port int) string {
	scheme := "http"
	if tls {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// newMember makes a single member as etcd-druid configures it, with certificates for all or for none.
func newMember(t *testing.T, secure bool) *member {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	m := &member{
		sidecar: &fakeSidecar{state: stateNew}, scheme: "http", client: &http.Client{Timeout: patience},
		clientPort: freePort(t),
		opts:       options{ServerName: "localhost", Port: freePort(t), Marker: filepath.Join(dir, "exit_code")},
	}
	peer := freePort(t)
	server := httptest.NewUnstartedServer(m.sidecar)
	var security string
	if secure {
		m.scheme = "https"
		server.StartTLS()
		m.opts.BackupRestoreTLS = true
		m.opts.BackupRestoreCA = filepath.Join(dir, "sidecar.crt")
		bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		g.Expect(os.WriteFile(m.opts.BackupRestoreCA, bundle, 0o600)).To(Succeed())

		cert, err := transport.SelfCert(zap.NewNop(), filepath.Join(dir, "pki"), []string{"localhost:0", "127.0.0.1:0"}, 1, x509.ExtKeyUsageClientAuth)
		g.Expect(err).NotTo(HaveOccurred())
		m.cert, m.key = cert.CertFile, cert.KeyFile
		content, err := os.ReadFile(cert.CertFile)
		g.Expect(err).NotTo(HaveOccurred())
		pool := x509.NewCertPool()
		g.Expect(pool.AppendCertsFromPEM(content)).To(BeTrue())
		m.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
		for _, who := range []string{"client", "peer"} {
			security += fmt.Sprintf("%s-transport-security: {cert-file: %q, key-file: %q, trusted-ca-file: %q, client-cert-auth: true}\n",
				who, cert.CertFile, cert.KeyFile, cert.CertFile)
		}
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	m.opts.BackupRestore = server.Listener.Addr().String()
	// A field that only etcd-druid and backup-restore know must do no harm.
	m.yaml = fmt.Sprintf(`name: etcd-main-0
member-name-prefix: ""
data-dir: %[1]s/new.etcd
listen-client-urls: %[2]s://127.0.0.1:%[3]d
advertise-client-urls: %[2]s://localhost:%[3]d
listen-peer-urls: %[2]s://127.0.0.1:%[4]d
initial-advertise-peer-urls: %[2]s://localhost:%[4]d
initial-cluster: etcd-main-0=%[2]s://localhost:%[4]d
initial-cluster-state: new
unsafe-no-fsync: true
log-level: fatal
%[5]s`, dir, m.scheme, m.clientPort, peer, security)
	m.sidecar.yaml = m.yaml
	return m
}

// start runs the member; the channel has its error when it has ended.
func (m *member) start(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- run(ctx, m.opts) }()
	return done
}

// status is the answer's HTTP status, or 0 if there is none.
func (m *member) status(method, path string) func() int {
	return func() int {
		request, err := http.NewRequest(method, url(m.scheme == "https", "localhost", m.opts.Port)+path, nil)
		if err != nil {
			return 0
		}
		response, err := m.client.Do(request)
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
}

func TestMemberStartsStopsAndStartsAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		secure bool
	}{
		{name: "without certificates"},
		{name: "with certificates for clients, peers and backup-restore", secure: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			m := newMember(t, test.secure)
			ctx, stop := context.WithCancel(t.Context())
			done := m.start(ctx)
			g.Eventually(m.status(http.MethodGet, "/readyz"), patience).Should(Equal(http.StatusOK))
			g.Expect(m.sidecar.asked()).To(Equal([]string{
				"/initialization/status", "/initialization/start?mode=full", "/initialization/status", "/config",
			}))
			g.Expect(m.opts.Marker).NotTo(BeAnExistingFile(), "a crash from here on asks for a full check")
			g.Expect(m.status(http.MethodGet, "/stop")()).To(Equal(http.StatusMethodNotAllowed))
			stop()
			g.Eventually(done, patience).Should(Receive(BeNil()))
			g.Expect(os.ReadFile(m.opts.Marker)).To(BeEquivalentTo("terminated"))

			m.sidecar.requests = nil
			done = m.start(t.Context())
			g.Eventually(m.status(http.MethodGet, "/readyz"), patience).Should(Equal(http.StatusOK))
			g.Expect(m.sidecar.asked()).To(ContainElement("/initialization/start?mode=sanity"))
			g.Expect(m.status(http.MethodPost, "/stop")()).To(Equal(http.StatusOK))
			g.Eventually(done, patience).Should(Receive(BeNil()))
		})
	}
}

func TestMemberWaitsForBackupRestore(t *testing.T) {
	g := NewWithT(t)
	m := newMember(t, false)
	m.sidecar.failures = 1
	done := m.start(t.Context())
	g.Eventually(m.status(http.MethodGet, "/readyz"), patience).Should(Equal(http.StatusOK))
	g.Expect(m.sidecar.asked()).To(Equal([]string{
		"/initialization/status", "/initialization/start?mode=full", "/initialization/status", // Failed, then New again
		"/initialization/start?mode=full", "/initialization/status", "/config",
	}))
	g.Expect(m.status(http.MethodPost, "/stop")()).To(Equal(http.StatusOK))
	g.Eventually(done, patience).Should(Receive(BeNil()))
}

func TestWhoAsksItToStopIsAnswered(t *testing.T) {
	g := NewWithT(t)
	m := newMember(t, false)
	cfg, err := configuration(m.yaml)
	g.Expect(err).NotTo(HaveOccurred())
	stopping, closed := make(chan struct{}), make(chan struct{})
	// The handler goes on only after the listener is gone, when an end without patience would cut the connection.
	s, err := serve(m.opts, cfg, func() {
		close(stopping)
		g.Eventually(func() error {
			connection, err := net.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(m.opts.Port)))
			if err == nil {
				err = connection.Close()
			}
			return err
		}, patience).Should(MatchError(syscall.ECONNREFUSED))
	})
	g.Expect(err).NotTo(HaveOccurred())
	go func() {
		defer close(closed)
		<-stopping
		s.close()
	}()
	g.Expect(m.status(http.MethodPost, "/stop")()).To(Equal(http.StatusOK))
	g.Eventually(closed, patience).Should(BeClosed())
}

func TestWhoNeverEndsTheQuestionDoesNotHoldTheEnd(t *testing.T) {
	g := NewWithT(t)
	m := newMember(t, false)
	cfg, err := configuration(m.yaml)
	g.Expect(err).NotTo(HaveOccurred())
	s, err := serve(m.opts, cfg, func() {})
	g.Expect(err).NotTo(HaveOccurred())
	connection, err := net.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(m.opts.Port)))
	g.Expect(err).NotTo(HaveOccurred())
	defer connection.Close()
	_, err = io.WriteString(connection, "POST /stop HTTP/1.1\r\n")
	g.Expect(err).NotTo(HaveOccurred())

	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.close()
	}()
	g.Eventually(closed, s.http.ReadHeaderTimeout/2).Should(BeClosed(), "long before the header would have to be there")
	s.close()
}

func TestMemberEndsWhileItWaits(t *testing.T) {
	g := NewWithT(t)
	m := newMember(t, false)
	m.opts.BackupRestore = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	g.Eventually(m.start(ctx), patience).Should(Receive(BeNil()))
	g.Expect(m.opts.Marker).NotTo(BeAnExistingFile())
}

func TestMemberKeepsTheNoteOfACleanEndUntilEtcdStarts(t *testing.T) {
	g := NewWithT(t)
	m := newMember(t, false)
	g.Expect(os.WriteFile(m.opts.Marker, []byte("terminated\n"), 0o600)).To(Succeed())
	m.sidecar.yaml = "name: [no"
	g.Eventually(m.start(t.Context()), patience).Should(Receive(MatchError(ContainSubstring("reading the configuration"))))
	g.Expect(m.opts.Marker).To(BeAnExistingFile())
}

func TestMemberFailsIfEtcdCannotStart(t *testing.T) {
	g := NewWithT(t)
	m := newMember(t, false)
	m.sidecar.yaml = strings.Replace(m.yaml, "initial-cluster: etcd-main-0", "initial-cluster: somebody-else", 1)
	g.Expect(os.WriteFile(m.opts.Marker, []byte("terminated"), 0o600)).To(Succeed())
	g.Eventually(m.start(t.Context()), patience).Should(Receive(MatchError(ContainSubstring("starting etcd"))))
	g.Expect(m.opts.Marker).NotTo(BeAnExistingFile())
}

func TestResponsesAreBounded(t *testing.T) {
	g := NewWithT(t)
	sidecar := &fakeSidecar{yaml: strings.Repeat("#", maxResponse+1)}
	server := httptest.NewServer(sidecar)
	defer server.Close()
	b, err := newBackupRestore(options{BackupRestore: server.Listener.Addr().String()})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = b.get(t.Context(), "/config", patience)
	g.Expect(err).To(MatchError(ContainSubstring("more than 1048576 bytes")))
	_, err = b.get(t.Context(), "/nothing", patience)
	g.Expect(err).To(MatchError(ContainSubstring("404")))
}

func TestNobodyElseIsTakenForBackupRestore(t *testing.T) {
	g := NewWithT(t)
	m := newMember(t, true)
	m.opts.BackupRestoreCA = m.cert
	b, err := newBackupRestore(m.opts)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = b.get(t.Context(), "/config", patience)
	g.Expect(err).To(MatchError(ContainSubstring("certificate")))

	m.opts.BackupRestoreCA = m.key
	_, err = newBackupRestore(m.opts)
	g.Expect(err).To(MatchError(ContainSubstring("reading the CAs of backup-restore")))
}

func TestMarker(t *testing.T) {
	for _, test := range []struct{ name, content, want string }{
		{name: "a member without a note is checked in full", want: full},
		{name: "a SIGTERM needs a sanity check only", content: "terminated", want: sanity},
		{name: "a SIGINT needs a sanity check only", content: "interrupt\n", want: sanity},
		{name: "any other end is checked in full", content: "killed", want: full},
		{name: "a word that only contains a clean end is checked in full", content: "not terminated", want: full},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			m := marker(filepath.Join(t.TempDir(), "exit_code"))
			if test.content != "" {
				g.Expect(m.write(test.content)).To(Succeed())
			}
			g.Expect(m.mode()).To(Equal(test.want))
			g.Expect(m.remove()).To(Succeed())
			g.Expect(m.remove()).To(Succeed(), "what isn't there needs no removal")
		})
	}
}

func TestCommandLine(t *testing.T) {
	g := NewWithT(t)
	got, err := parse([]string{
		"start-etcd", "--backup-restore-host-port=etcd-main-local:8080", "--etcd-server-name=etcd-main-local", "--backup-restore-tls-enabled=true",
		"--backup-restore-ca-cert-bundle-path=/var/etcdbr/ssl/ca/bundle.crt", "--etcd-client-cert-path=/var/etcd/ssl/client/tls.crt",
		"--etcd-client-key-path=/var/etcd/ssl/client/tls.key", "--etcd-client-port=2379", "--etcd-wrapper-port=9095",
	})
	g.Expect(err).NotTo(HaveOccurred(), "these are the arguments of etcd-druid v0.37.0")
	g.Expect(got).To(Equal(options{
		BackupRestore: "etcd-main-local:8080", BackupRestoreTLS: true, BackupRestoreCA: "/var/etcdbr/ssl/ca/bundle.crt",
		ServerName: "etcd-main-local", Port: 9095, Marker: "/var/etcd/data/exit_code",
	}))

	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{name: "no command is refused", want: `the command must be "start-etcd"`},
		{name: "another command is refused", args: []string{"run"}, want: `the command must be "start-etcd"`},
		{name: "an unknown flag is refused", args: []string{command, "--nonsense"}, want: "flag provided but not defined"},
		{name: "an argument too many is refused", args: []string{command, "more"}, want: `unexpected argument "more"`},
		{name: "an address without a port is refused", args: []string{command, "--backup-restore-host-port=localhost"}, want: "missing port"},
		{name: "TLS without a CA is refused", args: []string{command, "--backup-restore-tls-enabled"}, want: "needs --backup-restore-ca-cert-bundle-path"},
		{name: "a port out of range is refused", args: []string{command, "--etcd-wrapper-port=0"}, want: "0 is not a port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(test.args)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.want)))
		})
	}
}
