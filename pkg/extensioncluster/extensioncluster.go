// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package extensioncluster is the one place where the Cluster of an extension object is decoded. Controllers and
// webhooks ask it for the shoot, the seed and the cloud profile, and do not need to know which of them is missing when:
// objects of class garden and seed have no Cluster at all, a shoot without a seed has no Seed in it.
package extensioncluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

// Cluster is a decoded Cluster, or none: all methods may be called on nil. What they return is shared, do not change it.
type Cluster struct {
	decoded extensionscontroller.Cluster
}

// Get returns the Cluster of the extension objects in a namespace, and nil if there is none. An error is what the reader
// said, or that what is in the Cluster cannot be decoded.
func Get(ctx context.Context, reader client.Reader, namespace string) (*Cluster, error) {
	decoded, err := extensionscontroller.GetCluster(ctx, reader, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Cluster %s: %w", namespace, err)
	}
	return From(decoded), nil
}

// From returns the Cluster that Gardener's extension library hands to an actuator; nil for nil.
func From(decoded *extensionscontroller.Cluster) *Cluster {
	if decoded == nil {
		return nil
	}
	return &Cluster{decoded: *decoded}
}

// Decoded returns the Cluster as functions of Gardener's extension library take it, or nil.
func (c *Cluster) Decoded() *extensionscontroller.Cluster {
	if c == nil {
		return nil
	}
	return &c.decoded
}

// Shoot returns the shoot, or nil.
func (c *Cluster) Shoot() *gardencorev1beta1.Shoot { return ptr.Deref(c, Cluster{}).decoded.Shoot }

// Seed returns the seed, or nil.
func (c *Cluster) Seed() *gardencorev1beta1.Seed { return ptr.Deref(c, Cluster{}).decoded.Seed }

// CloudProfile returns the cloud profile, or nil.
func (c *Cluster) CloudProfile() *gardencorev1beta1.CloudProfile {
	return ptr.Deref(c, Cluster{}).decoded.CloudProfile
}

// IsHibernated reports whether the shoot is to be hibernated; false without a shoot.
func (c *Cluster) IsHibernated() bool {
	shoot := c.Shoot()
	return shoot != nil && v1beta1helper.HibernationIsEnabled(shoot)
}

// NeedsForceDeletion reports whether the user asked to delete the shoot without caring for what it leaves behind; false
// without a shoot.
func (c *Cluster) NeedsForceDeletion() bool {
	return v1beta1helper.ShootNeedsForceDeletion(c.Shoot())
}
