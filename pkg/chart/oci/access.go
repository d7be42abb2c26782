// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CABundleKey is the key in the Secret of caBundleSecretRef.
const CABundleKey = "bundle.crt"

// access holds the content of the Secrets that the configuration names.
type access struct {
	// pullSecret is a Docker configuration, caBundle PEM; both are nil if no Secret is named.
	pullSecret, caBundle []byte
}

func (a access) equal(other access) bool {
	return bytes.Equal(a.pullSecret, other.pullSecret) && bytes.Equal(a.caBundle, other.caBundle)
}

// readAccess reads the Secrets.
func (s *source) readAccess(ctx context.Context) (a access, err error) {
	if ref := s.config.PullSecretRef; ref != nil {
		if a.pullSecret, err = s.puller.secret(ctx, ref.Name, corev1.DockerConfigJsonKey); err != nil {
			return a, err
		}
	}
	if ref := s.config.CABundleSecretRef; ref != nil {
		a.caBundle, err = s.puller.secret(ctx, ref.Name, CABundleKey)
	}
	return a, err
}

func (p *Puller) secret(ctx context.Context, name, key string) ([]byte, error) {
	secret := &corev1.Secret{}
	err := p.opts.Reader.Get(ctx, client.ObjectKey{Namespace: p.opts.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, problemf(ReasonConfiguration, "Secret %s/%s does not exist", p.opts.Namespace, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", p.opts.Namespace, name, err)
	}
	if len(secret.Data[key]) == 0 {
		return nil, problemf(ReasonConfiguration, "Secret %s/%s has no key %s", p.opts.Namespace, name, key)
	}
	return secret.Data[key], nil
}

// roots returns the CAs to trust: the system's, and those of the bundle if there is one.
func (s *source) roots(bundle []byte) (*x509.CertPool, error) {
	if bundle == nil {
		return nil, nil //nolint:nilnil // nil stands for those of the system.
	}
	// Where the system has no certificates, those of the bundle are all there are.
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, problemf(ReasonConfiguration, "Secret %s/%s: there is no PEM certificate in its key %s", s.puller.opts.Namespace, s.config.CABundleSecretRef.Name, CABundleKey)
	}
	return roots, nil
}

// credential returns the entry for a repository in a Docker configuration: the one with the longest path that the
// repository begins with, as kubelet does it. Errors hold nothing of the configuration.
func credential(config []byte, repository name.Repository) (authn.Authenticator, error) {
	if config == nil {
		return authn.Anonymous, nil
	}
	var parsed struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(config, &parsed); err != nil {
		return nil, fmt.Errorf("its key %s is not a Docker configuration in JSON", corev1.DockerConfigJsonKey)
	}

	best, found := "", json.RawMessage(nil)
	for _, key := range sortedKeys(parsed.Auths) {
		host, prefix := splitKey(key)
		if host != canonicalRegistry(repository.RegistryStr()) || prefix != "" && !strings.HasPrefix(repository.RepositoryStr()+"/", prefix+"/") {
			continue
		}
		if found == nil || len(prefix) > len(best) {
			best, found = prefix, parsed.Auths[key]
		}
	}
	if found == nil {
		return authn.Anonymous, nil
	}
	var entry authn.AuthConfig
	if err := json.Unmarshal(found, &entry); err != nil {
		return nil, fmt.Errorf("the entry for %s in its key %s is not valid", repository.RegistryStr(), corev1.DockerConfigJsonKey)
	}
	return authn.FromConfig(entry), nil
}

// splitKey splits "[SCHEME://]HOST[:PORT][/PATH]", where older versions of Docker have an API version as the path.
func splitKey(key string) (host, prefix string) {
	if _, after, ok := strings.Cut(key, "://"); ok {
		key = after
	}
	host, prefix, _ = strings.Cut(strings.TrimSuffix(key, "/"), "/")
	if prefix == "v1" || prefix == "v2" {
		prefix = ""
	}
	return canonicalRegistry(host), prefix
}

// canonicalRegistry returns one name for all that Docker Hub has.
func canonicalRegistry(host string) string {
	switch host = strings.ToLower(host); host {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	default:
		return host
	}
}
