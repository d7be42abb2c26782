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
			handler := onlyHostPushes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), []string{"127.0.0.1:5001", registry, ":5001"}, 0)
			local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(test.local))
			request := httptest.NewRequest(test.method, "/v2/a/manifests/b", nil).WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, local))
			request.RemoteAddr = test.remote
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, request)
			NewWithT(t).Expect(response.Code).To(Equal(test.want))
		})
	}
}

func TestOnlySomeUsersOfTheMachinePush(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	address, me := listener.Addr().String(), uint64(os.Getuid())
	push := func(users ...uint64) int {
		server := httptest.NewUnstartedServer(onlyHostPushes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), []string{address}, users...))
		server.Listener = listener
		server.Start()
		defer server.Close()
		answer, err := http.Post("http://"+address+"/v2/a/blobs/uploads/", "", nil)
		g.Expect(err).NotTo(HaveOccurred())
		defer answer.Body.Close()
		return answer.StatusCode
	}
	g.Expect(push(me)).To(Equal(http.StatusOK))
	listener, err = net.Listen("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(push(me + 1)).To(Equal(http.StatusForbidden))
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
