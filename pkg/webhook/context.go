// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import "context"

type shootNamespaceKey struct{}

// ShootNamespace returns the namespace in the seed of the shoot whose API server calls, and the empty string if it is the
// seed's API server that calls. It is a DNS label.
//
// It is what the caller says, by the URL that it was given: callers are not authenticated. A handler may choose by it how
// to mutate, but must not answer with what another shoot may not know.
func ShootNamespace(ctx context.Context) string {
	namespace, _ := ctx.Value(shootNamespaceKey{}).(string)
	return namespace
}

// WithShootNamespace returns a context in which ShootNamespace returns the given namespace.
func WithShootNamespace(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, shootNamespaceKey{}, namespace)
}
