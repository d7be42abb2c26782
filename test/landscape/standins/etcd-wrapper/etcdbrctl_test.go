// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// envBackupRestore names the program etcdbrctl of github.com/gardener/etcd-backup-restore, which `make test` builds.
const envBackupRestore = "TEST_ASSET_ETCDBRCTL"

// startBackupRestore runs the real sidecar of the member, with a store in a folder. It reads the configuration at
// /var/etcd/config only, so it sees a /var of its own.
func startBackupRestore(t *testing.T, m *member) {
	t.Helper()
	g := NewWithT(t)
	program := os.Getenv(envBackupRestore)
	g.Expect(program).To(BeAnExistingFile(), "%s has to name etcdbrctl; `make test` builds it", envBackupRestore)
	home, dir, port := t.TempDir(), filepath.Dir(m.opts.Marker), freePort(t)
	config := filepath.Join(home, "given.yaml")
	// As etcd-druid writes it for all members: the name and the advertised addresses are for backup-restore to choose from.
	yaml := strings.NewReplacer(
		"name: etcd-main-0", "name: etcd-config",
		"advertise-client-urls: ", "advertise-client-urls:\n  etcd-main-0:\n  - ",
		"initial-advertise-peer-urls: ", "initial-advertise-peer-urls:\n  etcd-main-0:\n  - ",
	).Replace(m.yaml)
	g.Expect(os.WriteFile(config, []byte(yaml), 0o600)).To(Succeed())
	output, err := os.Create(filepath.Join(home, "log"))
	g.Expect(err).NotTo(HaveOccurred())

	cmd := exec.Command("sh", "-ec", `mount -t tmpfs tmpfs /var; mkdir -p /var/etcd/config; cp "$CONFIG" /var/etcd/config/etcd.conf.yaml; exec "$@"`, "sh",
		program, "server", fmt.Sprintf("--server-port=%d", port), "--data-dir="+filepath.Join(dir, "new.etcd"),
		"--restoration-temp-snapshots-dir="+filepath.Join(dir, "restoration.temp"), "--snapstore-temp-directory="+filepath.Join(dir, "temp"),
		"--storage-provider=Local", "--store-container=bucket", "--store-prefix=etcd-main", "--use-etcd-wrapper=true",
		"--insecure-transport=true", "--insecure-skip-tls-verify=true",
		"--endpoints="+url(false, "localhost", m.clientPort), "--service-endpoints="+url(false, "localhost", m.clientPort),
	)
	cmd.Env = append(os.Environ(), "CONFIG="+config, "HOME="+home, "POD_NAME=etcd-main-0", "POD_NAMESPACE=garden")
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		if restricted, _ := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); strings.TrimSpace(string(restricted)) == "1" {
			t.Skip("AppArmor of this machine, such as Ubuntu 24.04, lets only root mount anything in a namespace: run it as root")
		}
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = output.Close()
		if content, err := os.ReadFile(output.Name()); t.Failed() && err == nil {
			t.Logf("backup-restore:\n%s", content)
		}
	})
	m.opts.BackupRestore = fmt.Sprintf("localhost:%d", port)
}

// fullSnapshot has backup-restore take a snapshot, once it has found etcd.
func (m *member) fullSnapshot() error {
	response, err := http.Get("http://" + m.opts.BackupRestore + "/snapshot/full")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("taking a snapshot: %s", response.Status)
	}
	return nil
}

func TestMemberIsRestoredByTheRealBackupRestore(t *testing.T) {
	g := NewWithT(t)
	m := newMember(t, false)
	startBackupRestore(t, m)
	ctx, stop := context.WithCancel(t.Context())
	done := m.start(ctx)
	g.Eventually(m.status(http.MethodGet, "/readyz"), patience).Should(Equal(http.StatusOK))

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url(false, "localhost", m.clientPort)}, Logger: zap.NewNop()})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = client.Close() }()
	_, err = client.Put(t.Context(), "/registry/shoots/garden-local/local", "sown")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(m.fullSnapshot, patience).Should(Succeed())
	stop()
	g.Eventually(done, patience).Should(Receive(BeNil()))

	// The volume is lost, and with it the note of the clean end.
	g.Expect(os.RemoveAll(filepath.Join(filepath.Dir(m.opts.Marker), "new.etcd"))).To(Succeed())
	g.Expect(os.Remove(m.opts.Marker)).To(Succeed())
	done = m.start(t.Context())
	g.Eventually(m.status(http.MethodGet, "/readyz"), patience).Should(Equal(http.StatusOK))
	got, err := client.Get(t.Context(), "/registry/shoots/garden-local/local")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Kvs).To(HaveLen(1))
	g.Expect(got.Kvs[0].Value).To(BeEquivalentTo("sown"))
	g.Expect(m.status(http.MethodPost, "/stop")()).To(Equal(http.StatusOK))
	g.Eventually(done, patience).Should(Receive(BeNil()))
}
