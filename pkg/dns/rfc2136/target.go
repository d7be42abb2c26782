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

	miekgdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

const defaultPort = "53"

// errNoSecret is the cause if a Secret that is named isn't there.
var errNoSecret = errors.New("does not exist")

// algorithms are those of RFC 8945, section 6, but for the one of MD5.
const algorithms = "hmac-sha1, hmac-sha224, hmac-sha256, hmac-sha384, hmac-sha512"

// target is where a record goes.
type target struct {
	// server is HOST:PORT.
	server string
	zones  []string
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
	secret, err := p.secret(ctx, request.Secret)
	if err != nil {
		return target{}, err
	}
	var out target
	if out.key, err = keyOf(secret); err != nil {
		return target{}, inSecret(request.Secret, err)
	}

	server, zones := p.Server, p.Zones
	if value := valueOf(secret, KeyServer); value != "" {
		server = value
	}
	if value := valueOf(secret, KeyZone); value != "" {
		zones = []string{value}
	}
	if config := request.Config.RFC2136; config != nil {
		server = cmp.Or(config.Server, server)
		if len(config.Zones) > 0 {
			zones = config.Zones
		}
	}

	switch {
	case server == "":
		return target{}, dns.ConfigurationProblem(fmt.Errorf("no server is known: set spec.providerConfig.rfc2136.server, %s in the Secret, or dns.rfc2136.server in the configuration of the instance", KeyServer))
	case len(zones) == 0:
		return target{}, dns.ConfigurationProblem(fmt.Errorf("no zone is known: set spec.providerConfig.rfc2136.zones, %s in the Secret, or dns.rfc2136.zones in the configuration of the instance", KeyZone))
	}
	if out.server, err = ParseServer(server); err != nil {
		return target{}, dns.ConfigurationProblem(err)
	}
	for _, zone := range zones {
		name, err := dns.NormalizeName(zone)
		if err != nil || strings.HasPrefix(name, "*") {
			return target{}, dns.ConfigurationProblem(fmt.Errorf("%q is not the name of a zone", zone))
		}
		out.zones = append(out.zones, name)
	}
	return out, nil
}

// key returns the key in a Secret, nil if there is none.
func (p *Provider) key(ctx context.Context, reference corev1.SecretReference) (*key, error) {
	secret, err := p.secret(ctx, reference)
	if err != nil {
		return nil, err
	}
	key, err := keyOf(secret)
	if err != nil {
		return nil, inSecret(reference, err)
	}
	return key, nil
}

// secret returns the data of a Secret; none if none is named.
func (p *Provider) secret(ctx context.Context, reference corev1.SecretReference) (map[string][]byte, error) {
	if reference == (corev1.SecretReference{}) {
		return nil, nil
	}
	if reference.Name == "" || reference.Namespace == "" {
		return nil, dns.ConfigurationProblem(errors.New("spec.secretRef is incomplete: set name and namespace of a Secret"))
	}
	secret := &corev1.Secret{}
	err := p.Reader.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, dns.ConfigurationProblem(fmt.Errorf("the Secret %s/%s which spec.secretRef names %w: create it", reference.Namespace, reference.Name, errNoSecret))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s/%s which spec.secretRef names: %w", reference.Namespace, reference.Name, err)
	}
	return secret.Data, nil
}

func inSecret(reference corev1.SecretReference, err error) error {
	return dns.ConfigurationProblem(fmt.Errorf("the Secret %s/%s which spec.secretRef names: %w", reference.Namespace, reference.Name, err))
}

func valueOf(data map[string][]byte, name string) string {
	return strings.TrimSpace(string(data[name]))
}

func keyOf(data map[string][]byte) (*key, error) {
	name, secret, algorithm := valueOf(data, KeyTSIGKeyName), valueOf(data, KeyTSIGSecret), valueOf(data, KeyTSIGSecretAlgorithm)
	switch {
	case name == "" && secret == "":
		return nil, nil
	case name == "":
		return nil, fmt.Errorf("%s is set, but not %s: set both or none", KeyTSIGSecret, KeyTSIGKeyName)
	case secret == "":
		return nil, fmt.Errorf("%s is set, but not %s: set both or none", KeyTSIGKeyName, KeyTSIGSecret)
	}
	if _, ok := miekgdns.IsDomainName(name); !ok {
		return nil, fmt.Errorf("%s is not the name of a key", KeyTSIGKeyName)
	}
	if raw, err := base64.StdEncoding.DecodeString(secret); err != nil || len(raw) == 0 {
		return nil, fmt.Errorf("%s must be the key in base64 (that is, in the data of the Secret it is in base64 twice)", KeyTSIGSecret)
	}
	algorithm = strings.TrimSuffix(strings.ToLower(cmp.Or(algorithm, miekgdns.HmacSHA256)), ".")
	if !slices.Contains(strings.Split(algorithms, ", "), algorithm) {
		return nil, fmt.Errorf("%s %q is none of %s", KeyTSIGSecretAlgorithm, algorithm, algorithms)
	}
	return &key{name: miekgdns.CanonicalName(name), algorithm: miekgdns.Fqdn(algorithm), secret: secret}, nil
}

// ParseServer checks HOST[:PORT] and returns HOST:PORT, with port 53 if there is none. HOST is a name or an address; an
// IPv6 address with a port is in brackets.
func ParseServer(value string) (string, error) {
	problem := fmt.Errorf("%q is not a server: it must be HOST[:PORT]", value)
	host, port := value, defaultPort
	if inner, ok := strings.CutPrefix(value, "["); ok && strings.HasSuffix(inner, "]") {
		host = strings.TrimSuffix(inner, "]")
	} else if _, err := netip.ParseAddr(value); err != nil && strings.Contains(value, ":") {
		if host, port, err = net.SplitHostPort(value); err != nil {
			return "", problem
		}
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", problem
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(host, port), nil
	}
	name, err := dns.NormalizeName(host)
	if err != nil || strings.HasPrefix(name, "*") {
		return "", problem
	}
	return net.JoinHostPort(name, port), nil
}
