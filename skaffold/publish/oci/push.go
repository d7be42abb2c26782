// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// parallelUploads is how many blobs of an artifact are uploaded at a time.
const parallelUploads = 3

// maxManifest is the size in bytes up to which registries must accept a manifest (OCI distribution specification).
const maxManifest = 4 << 20

// Push uploads what the artifact names and the registry doesn't have yet, then its manifest under ref, and returns the
// reference by digest (HOST/REPOSITORY@DIGEST).
func (c *Client) Push(ctx context.Context, ref string, artifact Artifact) (string, error) {
	to, err := c.destination(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, explain(err))
	}
	if to.tag == "" {
		return "", fmt.Errorf("pushing %s: the reference has no tag", ref)
	}
	descriptor, err := c.push(ctx, to, artifact, to.tag)
	if err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, explain(err))
	}
	pinned := to.name + "@" + descriptor.Digest.String()
	c.progress("pushed %s as %s", ref, pinned)
	return pinned, nil
}

// PushLayout pushes all that the layout has, each artifact to the reference it was written for, and returns the references
// by digest.
func (c *Client) PushLayout(ctx context.Context, folder string) ([]string, error) {
	layout, err := oci.NewFromFS(ctx, os.DirFS(folder))
	if err != nil {
		return nil, fmt.Errorf("reading layout %s: %w", folder, err)
	}
	refs, err := registry.Tags(ctx, layout)
	if err != nil {
		return nil, fmt.Errorf("reading layout %s: %w", folder, err)
	}
	if len(refs) == 0 {
		return nil, fmt.Errorf("layout %s has nothing to push", folder)
	}

	var pushed []string
	for _, ref := range refs {
		to, err := c.destination(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("pushing %s: %w", ref, explain(err))
		}
		var descriptor ocispec.Descriptor
		if err := c.retry(ctx, func(ctx context.Context) (err error) {
			descriptor, err = oras.Copy(ctx, layout, ref, to.target, to.tag, oras.DefaultCopyOptions)
			return err
		}); err != nil {
			return nil, fmt.Errorf("pushing %s: %w", ref, explain(err))
		}
		pinned := to.name + "@" + descriptor.Digest.String()
		c.progress("pushed %s as %s", ref, pinned)
		pushed = append(pushed, pinned)
	}
	return pushed, nil
}

// destination is where an artifact is pushed to: a repository of a registry, or a layout.
type destination struct {
	target oras.Target
	// name is HOST/REPOSITORY, and tag what the target calls the artifact.
	name, tag string
}

func (c *Client) destination(ctx context.Context, ref string) (destination, error) {
	if c.opts.Layout == "" {
		repository, err := c.repository(ctx, ref)
		if err != nil {
			return destination{}, err
		}
		return destination{repository, repository.Reference.Registry + "/" + repository.Reference.Repository, repository.Reference.Reference}, nil
	}

	parsed, err := registry.ParseReference(ref)
	if err != nil {
		return destination{}, fmt.Errorf("reference %q: %w", ref, err)
	}
	layout, err := oci.NewWithContext(ctx, c.opts.Layout)
	if err != nil {
		return destination{}, fmt.Errorf("opening layout %s: %w", c.opts.Layout, err)
	}
	tag := ""
	if parsed.Reference != "" {
		tag = ref
	}
	return destination{layout, parsed.Registry + "/" + parsed.Repository, tag}, nil
}

