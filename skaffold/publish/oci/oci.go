// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package oci pushes images and charts to an OCI registry or to a layout on the disk. The packages image and chart beside it
// use it, so that both go the same way: the same credentials, the same retries, the same rule on plain HTTP.
package oci

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Options configure a Client. The zero value is a useful one.
type Options struct {
	// PlainHTTP allows plain HTTP to every registry. Without it, plain HTTP is spoken only to a registry that is local by
	// its name (go-containerregistry's rule and registry.local.gardener.cloud, as Gardener pulls charts) and answers no
	// TLS, and no password is sent beyond the loopback.
	PlainHTTP bool
	// CAFile is a PEM file of certificate authorities to trust in addition to the system's.
	CAFile string
	// Credentials are those for registries. Default: what `docker login` and the like have stored.
	Credentials authn.Keychain
	// Backoff is how often and how fast a request is tried again that failed for a reason that may pass. Default: 3
	// attempts in about 4 seconds.
	Backoff remote.Backoff
	// Progress receives a line for each push. Default: none.
	Progress io.Writer
	// Layout is a folder that is written instead of the registries, as an OCI image layout whose names are whole references.
	// Client.PushLayout pushes it later, from another machine if need be.
	Layout string
}

// Client pushes to registries, or writes what is to be pushed to a layout.
type Client struct {
	opts   Options
	remote []remote.Option
}

// Artifact is an image, an index of images, or a chart in the form of an image.
type Artifact interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

// NewClient returns a client. It is an error if the CA file can't be read.
func NewClient(opts Options) (*Client, error) {
	opts.Progress = cmp.Or[io.Writer](opts.Progress, io.Discard)
	base := remote.DefaultTransport.(*http.Transport).Clone()
	if opts.CAFile != "" {
		pem, err := os.ReadFile(opts.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading CA file: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %s holds no certificate in PEM", opts.CAFile)
		}
		base.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	return &Client{opts: opts, remote: []remote.Option{
		remote.WithTransport(cautious{base: base, plainHTTP: opts.PlainHTTP}),
		remote.WithAuthFromKeychain(cmp.Or[authn.Keychain](opts.Credentials, authn.DefaultKeychain)),
		remote.WithUserAgent("gardener-extension-provider-local-publish"),
		remote.WithRetryBackoff(cmp.Or(opts.Backoff, remote.Backoff{Duration: time.Second, Factor: 3, Jitter: 0.1, Steps: 3})),
	}}, nil
}

// cautious sends no password in the clear beyond the loopback unless that was asked for.
type cautious struct {
	base      http.RoundTripper
	plainHTTP bool
}

// RoundTrip implements http.RoundTripper.
func (c cautious) RoundTrip(request *http.Request) (*http.Response, error) {
	host := request.URL.Hostname()
	if request.URL.Scheme == "http" && !c.plainHTTP && host != "localhost" && !strings.HasSuffix(host, ".localhost") && !net.ParseIP(host).IsLoopback() {
		request = request.Clone(request.Context())
		request.Header.Del("Authorization")
	}
	return c.base.RoundTrip(request)
}

// parse returns a reference, and HOST/REPOSITORY as it is written in it.
func (c *Client) parse(ref string) (parsed name.Reference, repository string, err error) {
	const expected = "(expected HOST[:PORT]/REPOSITORY[:TAG][@DIGEST])"
	host, _, _ := strings.Cut(ref, "/")
	if !strings.ContainsAny(host, ".:") && host != "localhost" {
		return nil, "", fmt.Errorf("reference %q: it names no registry %s", ref, expected)
	}
	var opts []name.Option
	if hostname, _, _ := strings.Cut(host, ":"); c.opts.PlainHTTP || hostname == "registry.local.gardener.cloud" {
		opts = append(opts, name.Insecure)
	}
	if parsed, err = name.ParseReference(ref, opts...); err != nil {
		return nil, "", fmt.Errorf("reference %q: %w %s", ref, err, expected)
	}
	repository, _, _ = strings.Cut(ref, "@")
	if i := strings.LastIndex(repository, ":"); i > strings.LastIndex(repository, "/") {
		repository = repository[:i]
	}
	return parsed, repository, nil
}

// Push uploads what the registry doesn't have yet of the artifact, tags it as ref, and returns the reference by digest
// (HOST/REPOSITORY@DIGEST).
func (c *Client) Push(ctx context.Context, ref string, artifact Artifact) (string, error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("pushing %s: %w", ref, explain(err)) }
	parsed, repository, err := c.parse(ref)
	if err == nil && (repository == ref || strings.Contains(ref, "@")) {
		err = errors.New("expected a reference with a tag and without a digest")
	}
	if err != nil {
		return fail(err)
	}
	digest, err := artifact.Digest()
	if err != nil {
		return fail(err)
	}
	if c.opts.Layout != "" {
		err = writeLayout(c.opts.Layout, ref, artifact)
	} else {
		err = remote.Push(parsed, artifact, append(c.remote, remote.WithContext(ctx))...)
	}
	if err != nil {
		return fail(err)
	}
	pinned := repository + "@" + digest.String()
	_, _ = fmt.Fprintf(c.opts.Progress, "pushed %s as %s\n", ref, pinned)
	return pinned, nil
}

