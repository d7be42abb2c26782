// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	miekgdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// Keys of the Secret of a DNSRecord. All of them are optional; without TSIGKeyName and TSIGSecret nothing is signed.
const (
	// KeyServer is HOST[:PORT].
	KeyServer = "Server"
	// KeyZone is the name of a zone.
	KeyZone = "Zone"
	// KeyTSIGKeyName is the name of the key as the server has it.
	KeyTSIGKeyName = "TSIGKeyName"
	// KeyTSIGSecret is the key in base64, as in the configuration of a server.
	KeyTSIGSecret = "TSIGSecret"
	// KeyTSIGSecretAlgorithm is one of hmac-sha1, hmac-sha224, hmac-sha256, hmac-sha384 and hmac-sha512. Default:
	// hmac-sha256.
	KeyTSIGSecretAlgorithm = "TSIGSecretAlgorithm"
)

const (
	// secretsMax is how many Secrets are remembered, secretAge for how long.
	secretsMax = 256
	secretAge  = 5 * time.Second
)

// algorithms are those of RFC 8945, section 6, but for the one of MD5.
var algorithms = []string{"hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"}

// errNoSecret is the cause if a Secret that is named isn't there.
var errNoSecret = errors.New("does not exist")

// target is where a record goes, or as much of that as the Secret of a DNSRecord says.
type target struct {
	// server is HOST:PORT; in a Secret, the port may be missing.
	server string
	// zone has the record.
	zone string
	// key is nil if nothing is to be signed.
	key *key
}

// key is a TSIG key.
type key struct {
	// name and algorithm are in canonical form: in lower case, with a dot at the end.
	name, algorithm string
	// secret is in base64. It is never to be part of an error.
	secret string
}

// String implements fmt.Stringer, so that the secret is in no log.
func (k *key) String() string { return k.name }

// target finds out where a record goes: what the providerConfig says counts most, then the Secret, then the options.
func (p *Provider) target(ctx context.Context, request dns.Request) (target, error) {
	out, err := p.credentials(ctx, request.Secret)
	if err != nil {
		return target{}, err
	}
	server, zones := cmp.Or(out.server, p.Server), p.Zones
	config := request.Config.RFC2136
	if config != nil {
		server = cmp.Or(config.Server, server)
	}
	// A server may trust the instance by its address: without a key, a Secret doesn't say in which other zone it writes.
	if out.zone != "" && (out.key != nil || len(zones) == 0) {
		zones = []string{out.zone}
	}
	if config != nil && len(config.Zones) > 0 {
		zones = config.Zones
	}

	switch {
	case server == "":
		err = fmt.Errorf("no server is known: set spec.providerConfig.rfc2136.server, %s in the Secret, or dns.rfc2136.server in the configuration of the instance", KeyServer)
	case len(zones) == 0:
		err = fmt.Errorf("no zone is known: set spec.providerConfig.rfc2136.zones, %s in the Secret, or dns.rfc2136.zones in the configuration of the instance", KeyZone)
	default:
		if out.server, err = ParseServer(server); err == nil {
			out.zone, err = zoneOf(request.Record, zones)
		}
	}
	if err != nil {
		return target{}, dns.ConfigurationProblem(err)
	}
	return out, nil
}

// record returns what is written there for a request.
func (t target) record(request dns.Request) localv1alpha1.WrittenRecord {
	record := request.Record
	return localv1alpha1.WrittenRecord{
		Server: t.server, Zone: t.zone, Name: record.Name, Type: record.Type, Values: record.Values, TTL: record.TTL, Mark: markOf(request).String(),
	}
}

func zoneOf(record dns.Record, zones []string) (string, error) {
	for _, zone := range zones {
		if name, err := dns.NormalizeName(zone); err != nil || strings.HasPrefix(name, "*") {
			return "", fmt.Errorf("%q is not the name of a zone", zone)
		}
	}
	if isMarkName(record.Name) {
		return "", fmt.Errorf("spec.name: names with the label %s are reserved", markLabel)
	}
	if _, err := dns.NormalizeName(markName(record.Name)); err != nil {
		return "", fmt.Errorf("spec.name is too long: %w", err)
	}
	return record.Zone(zones)
}

// credentials reads a Secret; there are none if no Secret is named. Many DNSRecords may have the same one, so it is remembered
// for a moment.
func (p *Provider) credentials(ctx context.Context, ref corev1.SecretReference) (target, error) {
	if ref == (corev1.SecretReference{}) {
		return target{}, nil
	}
	if ref.Name == "" || ref.Namespace == "" {
		return target{}, dns.ConfigurationProblem(errors.New("spec.secretRef is incomplete: set name and namespace of a Secret"))
	}
	if known, ok := p.secrets.Get(ref); ok {
		return known.(target), nil
	}
	what := fmt.Sprintf("the Secret %s/%s which spec.secretRef names", ref.Namespace, ref.Name)
	secret := &corev1.Secret{}
	err := p.Reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, secret)
	if apierrors.IsNotFound(err) {
		return target{}, dns.ConfigurationProblem(fmt.Errorf("%s %w: create it", what, errNoSecret))
	}
	if err != nil {
		return target{}, fmt.Errorf("reading %s: %w", what, err)
	}
	out, err := parseSecret(secret.Data)
	if err != nil {
		return target{}, dns.ConfigurationProblem(fmt.Errorf("%s: %w", what, err))
	}
	p.secrets.Add(ref, out, secretAge)
	return out, nil
}

