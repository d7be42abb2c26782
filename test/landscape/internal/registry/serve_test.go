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
	"testing"

	. "github.com/onsi/gomega"
)

func TestOnlyTheMachineItselfPushes(t *testing.T) {
	const registry, pod = "172.18.255.1:5001", "10.244.0.9:41000"
	for _, test := range []struct {
		name, method, local, remote string
		want                        int
	}{
		{name: "a program on the machine", method: http.MethodPut, local: registry, remote: "172.18.255.1:41000", want: http.StatusOK},
		{name: "a program on the machine by loopback", method: http.MethodPost, local: "127.0.0.1:5001", remote: "127.0.0.1:41000", want: http.StatusOK},
		{name: "a pod reads", method: http.MethodGet, local: registry, remote: pod, want: http.StatusOK},
		{name: "a pod asks", method: http.MethodHead, local: registry, remote: pod, want: http.StatusOK},
		{name: "a pod does not push a manifest", method: http.MethodPut, local: registry, remote: pod, want: http.StatusForbidden},
		{name: "a pod does not begin an upload", method: http.MethodPost, local: registry, remote: pod, want: http.StatusForbidden},
		{name: "another machine does not delete", method: http.MethodDelete, local: registry, remote: "192.0.2.7:41000", want: http.StatusForbidden},
		{name: "anybody pushes to a registry in a container", method: http.MethodPut, local: "172.18.0.9:5001", remote: "172.18.0.1:41000", want: http.StatusOK},
	} {
		t.Run(test.name, func(t *testing.T) {
			handler := onlyHostPushes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), []string{"127.0.0.1:5001", registry, ":5001"})
			local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(test.local))
			request := httptest.NewRequest(test.method, "/v2/a/manifests/b", nil).WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, local))
			request.RemoteAddr = test.remote
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, request)
			NewWithT(t).Expect(response.Code).To(Equal(test.want))
		})
	}
}