// refName is the annotation that names an artifact in a layout.
const refName = "org.opencontainers.image.ref.name"

func writeLayout(folder, ref string, artifact Artifact) error {
	path, err := layout.FromPath(folder)
	if err != nil {
		if path, err = layout.Write(folder, empty.Index); err != nil {
			return fmt.Errorf("making layout %s: %w", folder, err)
		}
	}
	named := layout.WithAnnotations(map[string]string{refName: ref})
	if index, ok := artifact.(v1.ImageIndex); ok {
		return path.ReplaceIndex(index, match.Name(ref), named)
	}
	return path.ReplaceImage(artifact.(v1.Image), match.Name(ref), named)
}

// readLayout returns the artifacts of a layout, and the descriptor of each, which has its name.
func readLayout(folder string) (artifacts []partial.Describable, descriptors []v1.Descriptor, err error) {
	index, err := layout.ImageIndexFromPath(filepath.Clean(folder))
	if err == nil {
		artifacts, err = partial.ComputeManifests(index)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading layout %s: %w", folder, err)
	}
	manifest, err := index.IndexManifest()
	return artifacts, manifest.Manifests, err
}

// PushLayout pushes all that the layout has, each artifact to the reference it was written for, and returns the references
// by digest.
func (c *Client) PushLayout(ctx context.Context, folder string) (pushed []string, err error) {
	artifacts, descriptors, err := readLayout(folder)
	if err == nil && len(artifacts) == 0 {
		err = fmt.Errorf("layout %s has nothing to push", folder)
	}
	for i, artifact := range artifacts {
		pinned, err := c.Push(ctx, descriptors[i].Annotations[refName], artifact.(Artifact))
		if err != nil {
			return nil, err
		}
		pushed = append(pushed, pinned)
	}
	return pushed, err
}

// errNotInLayout is that of a reference which a layout does not have.
var errNotInLayout = errors.New("the layout does not have it")

// Resolve returns a reference by digest (HOST/REPOSITORY@DIGEST). One that has a digest already is returned without a
// request: the registry may have another name from here.
func (c *Client) Resolve(ctx context.Context, ref string) (string, error) {
	parsed, repository, err := c.parse(ref)
	if err == nil {
		var digest string
		if digest, err = c.digest(ctx, ref, parsed); err == nil {
			return repository + "@" + digest, nil
		}
	}
	return "", fmt.Errorf("resolving %s: %w", ref, explain(err))
}

func (c *Client) digest(ctx context.Context, ref string, parsed name.Reference) (string, error) {
	if digest, ok := parsed.(name.Digest); ok {
		return digest.DigestStr(), nil
	}
	if c.opts.Layout == "" {
		got, err := remote.Get(parsed, append(c.remote, remote.WithContext(ctx))...)
		if err != nil {
			return "", err
		}
		return got.Digest.String(), nil
	}
	_, descriptors, err := readLayout(c.opts.Layout)
	for _, descriptor := range descriptors {
		if descriptor.Annotations[refName] == ref {
			return descriptor.Digest.String(), nil
		}
	}
	return "", cmp.Or(err, errNotInLayout)
}

// NotFound reports whether an error of Resolve means that the registry answers but does not have the reference.
func NotFound(err error) bool {
	var response *transport.Error
	return errors.Is(err, errNotInLayout) || errors.As(err, &response) && response.StatusCode == http.StatusNotFound
}

// Rename returns ref, which is at registry from, as it is called at registry to.
func Rename(ref, from, to string) string {
	if rest, ok := strings.CutPrefix(ref, from+"/"); ok && to != "" {
		return to + "/" + rest
	}
	return ref
}

// explain adds to an error what to do about it.
func explain(err error) error {
	var (
		response    *transport.Error
		certificate *tls.CertificateVerificationError
		network     *url.Error
		hint        string
	)
	switch {
	case errors.As(err, &certificate):
		hint = "name the registry's certificate authority by --ca-file"
	case errors.As(err, &response):
		if response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusForbidden {
			return err
		}
		hint = "log in to the registry first, for instance by `docker login`"
	case errors.Is(err, http.ErrSchemeMismatch):
		hint = "the registry speaks plain HTTP: allow it by --plain-http, if the network can be trusted"
	case errors.As(err, &network):
		hint = "is the registry up, and is the name right?"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, hint)
}
