// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// idleTimeout ends an idle port-forward.
const idleTimeout = 10 * time.Minute

// portForward opens a port-forward, as a kubelet does it: the connection becomes one of SPDY, on which the client opens a
// stream for data and one for an error for each connection to its own port. The second is told that nobody listens; of the first
// nothing comes.
func (s *server) portForward(w http.ResponseWriter, request *http.Request) {
	if _, err := httpstream.Handshake(request, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		s.log.V(1).Info("A client does not speak our protocol", "reason", err.Error())
		return // Handshake has answered.
	}
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, request, func(stream httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			s.serve(stream)
		}()
		return nil
	})
	if connection == nil {
		return // The upgrader has answered.
	}
	connection.SetIdleTimeout(idleTimeout)
	<-connection.CloseChan()
	if err := connection.Close(); err != nil {
		s.log.V(1).Info("A port-forward did not end well", "reason", err.Error())
	}
}

func (s *server) serve(stream httpstream.Stream) {
	defer func() { _ = stream.Close() }()
	if stream.Headers().Get(corev1.StreamType) != corev1.StreamTypeError {
		return
	}
	text := fmt.Sprintf("nobody listens on port %s: %s", stream.Headers().Get(corev1.PortHeader), message)
	if _, err := io.WriteString(stream, text); err != nil {
		s.log.V(1).Info("A client went before it had its error", "reason", err.Error())
	}
}
