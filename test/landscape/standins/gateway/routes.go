// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// gateway is what is read of a networking.istio.io Gateway.
type gateway struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector map[string]string `json:"selector"`
		Servers  []server          `json:"servers"`
	} `json:"spec"`
}

type server struct {
	Hosts []string `json:"hosts"`
	Port  struct {
		Number   int    `json:"number"`
		Protocol string `json:"protocol"`
	} `json:"port"`
	TLS struct {
		Mode           string `json:"mode"`
		CredentialName string `json:"credentialName"`
	} `json:"tls"`
}

// virtualService is what is read of a networking.istio.io VirtualService.
type virtualService struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Hosts    []string `json:"hosts"`
		Gateways []string `json:"gateways"`
		ExportTo []string `json:"exportTo"`
		TLS      []struct {
			Match []struct {
				SNIHosts []string `json:"sniHosts"`
				Port     int      `json:"port"`
			} `json:"match"`
			Route []route `json:"route"`
		} `json:"tls"`
		HTTP []struct {
			Match []struct {
				URI struct {
					Prefix string `json:"prefix"`
				} `json:"uri"`
			} `json:"match"`
			Route          []route `json:"route"`
			DirectResponse struct {
				Status int `json:"status"`
			} `json:"directResponse"`
		} `json:"http"`
	} `json:"spec"`
}

type route struct {
	Destination struct {
		Host string `json:"host"`
		Port struct {
			Number int `json:"number"`
		} `json:"port"`
	} `json:"destination"`
}

// backend is a Service's port, or a site.
type backend struct {
	namespace, name string
	port            int
	site            *site
}

// site is a host at which TLS ends.
type site struct {
	// credential is the Secret with its certificate, in the gateway's namespace.
	credential string
	// auth is the server that knows who may come in. All may, if it is empty.
	auth backend
	// rules are tried in their order.
	rules []rule
}

// rule is what is done with requests for paths.
type rule struct {
	// prefixes are those of the paths. All paths are meant, if there is none.
	prefixes []string
	// status is the answer, unless it is 0.
	status int
	to     backend
}

