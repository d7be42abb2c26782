// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const localPathProvisioner = "local-path-provisioner"

// deploy renders the charts and applies the ManagedResources. If nothing has changed, it renders and compresses nothing,
// and sends no request but, if cloud-controller is deployed, one for the Secret of its token and two to find its machines.
func (a *actuator) deploy(ctx context.Context, op *operation, secrets secretsmanager.Reader, phase phase) error {
	cluster, namespace := op.Cluster.Decoded(), op.Object.Namespace
	volumes, err := a.renderLocalPathProvisioner(ctx, cluster)
	if err != nil {
		return err
	}
	shoot := resources.ManagedResource{
		Namespace: namespace, Name: ShootName, Objects: volumes,
		// Gardener is not to sweep them up with the user's objects before GRM deletes them.
		InjectedLabels: map[string]string{v1beta1constants.ShootNoCleanup: "true"},
	}
	if !a.DeployCloudController {
		if err := a.removeSeed(ctx, op); err != nil {
			return err
		}
		return a.Resources.Apply(ctx, shoot)
	}

	if err := op.Apply(ctx, reconciler.Target{Client: a.client}.WithoutState(), accessSecret(namespace)); err != nil {
		return err
	}
	machines, err := a.machineCluster(ctx, op.Object)
	if err != nil {
		return err
	}
	objects, err := a.renderCloudController(ctx, cluster, machines, secrets, phase)
	if err != nil {
		return err
	}
	seed := resources.ManagedResource{Namespace: namespace, Name: SeedName, Class: v1beta1constants.SeedResourceManagerClass}
	if phase != awake {
		seed.Labels = map[string]string{labelHibernation: string(phase)}
	}
	addCloudController(&seed, &shoot, objects)
	if err := a.Resources.Apply(ctx, seed); err != nil {
		return err
	}
	return a.Resources.Apply(ctx, shoot)
}

// addCloudController lets only that into the seed which is in the shoot's namespace there.
func addCloudController(seed, shoot *resources.ManagedResource, objects []client.Object) {
	for _, object := range objects {
		if object.GetNamespace() == seed.Namespace {
			seed.Objects = append(seed.Objects, object)
		} else {
			shoot.Objects = append(shoot.Objects, object)
		}
	}
}

func (a *actuator) renderLocalPathProvisioner(ctx context.Context, cluster *extensionscontroller.Cluster) ([]client.Object, error) {
	renderer, err := a.Renderer.For(chart.Capabilities{KubeVersion: cluster.Shoot.Spec.Kubernetes.Version})
	if err != nil {
		return nil, err
	}
	return render(ctx, renderer, a.Charts.LocalPathProvisioner, chart.Release{Name: localPathProvisioner, Namespace: metav1.NamespaceSystem}, map[string]any{
		"image": a.Images.LocalPathProvisioner,
		"vpa":   map[string]any{"enabled": v1beta1helper.ShootWantsVerticalPodAutoscaler(cluster.Shoot)},
	})
}

func (a *actuator) renderCloudController(ctx context.Context, cluster *extensionscontroller.Cluster, machines map[string]any, secrets secretsmanager.Reader, phase phase) ([]client.Object, error) {
	server, ok := secrets.Get(serverName)
	if !ok {
		return nil, fmt.Errorf("the secrets manager has no secret %s", serverName)
	}
	replicas := 1
	if phase == hibernated {
		replicas = 0
	}

	namespace := cluster.ObjectMeta.Name
	return render(ctx, a.Renderer, a.Charts.CloudController, chart.Release{Name: cloudController, Namespace: namespace}, map[string]any{
		"image":    a.Images.CloudController,
		"replicas": replicas,
		"shootAccess": map[string]any{
			"kubeconfigSecret": extensionscontroller.GenericTokenKubeconfigSecretNameFromCluster(cluster),
			"tokenSecret":      accessSecret(namespace).Name,
		},
		"machineCluster": machines,
		"serverSecret":   server.Name,
		"vpa":            map[string]any{"enabled": a.VPA},
	})
}

func render(ctx context.Context, renderer *chart.Renderer, source chart.Source, release chart.Release, values map[string]any) ([]client.Object, error) {
	rendered, err := renderer.Render(ctx, source, release, values)
	if refused := (*chart.ValuesError)(nil); errors.As(err, &refused) {
		// Only another configuration of this extension helps.
		return nil, reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}
	if err != nil {
		return nil, err
	}
	return rendered.Objects, nil
}

// accessSecret is the Secret into which gardener-resource-manager puts the token of cloud-controller for the API server of the shoot.
func accessSecret(namespace string) *corev1.Secret {
	access := gardenerutils.NewShootAccessSecret(cloudController, namespace)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: access.Secret.Name,
			Labels: map[string]string{
				resourcesv1alpha1.ResourceManagerPurpose: resourcesv1alpha1.LabelPurposeTokenRequest,
				resourcesv1alpha1.ResourceManagerClass:   access.Class,
			},
			Annotations: map[string]string{
				resourcesv1alpha1.ServiceAccountName:      access.ServiceAccountName,
				resourcesv1alpha1.ServiceAccountNamespace: metav1.NamespaceSystem,
			},
		},
		Type: corev1.SecretTypeOpaque,
	}
}

// deleteAccess deletes the Secret with the token of cloud-controller.
func (a *actuator) deleteAccess(ctx context.Context, op *operation) error {
	_, err := op.Delete(ctx, reconciler.Target{Client: a.client}.WithoutState(), []client.Object{accessSecret(op.Object.Namespace)})
	return err
}

// removeSeed removes a cloud-controller that has been switched off, and waits for nothing.
func (a *actuator) removeSeed(ctx context.Context, op *operation) error {
	mr, err := a.cached(ctx, op.Object.Namespace, SeedName)
	if mr == nil {
		return err
	}
	if err := a.deleteAccess(ctx, op); err != nil {
		return err
	}
	_, err = a.Resources.Delete(ctx, client.ObjectKeyFromObject(mr))
	return err
}

// removeFormerStorageClasses has the StorageClass stay in the shoot, and waits for nothing. A hibernated shoot has nobody to
// let go of it.
func (a *actuator) removeFormerStorageClasses(ctx context.Context, op *operation) error {
	mr, err := a.cached(ctx, op.Object.Namespace, FormerStorageClassesName)
	if mr == nil || op.Cluster.IsHibernated() {
		return err
	}
	_, err = a.Resources.Orphan(ctx, client.ObjectKeyFromObject(mr))
	return err
}

// cached returns a ManagedResource as the cache has it; nil if there is none.
func (a *actuator) cached(ctx context.Context, namespace, name string) (*resourcesv1alpha1.ManagedResource, error) {
	mr := &resourcesv1alpha1.ManagedResource{}
	if err := a.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, mr); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return mr, nil
}
