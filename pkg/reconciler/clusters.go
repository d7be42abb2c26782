// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"bytes"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/extensions"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// clustersMax is how many decoded Clusters are kept.
const clustersMax = 64

// Clusters keep decoded Clusters as long as they don't change: a shoot has a dozen objects and more, which come at the same
// time, and to decode its Cluster takes longer than all else that is done for one of them.
type Clusters struct {
	reader  client.Reader
	decoded *lru.Cache
}

type decodedCluster struct {
	resourceVersion string
	cluster         *extensioncluster.Cluster
}

// NewClusters returns Clusters that are read by reader, the client of a manager, which caches them.
func NewClusters(reader client.Reader) *Clusters {
	return &Clusters{reader: reader, decoded: lru.New(clustersMax)}
}

// Get returns the Cluster of the name, or nil if there is none.
func (c *Clusters) Get(ctx context.Context, name string) (*extensioncluster.Cluster, error) {
	// Only the version is read, so the cache need not copy the Cluster.
	current := &extensionsv1alpha1.Cluster{}
	err := c.reader.Get(ctx, client.ObjectKey{Name: name}, current, &client.GetOptions{UnsafeDisableDeepCopy: new(true)})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading Cluster %s: %w", name, err)
	}
	if known, ok := c.decoded.Get(name); ok && known.(decodedCluster).resourceVersion == current.ResourceVersion {
		return known.(decodedCluster).cluster, nil
	}

	// If it changes just now, it is decoded once more the next time.
	cluster, err := extensioncluster.Get(ctx, c.reader, name)
	if err != nil {
		return nil, err
	}
	c.decoded.Add(name, decodedCluster{resourceVersion: current.ResourceVersion, cluster: cluster})
	return cluster, nil
}

// isOfFailedShoot reports whether the Shoot of a Cluster is in state Failed.
func isOfFailedShoot(object client.Object) bool {
	cluster, ok := object.(*extensionsv1alpha1.Cluster)
	// Every change of every Cluster comes here, and decoding one is expensive.
	if !ok || !bytes.Contains(cluster.Spec.Shoot.Raw, []byte(`"`+gardencorev1beta1.LastOperationStateFailed+`"`)) {
		return false
	}
	shoot, err := extensions.ShootFromCluster(cluster)
	return err == nil && extensionscontroller.IsShootFailed(shoot)
}
