// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"oras.land/oras-go/v2/registry"
)

func networkError(err error) bool {
	var (
		netErr net.Error
		urlErr *url.Error
	)
	return errors.As(err, &netErr) || errors.As(err, &urlErr)
}

func readerOf(data []byte) io.Reader {
	return bytes.NewReader(data)
}

// pinned returns ref without its tag if it has a digest. Like this it works wherever a reference is read, whereas some
// readers refuse a tag and a digest together.
func pinned(ref string) (string, bool, error) {
	parsed, err := registry.ParseReference(ref)
	if err != nil {
		return "", false, fmt.Errorf("reference %q: %w (expected HOST[:PORT]/REPOSITORY[:TAG][@DIGEST])", ref, err)
	}
	if !strings.Contains(ref, "@") {
		return "", false, nil
	}
	if err := parsed.ValidateReferenceAsDigest(); err != nil {
		return "", false, fmt.Errorf("reference %q: %w", ref, err)
	}
	return parsed.Registry + "/" + parsed.Repository + "@" + parsed.Reference, true, nil
}

// Rename returns ref, which is at registry from, as it is called at registry to.
func Rename(ref, from, to string) string {
	if rest, ok := strings.CutPrefix(ref, from+"/"); ok && to != "" {
		return to + "/" + rest
	}
	return ref
}
