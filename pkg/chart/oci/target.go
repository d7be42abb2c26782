// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"fmt"
	"net/netip"
	"path"
	"strings"

	"oras.land/oras-go/v2/registry"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// target is where a chart may be pulled from: the mirrors in their order, then the registry of the reference.
type target struct {
	// Ref is the reference as configured.
	Ref string
	// Reference is the tag or the digest.
	Reference string
	// Tagged tells that Reference is a tag, which may be moved.
	Tagged bool
	// Endpoints are repositories, without tag or digest.
	Endpoints []endpoint
}

// endpoint is a repository in one registry.
type endpoint struct {
	Registry, Repository string
	// Plain tells whether HTTP without TLS may be used.
	Plain bool
}

func (e endpoint) String() string { return e.Registry + "/" + e.Repository }

// parse reads what the configuration says of a chart. An error is a mistake in it that its validation should have found.
func parse(config configv1alpha1.OCIChart) (target, error) {
	fail := func(err error) (target, error) {
		return target{}, &Error{Ref: config.Ref, Reason: ReasonConfiguration, Err: err}
	}
	ref, err := registry.ParseReference(config.Ref)
	if err != nil {
		return fail(err)
	}
	if ref.Reference == "" {
		return fail(fmt.Errorf("it has neither a tag nor a digest"))
	}

	t := target{Ref: config.Ref, Reference: ref.Reference, Tagged: ref.ValidateReferenceAsDigest() != nil}
	for _, mirror := range config.Mirrors {
		host, prefix, _ := strings.Cut(mirror, "/")
		at := registry.Reference{Registry: host, Repository: path.Join(prefix, ref.Repository)}
		if err := at.Validate(); err != nil {
			return fail(fmt.Errorf("mirror %q: %w", mirror, err))
		}
		t.Endpoints = append(t.Endpoints, endpoint{Registry: host, Repository: at.Repository, Plain: config.PlainHTTP || isLoopback(host)})
	}
	t.Endpoints = append(t.Endpoints, endpoint{Registry: ref.Registry, Repository: ref.Repository, Plain: config.PlainHTTP || isLoopback(ref.Registry)})
	return t, nil
}

// isLoopback tells whether HOST[:PORT] never leaves the machine. Names count only if they are reserved for that.
func isLoopback(host string) bool {
	if address, err := netip.ParseAddrPort(host); err == nil {
		return address.Addr().Unmap().IsLoopback()
	}
	if address, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return address.Unmap().IsLoopback()
	}
	name, _, _ := strings.Cut(strings.ToLower(host), ":")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

func (e endpoint) reference() registry.Reference {
	return registry.Reference{Registry: e.Registry, Repository: e.Repository}
}
