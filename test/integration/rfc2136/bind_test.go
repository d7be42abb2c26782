// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"

	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

const (
	// envNamed names the variable with the path of BIND's server.
	envNamed = "TEST_ASSET_NAMED"
	// updateZone takes updates that are signed, openZone those that are not.
	updateZone, openZone = "example.org", "open.example"
)

// algorithms are those of the keys, whose names are the algorithms'.
var algorithms = []string{"hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"}

var (
	namedConf = template.Must(template.New("named.conf").Parse(`
options {
  directory "{{ .Dir }}";
  pid-file "{{ .Dir }}/named.pid";
  session-keyfile "{{ .Dir }}/session.key";
  listen-on port {{ .Port }} { 127.0.0.1; };
  listen-on-v6 { none; };
  recursion no;
  dnssec-validation no;
  notify no;
};
controls { };
{{- range .Algorithms }}
key "{{ . }}" { algorithm {{ . }}; secret "{{ $.Secret }}"; };
{{- end }}
key "powerless" { algorithm hmac-sha256; secret "{{ .Secret }}"; };
zone "{{ .UpdateZone }}" {
  type primary;
  file "{{ .UpdateZone }}.zone";
  update-policy {
{{- range .Algorithms }}
    grant "{{ . }}" zonesub ANY;
{{- end }}
  };
};
zone "{{ .OpenZone }}" {
  type primary;
  file "{{ .OpenZone }}.zone";
  allow-update { 127.0.0.1; };
};
`))
	zoneFile = `$TTL 60
@ SOA ns.invalid. admin.invalid. 1 3600 600 86400 60
@ NS ns.invalid.
`
)

// bind is a BIND 9 on a port of the loopback, whose zones are in a folder of its own.
type bind struct {
	address string
	binary  string
	dir     string
	logs    *os.File

	cmd  *exec.Cmd
	done chan struct{}
}

// newBind returns a BIND that does not run yet.
func newBind() *bind {
	GinkgoHelper()
	port, err := environment.FreePort()
	Expect(err).NotTo(HaveOccurred())
	b := &bind{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), binary: findNamed(), dir: GinkgoT().TempDir()}

	var conf bytes.Buffer
	Expect(namedConf.Execute(&conf, map[string]any{
		"Dir": b.dir, "Port": port, "Algorithms": algorithms, "Secret": secretOf(""), "UpdateZone": updateZone, "OpenZone": openZone,
	})).To(Succeed())
	Expect(os.WriteFile(filepath.Join(b.dir, "named.conf"), conf.Bytes(), 0o600)).To(Succeed())
	for _, zone := range []string{updateZone, openZone} {
		Expect(os.WriteFile(filepath.Join(b.dir, zone+".zone"), []byte(zoneFile), 0o600)).To(Succeed())
	}
	b.logs, err = os.Create(filepath.Join(b.dir, "log"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(b.logs.Close)
	return b
}

// findNamed returns the path of BIND's server. Debian has it where only root looks.
func findNamed() string {
	GinkgoHelper()
	name := os.Getenv(envNamed)
	if name == "" {
		name = "named"
	}
	path, err := exec.LookPath(name)
	if err != nil && name == "named" {
		path, err = exec.LookPath("/usr/sbin/named")
	}
	Expect(err).NotTo(HaveOccurred(), "BIND 9 is needed: install the package bind9 (Debian), or name its server by "+envNamed)
	return path
}

// secretOf returns a key in base64; another one for each salt.
func secretOf(salt string) string {
	return base64.StdEncoding.EncodeToString([]byte("not a secret, as it is in this test" + salt))
}

// start starts the server, with what its zones had when it was stopped.
func (b *bind) start(ctx context.Context) {
	GinkgoHelper()
	// The end of the server is the test's to decide, not that of a context.
	b.cmd = exec.CommandContext(context.WithoutCancel(ctx), b.binary, "-g", "-c", filepath.Join(b.dir, "named.conf")) // #nosec G204 -- the tester's own
	b.cmd.Stdout, b.cmd.Stderr = b.logs, b.logs
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(b.cmd.Start()).To(Succeed())
	done := make(chan struct{})
	b.done = done
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(done)
	}(b.cmd)
	Eventually(func() error {
		select {
		case <-done:
			return StopTrying("BIND has ended: " + b.log()).Wrap(errors.New("see its log"))
		default:
		}
		_, err := b.ask(ctx, updateZone, miekgdns.TypeSOA)
		return err
	}).Should(Succeed())
}

func (b *bind) log() string {
	log, err := os.ReadFile(b.logs.Name())
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// stop ends the server as its unit would, so that its zones are on disk.
func (b *bind) stop() {
	GinkgoHelper()
	b.signal(syscall.SIGTERM)
	Eventually(b.done).Should(BeClosed())
}

func (b *bind) signal(signal syscall.Signal) {
	GinkgoHelper()
	if err := b.cmd.Process.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
		Expect(err).NotTo(HaveOccurred())
	}
}

// ask returns the answer of the server by TCP.
func (b *bind) ask(ctx context.Context, name string, qtype uint16) (*miekgdns.Msg, error) {
	query := new(miekgdns.Msg).SetQuestion(miekgdns.Fqdn(name), qtype)
	reply, _, err := (&miekgdns.Client{Net: "tcp"}).ExchangeContext(ctx, query, b.address)
	return reply, err
}

// values returns "TTL DATA" of each record of a name and type, or the code of the answer.
func (b *bind) values(ctx context.Context, name, recordType string) []string {
	GinkgoHelper()
	reply, err := b.ask(ctx, name, miekgdns.StringToType[recordType])
	Expect(err).NotTo(HaveOccurred())
	if len(reply.Answer) == 0 {
		return []string{miekgdns.RcodeToString[reply.Rcode]}
	}
	var out []string
	for _, rr := range reply.Answer {
		header := rr.Header().String()
		out = append(out, fmt.Sprint(rr.Header().Ttl)+" "+strings.TrimPrefix(rr.String(), header))
	}
	return out
}

// serial returns the serial number of a zone, which grows with every change.
func (b *bind) serial(ctx context.Context, zone string) uint32 {
	GinkgoHelper()
	reply, err := b.ask(ctx, zone, miekgdns.TypeSOA)
	Expect(err).NotTo(HaveOccurred())
	Expect(reply.Answer).To(HaveLen(1))
	return reply.Answer[0].(*miekgdns.SOA).Serial
}
