// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"

	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// parallelUploads is how many blobs of an artifact are uploaded at a time.
const parallelUploads = 3

// maxManifest is the size in bytes up to which registries must accept a manifest (OCI distribution specification).
const maxManifest = 4 << 20

// Push uploads the blobs that the registry doesn't have yet, then the manifest under ref, and returns the reference by
// digest (HOST/REPOSITORY@DIGEST).
func (c *Client) Push(ctx context.Context, ref string, artifact Artifact) (string, error) {
	if len(artifact.Manifest) > maxManifest {
		return "", fmt.Errorf("pushing %s: its manifest has %d bytes, more than the %d that registries accept", ref, len(artifact.Manifest), maxManifest)
	}
	repository, err := c.repository(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, explain(err))
	}
	if repository.Reference.Reference == "" {
		return "", fmt.Errorf("pushing %s: the reference has no tag", ref)
	}

	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelUploads)
	for _, blob := range artifact.Blobs {
		group.Go(func() error { return c.pushBlob(groupCtx, repository, blob) })
	}
	if err := group.Wait(); err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, explain(err))
	}

	descriptor := ocispec.Descriptor{
		MediaType: artifact.MediaType,
		Digest:    ocidigest.FromBytes(artifact.Manifest),
		Size:      int64(len(artifact.Manifest)),
	}
	if err := c.retry(ctx, func(ctx context.Context) error {
		return repository.Manifests().PushReference(ctx, descriptor, readerOf(artifact.Manifest), repository.Reference.Reference)
	}); err != nil {
		return "", fmt.Errorf("pushing %s: the manifest: %w", ref, explain(err))
	}

	pinned := repository.Reference.Registry + "/" + repository.Reference.Repository + "@" + descriptor.Digest.String()
	c.progress("pushed %s as %s", ref, pinned)
	return pinned, nil
}

func (c *Client) pushBlob(ctx context.Context, repository *remote.Repository, blob Blob) error {
	return c.retry(ctx, func(ctx context.Context) error {
		exists, err := repository.Blobs().Exists(ctx, blob.Descriptor)
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
		return repository.Blobs().Push(ctx, blob.Descriptor, content)
	})
}

// Resolve returns a reference by digest (HOST/REPOSITORY@DIGEST). One that has a digest already is returned without a
// request: the registry may have another name from here.
func (c *Client) Resolve(ctx context.Context, ref string) (string, error) {
	if pinned, ok, err := pinned(ref); err != nil || ok {
		return pinned, err
	}
	repository, err := c.repository(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", ref, explain(err))
	}

	var descriptor ocispec.Descriptor
	if err := c.retry(ctx, func(ctx context.Context) (err error) {
		descriptor, err = repository.Resolve(ctx, repository.Reference.ReferenceOrDefault())
		return err
	}); err != nil {
		return "", fmt.Errorf("resolving %s: %w", ref, explain(err))
	}
	return repository.Reference.Registry + "/" + repository.Reference.Repository + "@" + descriptor.Digest.String(), nil
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
