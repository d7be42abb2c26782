// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command gateway stands in for Istio's ingress gateway (image istio-release/proxyv2), as Envoy is C++ and not to be had from
// the Go module proxy, while virtual garden and shoots are reached through it only. It is called as the original is
// ("proxy router ..."), runs as its user on a read-only file system, and serves the readiness probe of its Deployment.
//
// It watches Gateways, VirtualServices and Services. What selects its Pod's labels and is exported to its namespace is served:
//   - port 9443 (port 443 of its Service): TLS by server name, passed through to the VirtualService's destination. So it also
//     does where a Gateway would end TLS with optional client certificates: behind these is a kube-apiserver with the same
//     certificate, which then sees the client's own instead of what the gateway says about it. Where a Gateway ends TLS without
//     them, the prefix of a request's path decides, once the server for basic authentication has let its user in.
//   - ports 8443 and 8132: HTTP CONNECT for the VPN and apiserver-proxy of shoots, by the headers X-Gardener-Destination and
//     Reversed-VPN, if a Gateway opens the port.
//
// It does not: speak the PROXY protocol or TLS with backends, balance by request, route by more than host and path, or read
// EnvoyFilters and DestinationRules. Its metrics are the numbers of connections.
//
// It needs to list and watch gateways and virtualservices (networking.istio.io) and services in all namespaces, and secrets in
// its own.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

const (
	// labelsPath is where the Deployment mounts the Pod's labels.
	labelsPath = "/etc/istio/pod/labels"
	healthPort = 15021
	// metricsPort is where Prometheus asks.
	metricsPort = 15090
	// connections is how many of them each port serves at a time.
	connections = 4096
	// drainPeriod is how long connections are still taken after the signal to end, until kube-proxy sends no more.
	drainPeriod = 3 * time.Second
	// dials is how often a Service is tried: kube-proxy may choose a Pod whose node was just lost. The original ejects such a Pod.
	dials = 5
)

func main() {
	program.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 || args[0] != "proxy" || args[1] != "router" {
		return fmt.Errorf("only %q is stood in for, not %q", "proxy router", args)
	}
	labels, err := os.ReadFile(labelsPath)
	if err != nil {
		return fmt.Errorf("reading the Pod's labels: %w", err)
	}
	self := identity{namespace: os.Getenv("POD_NAMESPACE"), labels: parseLabels(string(labels))}
	if self.namespace == "" {
		return errors.New("POD_NAMESPACE is not set")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	config.UserAgent = "landscape-gateway"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	w, err := newWatcher(client, self)
	if err != nil {
		return err
	}

	sites, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("opening the ports: %w", err)
	}
	p := &proxy{router: w, dial: (&net.Dialer{}).DialContext, sites: sites.Addr().String()}
	server := newSites(w)
	defer server.Close()              //nolint:errcheck // The program ends.
	go server.ServeTLS(sites, "", "") //nolint:errcheck // It ends with the program.
	return serve(ctx, w, map[int]func(context.Context, net.Conn){
		9443: p.serveTLS,
		8443: p.serveConnect(8443, "X-Gardener-Destination"),
		8132: p.serveConnect(8132, "Reversed-VPN"),
	})
}

// serve serves all ports until the end of ctx, and what is left for drainPeriod more.
func serve(ctx context.Context, w *watcher, ports map[int]func(context.Context, net.Conn)) error {
	serving, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainPeriod, func() { cancel(nil) }) })()

	var counted counter
	for port, handle := range ports {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
		if err != nil {
			return fmt.Errorf("opening the ports: %w", err)
		}
		go func() { cancel(relay.Serve(serving, listener, connections, counted.handler(handle))) }()
	}
	for port, handler := range map[int]http.Handler{healthPort: readiness(ctx, w), metricsPort: &counted} {
		go func() { cancel(program.Serve(serving, "tcp", ":"+strconv.Itoa(port), handler)) }()
	}
	go w.run(serving)

	slog.Info("Serving", "namespace", w.self.namespace, "labels", w.self.labels)
	<-serving.Done()
	if err := context.Cause(serving); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// counter counts connections, and tells Prometheus.
type counter struct{ opened, closed atomic.Int64 }

// handler counts the connections that handle is given.
func (c *counter) handler(handle func(context.Context, net.Conn)) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		c.opened.Add(1)
		defer c.closed.Add(1)
		handle(ctx, conn)
	}
}

func (c *counter) ServeHTTP(response http.ResponseWriter, _ *http.Request) {
	for name, value := range map[string]int64{"opened": c.opened.Load(), "closed": c.closed.Load()} {
		fmt.Fprintf(response, "# TYPE istio_tcp_connections_%s_total counter\nistio_tcp_connections_%s_total %d\n", name, name, value)
	}
}

// readiness answers the probe: ready as soon as there are routes, and no more when the program is told to end.
func readiness(ctx context.Context, w *watcher) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz/ready", func(response http.ResponseWriter, _ *http.Request) {
		if ctx.Err() != nil || !w.ready() {
			response.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	return mux
}

// parseLabels reads labels as the downward API writes them: one KEY="VALUE" a line.
func parseLabels(content string) map[string]string {
	labels := map[string]string{}
	for line := range strings.Lines(content) {
		key, quoted, found := strings.Cut(strings.TrimSpace(line), "=")
		if value, err := strconv.Unquote(quoted); found && err == nil {
			labels[key] = value
		}
	}
	return labels
}

// router tells where connections go. The watcher is one.
type router interface {
	byHost(host string) (backend, bool)
	address(backend) (string, error)
	open(port int) bool
	certificate(credential string) (*tls.Certificate, error)
}

// proxy joins clients and Services.
type proxy struct {
	router router
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	// sites is where the server of sites listens.
	sites string
}

// serveTLS forwards a connection as it is to whom its server name belongs, or to the server of sites.
func (p *proxy) serveTLS(ctx context.Context, conn net.Conn) {
	host, conn, err := relay.ServerName(conn)
	if err != nil {
		// Also whoever only looks whether the port is open ends here.
		slog.Debug("No ClientHello", "error", err)
		return
	}
	to, found := p.router.byHost(host)
	if !found {
		slog.Info("No route", "host", host, "from", conn.RemoteAddr().String())
		return
	}
	upstream, err := p.reach(ctx, to)
	if err != nil {
		slog.Info("No backend", "host", host, "error", err)
		return
	}
	relay.Join(conn, upstream)
}

// serveConnect returns the handler of a port of the HTTP proxy, at which clients say by a header where they want to go.
func (p *proxy) serveConnect(port int, header string) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		if !p.router.open(port) {
			return
		}
		relay.ServeRequest(conn, func(request *http.Request) (net.Conn, int) {
			to, allowed := connectBackend(request.Header.Get(header))
			if request.Method != http.MethodConnect || !allowed {
				slog.Info("Refused", "port", port, "method", request.Method, "destination", request.Header.Get(header))
				return nil, http.StatusForbidden
			}
			upstream, err := p.reach(ctx, to)
			if err != nil {
				slog.Info("No backend", "destination", request.Header.Get(header), "error", err)
				return nil, http.StatusServiceUnavailable
			}
			return upstream, http.StatusOK
		})
	}
}

func (p *proxy) reach(ctx context.Context, to backend) (net.Conn, error) {
	if to.site != nil {
		return p.dial(ctx, "tcp", p.sites)
	}
	address, err := p.router.address(to)
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	for range dials {
		attempt, cancel := context.WithTimeout(ctx, relay.DialTimeout/dials)
		conn, err = p.dial(attempt, "tcp", address)
		cancel()
		if err == nil {
			break
		}
	}
	return conn, err
}
