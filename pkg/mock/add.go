// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controllers need.
type Options struct {
	// Shared has the classes of the objects to serve. With class garden alone there are controllers only for the kinds of which a
	// Garden has objects.
	reconciler.Shared

	// Config says which operations take time and which fail. Its Enabled does not matter here.
	Config configv1alpha1.MockConfiguration
	// HostPath is the folder of all buckets as the nodes see it, which BackupEntries tell etcd-druid.
	HostPath string
	// Nodes makes the fake Nodes of shoots. Without it Workers only tell their MachineDeployments.
	Nodes Nodes
	// Clock tells the time. Default: the real one.
	Clock clock.PassiveClock
}

// AddToManager adds a controller for each kind. The client of the manager is to read its own writes (instance.NewClient). A
// kind whose CustomResourceDefinition is not there when the program starts gets none.
//
// Needed permissions: get, list, watch and patch on the extension objects of all kinds, patch on their status; update on the
// finalizers of OperatingSystemConfigs where OwnerReferencesPermissionEnforcement is on; get, create, patch and delete on
// Secrets, with class garden only in the namespace garden; with class shoot get, list and watch on Clusters.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	_, beyondGarden := opts.Classes.Only(extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot)
	for _, kind := range kinds() {
		if !kind.inGarden && !beyondGarden {
			continue
		}
		if err := add(mgr, opts, kind); err != nil {
			return fmt.Errorf("adding the mock controller for %ss: %w", kind.name, err)
		}
	}
	return nil
}

func add(mgr manager.Manager, opts Options, kind kind) error {
	gvk, err := apiutil.GVKForObject(kind.newObject(), mgr.GetScheme())
	if err != nil {
		return err
	}
	if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
		mgr.GetLogger().Info("The mock provider does not serve a kind that this cluster does not know", "kind", kind.name)
		return nil
	} else if err != nil {
		return err
	}
	return newReconciler(mgr.GetClient(), opts, kind).AddToManager(mgr, "mock-"+strings.ToLower(kind.name))
}