// forget has a Secret read anew, as a failure may be due to it.
func (p *Provider) forget(ref corev1.SecretReference, err error) {
	if err != nil {
		p.secrets.Remove(ref)
	}
}

func parseSecret(data map[string][]byte) (target, error) {
	value := func(key string) string { return strings.TrimSpace(string(data[key])) }
	out := target{server: value(KeyServer), zone: value(KeyZone)}
	name, secret, algorithm := value(KeyTSIGKeyName), value(KeyTSIGSecret), value(KeyTSIGSecretAlgorithm)
	switch {
	case name == "" && secret == "":
		return out, nil
	case name == "":
		return out, fmt.Errorf("%s is set, but not %s: set both or none", KeyTSIGSecret, KeyTSIGKeyName)
	case secret == "":
		return out, fmt.Errorf("%s is set, but not %s: set both or none", KeyTSIGKeyName, KeyTSIGSecret)
	}
	if _, ok := miekgdns.IsDomainName(name); !ok {
		return out, fmt.Errorf("%s is not the name of a key", KeyTSIGKeyName)
	}
	if raw, err := base64.StdEncoding.DecodeString(secret); err != nil || len(raw) == 0 {
		return out, fmt.Errorf("%s must be the key in base64 (that is, in the data of the Secret it is in base64 twice)", KeyTSIGSecret)
	}
	algorithm = strings.TrimSuffix(strings.ToLower(cmp.Or(algorithm, miekgdns.HmacSHA256)), ".")
	if !slices.Contains(algorithms, algorithm) {
		return out, fmt.Errorf("%s %q is none of %s", KeyTSIGSecretAlgorithm, algorithm, strings.Join(algorithms, ", "))
	}
	out.key = &key{name: miekgdns.CanonicalName(name), algorithm: miekgdns.Fqdn(algorithm), secret: secret}
	return out, nil
}

// ParseServer checks HOST[:PORT] and returns HOST:PORT, with port 53 if there is none. HOST is a name or an address; an
// IPv6 address with a port is in brackets.
func ParseServer(value string) (string, error) {
	problem := fmt.Errorf("%q is not a server: it must be HOST[:PORT]", value)
	withPort := value
	if _, err := netip.ParseAddr(value); err == nil || !strings.Contains(value, ":") {
		withPort = net.JoinHostPort(value, strconv.Itoa(defaultPort))
	} else if strings.HasSuffix(value, "]") {
		withPort = value + ":" + strconv.Itoa(defaultPort)
	}
	host, port, err := net.SplitHostPort(withPort)
	if err != nil {
		return "", problem
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", problem
	}
	// Zones of IPv6 addresses are of this machine, and of any length.
	if address, err := netip.ParseAddr(host); err == nil && address.Zone() == "" {
		return net.JoinHostPort(address.Unmap().String(), port), nil
	}
	name, err := dns.NormalizeName(host)
	if err != nil || strings.HasPrefix(name, "*") {
		return "", problem
	}
	return net.JoinHostPort(name, port), nil
}

// defaultPort is the port of a server that is named without one, and the only one that is allowed if no servers are listed.
const defaultPort = 53

var errNotAllowed = errors.New("is not one that a DNSRecord or its Secret may name: see dns.rfc2136.allowedServers in the configuration of the instance")

// allowedServer is a range of addresses and a port.
type allowedServer struct {
	addresses netip.Prefix
	port      uint16
}

// dial connects to a server. The address that a connection is really made to is checked, so that a name can't resolve to
// something else in between. The server of the configuration is the operator's own.
func (p *Provider) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := new(net.Dialer)
	if own, err := ParseServer(p.Server); err != nil || own != address {
		dialer.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
			return p.checkAddress(resolved)
		}
	}
	return dialer.DialContext(ctx, network, address)
}

func (p *Provider) checkAddress(resolved string) error {
	to, err := netip.ParseAddrPort(resolved)
	if err != nil {
		return errNotAllowed
	}
	address := to.Addr().Unmap().WithZone("")
	isAllowed := to.Port() == defaultPort && address.IsGlobalUnicast()
	if len(p.allowed) > 0 {
		isAllowed = slices.ContainsFunc(p.allowed, func(a allowedServer) bool { return a.port == to.Port() && a.addresses.Contains(address) })
	}
	if !isAllowed {
		return errNotAllowed
	}
	return nil
}
