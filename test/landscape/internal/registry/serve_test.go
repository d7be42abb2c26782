// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

func TestOnlyTheMachineItselfPushes(t *testing.T) {
	const registry, pod = "172.18.255.1:5001", "10.244.0.9:41000"
	for _, test := range []struct {
		name, method, local, remote string
		want                        int
	}{
		{name: "nobody whose socket is not there", method: http.MethodPut, local: registry, remote: "172.18.255.1:41000", want: http.StatusForbidden},
		{name: "a pod reads", method: http.MethodGet, local: registry, remote: pod, want: http.StatusOK},
		{name: "a pod asks", method: http.MethodHead, local: registry, remote: pod, want: http.StatusOK},
		{name: "a pod does not push a manifest", method: http.MethodPut, local: registry, remote: pod, want: http.StatusForbidden},
		{name: "a pod does not begin an upload", method: http.MethodPost, local: registry, remote: pod, want: http.StatusForbidden},
		{name: "another machine does not delete", method: http.MethodDelete, local: registry, remote: "192.0.2.7:41000", want: http.StatusForbidden},
		{name: "anybody pushes to a registry in a container", method: http.MethodPut, local: "172.18.0.9:5001", remote: "172.18.0.1:41000", want: http.StatusOK},
	} {
		t.Run(test.name, func(t *testing.T) {
			handler := onlyHostPushes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), []string{"127.0.0.1:5001", registry, ":5001"}, t.TempDir())
			local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(test.local))
			request := httptest.NewRequest(test.method, "/v2/a/manifests/b", nil).WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, local))
			request.RemoteAddr = test.remote
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, request)
			NewWithT(t).Expect(response.Code).To(Equal(test.want))
		})
	}
}

func TestRootAndTheOwnerOfTheClonePush(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has programs of other users")
	}
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	address, folder := listener.Addr().String(), t.TempDir()
	server := httptest.NewUnstartedServer(onlyHostPushes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), []string{address}, folder))
	server.Listener = listener
	server.Start()
	defer server.Close()
	push := func(user uint32) string {
		_, port, _ := net.SplitHostPort(address)
		cmd := exec.Command("bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/$1; printf 'POST /v2/a/blobs/uploads/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n' >&3; head -1 <&3`, "push", port)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		out, err := cmd.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		return string(out)
	}
	const owner, other = 65533, 65532
	g.Expect(push(owner)).To(ContainSubstring("403"), "root has the folder")
	g.Expect(os.Chown(folder, owner, owner)).To(Succeed())
	g.Expect(push(owner)).To(ContainSubstring("200"))
	g.Expect(push(0)).To(ContainSubstring("200"))
	g.Expect(push(other)).To(ContainSubstring("403"))
}

func TestASocketThatIsClosedHasNoUser(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	client, err := net.Dial("tcp", listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	server, err := listener.Accept()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = server.Close() }()
	from, to := netip.MustParseAddrPort(client.LocalAddr().String()), netip.MustParseAddrPort(listener.Addr().String())
	g.Expect(userOf(from, to)).To(BeEquivalentTo(os.Getuid()))
	g.Expect(client.Close()).To(Succeed())
	_, err = userOf(from, to)
	g.Expect(err).To(MatchError(ContainSubstring("no socket is connected")))
}