// find returns the rule for a path.
func (s *site) find(path string) (rule, bool) {
	i := slices.IndexFunc(s.rules, func(r rule) bool {
		return len(r.prefixes) == 0 || slices.ContainsFunc(r.prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	})
	if i < 0 {
		return rule{}, false
	}
	return s.rules[i], true
}

const (
	// authLabel is the label of a VirtualService with the name of the server that knows who may come in.
	authLabel = "reference.gardener.cloud/basic-auth-server-name"
	// authPort is the port of that server.
	authPort = 10000
)

// tlsPort is the Service port whose Gateways are served by the server name of TLS. The Pod listens on another one, but Istio's
// objects speak of the Service's.
const tlsPort = 443

// identity is who an ingress gateway is for Istio.
type identity struct {
	namespace string
	labels    map[string]string
}

// table is everything that one ingress gateway serves. It is never changed.
type table struct {
	// hosts are exact ("a.b"), or patterns ("*.b", "*").
	hosts map[string]backend
	// ports are those that Gateways open for HTTP.
	ports map[int]bool
}

// buildTable finds what the Gateways that select this one serve. Where two ask for one host, the older VirtualService gets it,
// as with Istio.
func buildTable(self identity, gateways []gateway, virtualServices []virtualService) *table {
	t := &table{hosts: map[string]backend{}, ports: map[int]bool{}}
	mine := map[string][]server{}
	for _, g := range gateways {
		if !labels.SelectorFromSet(g.Spec.Selector).Matches(labels.Set(self.labels)) {
			continue
		}
		mine[g.Namespace+"/"+g.Name] = g.Spec.Servers
		for _, s := range g.Spec.Servers {
			if s.Port.Protocol == "HTTP" {
				t.ports[s.Port.Number] = true
			}
		}
	}
	slices.SortFunc(virtualServices, func(a, b virtualService) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, v := range virtualServices {
		if !exported(v.Spec.ExportTo, v.Namespace, self.namespace) {
			continue
		}
		for _, name := range v.Spec.Gateways {
			if !strings.Contains(name, "/") {
				name = v.Namespace + "/" + name
			}
			for _, s := range mine[name] {
				if s.Port.Number == tlsPort {
					t.add(v, s)
				}
			}
		}
	}
	return t
}

// add adds what one server of a Gateway does for a VirtualService.
func (t *table) add(v virtualService, s server) {
	switch s.TLS.Mode {
	// The API server leaves out the default.
	case "", "PASSTHROUGH":
		for _, r := range v.Spec.TLS {
			for _, m := range r.Match {
				if m.Port == 0 || m.Port == tlsPort {
					t.addRoute(v, s, m.SNIHosts, r.Route)
				}
			}
		}
	case "OPTIONAL_MUTUAL", "MUTUAL":
		// A kube-apiserver stands behind these, with the very certificate with which the gateway would end TLS.
		for _, r := range slices.Backward(v.Spec.HTTP) {
			if len(r.Match) == 0 {
				t.addRoute(v, s, v.Spec.Hosts, r.Route)
				return
			}
		}
	case "SIMPLE":
		t.addHosts(s, v.Spec.Hosts, backend{site: siteOf(v, s)})
	}
}

// siteOf reads the routes of HTTP. Those that look at more than the path are left out.
func siteOf(v virtualService, s server) *site {
	at := &site{credential: s.TLS.CredentialName}
	if name := v.Labels[authLabel]; name != "" {
		at.auth = backend{namespace: v.Namespace, name: name, port: authPort}
	}
	for _, h := range v.Spec.HTTP {
		r := rule{status: h.DirectResponse.Status}
		for _, m := range h.Match {
			if m.URI.Prefix != "" {
				r.prefixes = append(r.prefixes, m.URI.Prefix)
			}
		}
		known := r.status != 0
		if !known && len(h.Route) > 0 {
			r.to, known = backendOf(h.Route[0], v.Namespace)
		}
		if known && (len(h.Match) == 0 || len(r.prefixes) > 0) {
			at.rules = append(at.rules, r)
		}
	}
	return at
}

func (t *table) addRoute(v virtualService, s server, hosts []string, routes []route) {
	if len(routes) == 0 {
		return
	}
	if to, ok := backendOf(routes[0], v.Namespace); ok {
		t.addHosts(s, hosts, to)
	}
}

func (t *table) addHosts(s server, hosts []string, to backend) {
	for _, host := range hosts {
		for _, served := range s.Hosts {
			// A server's host may name the namespace of the VirtualServices that it is for.
			_, name, found := strings.Cut(served, "/")
			if !found {
				name = served
			}
			if key, ok := narrower(strings.ToLower(host), strings.ToLower(name)); ok {
				if _, taken := t.hosts[key]; !taken {
					t.hosts[key] = to
				}
			}
		}
	}
}

// lookup finds who serves a host: its own entry, else that of the longest pattern.
func (t *table) lookup(host string) (backend, bool) {
	if to, found := t.hosts[host]; found {
		return to, true
	}
	for _, rest, found := strings.Cut(host, "."); found; _, rest, found = strings.Cut(rest, ".") {
		if to, found := t.hosts["*."+rest]; found {
			return to, true
		}
	}
	to, found := t.hosts["*"]
	return to, found
}

// exported reports whether what lives in namespace is visible to a gateway in the namespace self.
func exported(to []string, namespace, self string) bool {
	if len(to) == 0 || slices.Contains(to, "*") || slices.Contains(to, self) {
		return true
	}
	return namespace == self && slices.Contains(to, ".")
}

// narrower returns the host that both patterns cover.
func narrower(a, b string) (string, bool) {
	switch {
	case covers(b, a):
		return a, true
	case covers(a, b):
		return b, true
	}
	return "", false
}

func covers(pattern, host string) bool {
	if pattern == host || pattern == "*" {
		return true
	}
	suffix, wildcard := strings.CutPrefix(pattern, "*")
	return wildcard && strings.HasSuffix(host, suffix) && len(host) > len(suffix)
}

// backendOf reads a destination: SERVICE, SERVICE.NAMESPACE or more of the Service's name in DNS.
func backendOf(r route, namespace string) (backend, bool) {
	name, rest, _ := strings.Cut(r.Destination.Host, ".")
	if rest != "" {
		namespace, rest, _ = strings.Cut(rest, ".")
		if rest != "" && rest != "svc" && !strings.HasPrefix(rest, "svc.") {
			return backend{}, false
		}
	}
	return backend{namespace: namespace, name: name, port: r.Destination.Port.Number}, name != ""
}

// allowedClusters are the names of Envoy clusters that Gardener's EnvoyFilters allow, by the port: each has a Service and its namespace.
var allowedClusters = map[int]*regexp.Regexp{
	443:  regexp.MustCompile(`^outbound\|443\|\|(kube-apiserver)\.([^.]+)\.svc\.cluster\.local$`),
	1194: regexp.MustCompile(`^outbound\|1194\|\|(vpn-seed-server(?:-[0-4])?)\.([^.]+)\.svc\.cluster\.local$`),
}

// connectBackend reads the header with which a client of the HTTP proxy says where it wants to go: the name of an Envoy
// cluster. Just those are served that are allowed: a shoot's VPN and its kube-apiserver, also by the name of the listener which would end TLS
// for it.
func connectBackend(cluster string) (backend, bool) {
	if namespace, found := strings.CutSuffix(cluster, "--kube-apiserver-socket"); found {
		return backend{namespace: namespace, name: "kube-apiserver", port: 443}, strings.HasPrefix(namespace, "shoot-")
	}
	for port, pattern := range allowedClusters {
		if match := pattern.FindStringSubmatch(cluster); match != nil {
			return backend{namespace: match[2], name: match[1], port: port}, true
		}
	}
	return backend{}, false
}