// push pushes an artifact and what it names, and tags it if there is a tag.
func (c *Client) push(ctx context.Context, to destination, artifact Artifact, tag string) (ocispec.Descriptor, error) {
	if len(artifact.Manifest) > maxManifest {
		return ocispec.Descriptor{}, fmt.Errorf("the manifest has %d bytes, more than the %d that registries accept", len(artifact.Manifest), maxManifest)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelUploads)
	for _, blob := range artifact.Blobs {
		group.Go(func() error { return c.pushBlob(groupCtx, to.target, blob) })
	}
	if err := group.Wait(); err != nil {
		return ocispec.Descriptor{}, err
	}
	for _, manifest := range artifact.Manifests {
		if _, err := c.push(ctx, to, manifest, ""); err != nil {
			return ocispec.Descriptor{}, err
		}
	}

	descriptor := ocispec.Descriptor{
		MediaType: artifact.MediaType,
		Digest:    ocidigest.FromBytes(artifact.Manifest),
		Size:      int64(len(artifact.Manifest)),
	}
	if err := c.retry(ctx, func(ctx context.Context) error {
		return pushManifest(ctx, to.target, descriptor, artifact.Manifest, tag)
	}); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("the manifest: %w", err)
	}
	return descriptor, nil
}

func pushManifest(ctx context.Context, target oras.Target, descriptor ocispec.Descriptor, manifest []byte, tag string) error {
	if pusher, ok := target.(registry.ReferencePusher); ok && tag != "" {
		return pusher.PushReference(ctx, descriptor, readerOf(manifest), tag)
	}
	if err := target.Push(ctx, descriptor, readerOf(manifest)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return err
	}
	if tag == "" {
		return nil
	}
	return target.Tag(ctx, descriptor, tag)
}

func (c *Client) pushBlob(ctx context.Context, target oras.Target, blob Blob) error {
	return c.retry(ctx, func(ctx context.Context) error {
		exists, err := target.Exists(ctx, blob.Descriptor)
		if err != nil || exists {
			return err
		}
		if blob.Descriptor.Size > 1<<20 {
			c.progress("uploading %d MiB (%s)", blob.Descriptor.Size>>20, blob.Descriptor.Digest.Encoded()[:12])
		}
		content, err := blob.Open()
		if err != nil {
			return err
		}
		defer func() { _ = content.Close() }()
		return target.Push(ctx, blob.Descriptor, content)
	})
}

// Resolve returns a reference by digest (HOST/REPOSITORY@DIGEST). One that has a digest already is returned without a
// request: the registry may have another name from here.
func (c *Client) Resolve(ctx context.Context, ref string) (string, error) {
	if pinned, ok, err := pinned(ref); err != nil || ok {
		return pinned, err
	}
	to, err := c.destination(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", ref, explain(err))
	}

	var descriptor ocispec.Descriptor
	if err := c.retry(ctx, func(ctx context.Context) (err error) {
		descriptor, err = to.target.Resolve(ctx, cmp.Or(to.tag, "latest"))
		return err
	}); err != nil {
		return "", fmt.Errorf("resolving %s: %w", ref, explain(err))
	}
	return to.name + "@" + descriptor.Digest.String(), nil
}

// NotFound tells whether an error of Resolve means that the registry answers but does not have the reference.
func NotFound(err error) bool {
	return errors.Is(err, errdef.ErrNotFound)
}

func (c *Client) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(c.opts.Progress, format+"\n", args...)
}

// passing tells whether an error may be gone the next time: the network's, an overload, a fault of the registry.
func passing(err error) bool {
	var (
		response    *errcode.ErrorResponse
		certificate *tls.CertificateVerificationError
	)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, auth.ErrBasicCredentialNotFound):
		return false
	case errors.As(err, &response):
		return response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusRequestTimeout
	case errors.As(err, &certificate), errors.Is(err, http.ErrSchemeMismatch):
		return false
	default:
		return networkError(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
	}
}

// explain adds to an error what to do about it.
func explain(err error) error {
	var (
		response    *errcode.ErrorResponse
		certificate *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &certificate):
		return fmt.Errorf("%w (name the registry's certificate authority by --ca-file)", err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w (the registry speaks plain HTTP: allow it by --plain-http, if the network can be trusted)", err)
	case errors.Is(err, auth.ErrBasicCredentialNotFound), errors.As(err, &response) && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden):
		return fmt.Errorf("%w (log in to the registry first, for instance by `docker login`)", err)
	case networkError(err):
		return fmt.Errorf("%w (is the registry up, and is the name right?)", err)
	default:
		return err
	}
}
