// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package oci pushes artifacts to an OCI registry. The packages image and chart beside it use it, so that images and charts
// go the same way: the same credentials, the same retries, the same rule on plain HTTP.
package oci

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

// Options configure a Client. The zero value is a useful one.
type Options struct {
	// PlainHTTP speaks plain HTTP to every registry. Without it, plain HTTP is spoken only to a registry that is local by
	// its name (see Local) and answers no TLS.
	PlainHTTP bool
	// CAFile is a PEM file of certificate authorities to trust in addition to the system's.
	CAFile string
	// Credentials returns who to be to a registry. Default: what `docker login` and the like have stored.
	Credentials auth.CredentialFunc
	// Backoff is how often and how fast a request is tried again that failed for a reason that may pass. Default: 5
	// attempts in about 8 seconds.
	Backoff wait.Backoff
	// Progress receives a line for each step. Default: none.
	Progress io.Writer
	// Layout is a folder that is written instead of the registries, as an OCI image layout whose tags are whole references.
	// Client.PushLayout pushes it later, from another machine if need be.
	Layout string
}

// Client pushes to registries, or writes what is to be pushed to a layout.
type Client struct {
	opts      Options
	transport *http.Transport
	auth      *auth.Client
	anonymous *auth.Client
}

// NewClient returns a client. It is an error if the CA file or the stored credentials can't be read.
func NewClient(opts Options) (*Client, error) {
	if opts.Backoff.Steps == 0 {
		opts.Backoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 5}
	}
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	if opts.Credentials == nil {
		store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading stored registry credentials: %w (DOCKER_CONFIG names their folder)", err)
		}
		opts.Credentials = credentials.Credential(store)
	}

	transport, err := newTransport(opts.CAFile)
	if err != nil {
		return nil, err
	}
	httpClient := &http.Client{Transport: transport}
	header := http.Header{"User-Agent": {"gardener-extension-provider-local-publish"}}
	return &Client{
		opts:      opts,
		transport: transport,
		auth:      &auth.Client{Client: httpClient, Header: header, Credential: opts.Credentials, Cache: auth.NewCache()},
		anonymous: &auth.Client{Client: httpClient, Header: header},
	}, nil
}

func newTransport(caFile string) (*http.Transport, error) {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 2 * time.Minute, // a registry hashes an upload of many megabytes before it answers
		IdleConnTimeout:       30 * time.Second,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if caFile == "" {
		return transport, nil
	}

	pem, err := os.ReadFile(caFile) // #nosec G304 -- the user's own file, given on the command line
	if err != nil {
		return nil, fmt.Errorf("reading CA file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s holds no certificate in PEM", caFile)
	}
	transport.TLSClientConfig.RootCAs = pool
	return transport, nil
}

// Artifact is a manifest and the blobs that it names.
type Artifact struct {
	// MediaType and Manifest are the manifest.
	MediaType string
	Manifest  []byte
	// Blobs are its config and layers.
	Blobs []Blob
	// Manifests are those that the manifest of an index names, one for each platform.
	Manifests []Artifact
}

// Blob is content that can be read more than once, since an upload may have to start anew.
type Blob struct {
	Descriptor ocispec.Descriptor
	Open       func() (io.ReadCloser, error)
}

// repository is a reference and the client to speak to it.
func (c *Client) repository(ctx context.Context, ref string) (*remote.Repository, error) {
	parsed, err := registry.ParseReference(ref)
	if err != nil {
		return nil, fmt.Errorf("reference %q: %w (expected HOST[:PORT]/REPOSITORY[:TAG][@DIGEST])", ref, err)
	}
	plain, err := c.plainHTTP(ctx, parsed.Host())
	if err != nil {
		return nil, fmt.Errorf("reaching registry %s: %w", parsed.Host(), err)
	}

	repository := &remote.Repository{Reference: parsed, PlainHTTP: plain, Client: c.auth}
	if plain && !c.opts.PlainHTTP && !loopback(parsed.Host()) {
		// Nobody asked for plain HTTP: whoever answers on this network does not get to see a password.
		repository.Client = c.anonymous
	}
	return repository, nil
}
