// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CABundleKey is the key in the Secret of caBundleSecretRef.
const CABundleKey = "bundle.crt"

// access is with what the registries of a target are asked.
type access struct {
	// credentials are those for each endpoint, in their order; empty where there are none.
	credentials []auth.Credential
	// roots are the CAs that are trusted; nil stands for those of the system.
	roots *x509.CertPool
	// grant is the name of the grant for these credentials.
	grant string
	// fingerprint changes with anything here.
	fingerprint string
}

// access reads the Secrets that the configuration names.
func (s *source) access(ctx context.Context) (*access, error) {
	var (
		a            = &access{credentials: make([]auth.Credential, len(s.target.Endpoints))}
		config, cert []byte
		err          error
	)
	if ref := s.config.PullSecretRef; ref != nil {
		if config, err = s.puller.secret(ctx, ref.Name, corev1.DockerConfigJsonKey); err != nil {
			return nil, err
		}
		for i, e := range s.target.Endpoints {
			if a.credentials[i], err = credentialFor(ctx, config, e); err != nil {
				return nil, problemf(ReasonConfiguration, "Secret %s/%s: %w", s.puller.opts.Namespace, ref.Name, err)
			}
		}
	}
	if ref := s.config.CABundleSecretRef; ref != nil {
		if cert, err = s.puller.secret(ctx, ref.Name, CABundleKey); err != nil {
			return nil, err
		}
		// Where the system has no certificates, those of the bundle are all there are.
		if a.roots, err = x509.SystemCertPool(); err != nil {
			a.roots = x509.NewCertPool()
		}
		if !a.roots.AppendCertsFromPEM(cert) {
			return nil, problemf(ReasonConfiguration, "Secret %s/%s: there is no PEM certificate in its key %s", s.puller.opts.Namespace, ref.Name, CABundleKey)
		}
	}

	if a.grant, err = s.puller.disk.hash(s.target, a.credentials); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(cert)
	a.fingerprint = a.grant + hex.EncodeToString(sum[:])
	return a, nil
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

// credentialFor returns the credential in a Docker configuration for an endpoint: that with the longest path which begins
// its repository, as kubelet does it. Errors hold nothing of the configuration.
func credentialFor(ctx context.Context, config []byte, e endpoint) (auth.Credential, error) {
	var parsed struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(config, &parsed); err != nil {
		return auth.EmptyCredential, fmt.Errorf("its key %s is not a Docker configuration in JSON", corev1.DockerConfigJsonKey)
	}

	best, found := "", json.RawMessage(nil)
	for _, key := range sortedKeys(parsed.Auths) {
		host, prefix := splitKey(key)
		if host != canonicalRegistry(e.Registry) || prefix != "" && !strings.HasPrefix(e.Repository+"/", prefix+"/") {
			continue
		}
		if found == nil || len(prefix) > len(best) {
			best, found = prefix, parsed.Auths[key]
		}
	}
	if found == nil {
		return auth.EmptyCredential, nil
	}

	// The library knows all forms of an entry, but not of a key.
	single, err := json.Marshal(map[string]any{"auths": map[string]json.RawMessage{"registry": found}})
	if err != nil {
		return auth.EmptyCredential, err
	}
	store, err := credentials.NewMemoryStoreFromDockerConfig(single)
	if err != nil {
		return auth.EmptyCredential, fmt.Errorf("the entry for %s in its key %s is not valid", e.Registry, corev1.DockerConfigJsonKey)
	}
	return store.Get(ctx, "registry")
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

// canonicalRegistry knows the names of Docker Hub.
func canonicalRegistry(host string) string {
	switch host = strings.ToLower(host); host {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	default:
		return host
	}
}
