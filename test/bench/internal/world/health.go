// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

const (
	// ShootUser is as whom the programs send their requests to the API servers of shoots.
	ShootUser = "system:serviceaccount:" + shootNamespace + ":" + shootAccount

	shootNamespace = "bench-shoots"
	shootAccount   = "shoot"

	machineControllerManager = "machine-controller-manager"
	// machinePermissions is the ManagedResource with which gardenlet gives machine-controller-manager its permissions in a shoot.
	machinePermissions = "shoot-core-machine-controller-manager"
	shootWebhooks      = "extension-controlplane-shoot-webhooks"
)

// HealthCheck is a condition of an extension object, and the object that it is about.
type HealthCheck struct {
	// Kind is the kind of the extension object, and Target the kind of the object that is checked, both for tables.
	Kind, Target string
	// Condition is the type of the condition.
	Condition gardencorev1beta1.ConditionType
	// InTree reports whether the in-tree extension has this check too.
	InTree bool

	find func(ctx context.Context, c client.Client, namespace string) (client.Object, error)
	set  func(obj client.Object, healthy bool)
}

// HealthChecks returns the checks of ControlPlanes and Workers.
func HealthChecks() []HealthCheck {
	return []HealthCheck{
		{"ControlPlane", "ManagedResource", gardencorev1beta1.ShootSystemComponentsHealthy, false, managedResource(shootWebhooks), setManagedResource},
		{"Worker", "ManagedResource", gardencorev1beta1.ShootSystemComponentsHealthy, false, managedResource(machinePermissions), setManagedResource},
		{"Worker", "Deployment", gardencorev1beta1.ShootControlPlaneHealthy, false, deployment, setDeployment},
		{"Worker", "MachineDeployment", gardencorev1beta1.ShootEveryNodeReady, true, machineDeployment, setMachineDeployment},
	}
}

// PrepareHealth creates what the health checks need in the namespaces of shoots before there are Workers: access to the
// shoot's API server, healthy components of gardenlet, and a Machine. The API server of all shoots is that of the bench, with
// one Node, which is as many as each Worker has. DropMachines deletes the Machines.
func (w *World) PrepareHealth(ctx context.Context, namespaces []string) error {
	if err := w.env.CreateNamespaces(ctx, shootNamespace); err != nil {
		return err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "shoot"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, obj := range []client.Object{node, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: shootNamespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: shootNamespace, Name: shootAccount}},
	}} {
		if err := w.Client.Create(ctx, obj); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
	}
	dir, err := w.folder(shootNamespace)
	if err != nil {
		return err
	}
	path, err := w.env.ServiceAccountKubeconfig(dir, shootNamespace, shootAccount)
	if err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	var objects, machines []client.Object
	for _, namespace := range namespaces {
		machines = append(machines, &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: node.Name, Labels: map[string]string{machinev1alpha1.NodeLabelKey: node.Name},
		}})
		objects = append(objects,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener-internal"}, Data: map[string][]byte{"kubeconfig": kubeconfig}},
			&resourcesv1alpha1.ManagedResource{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machinePermissions},
				Spec:       resourcesv1alpha1.ManagedResourceSpec{SecretRefs: []corev1.LocalObjectReference{}},
			})
	}
	if err := w.CreateAll(ctx, append(objects, machines...)); err != nil {
		return err
	}
	if err := w.SetHealth(ctx, HealthCheck{set: setMachine}, machines, true); err != nil {
		return err
	}
	check := HealthCheck{find: deployment, set: setDeployment}
	deployments, err := w.Targets(ctx, check, namespaces)
	if err != nil {
		return err
	}
	return w.SetHealth(ctx, check, deployments, true)
}

// DropMachines deletes the Machines, without which no Worker goes.
func (w *World) DropMachines(ctx context.Context, namespaces []string) error {
	for _, namespace := range namespaces {
		if err := w.Client.DeleteAllOf(ctx, &machinev1alpha1.Machine{}, client.InNamespace(namespace)); err != nil {
			return err
		}
	}
	return nil
}

// Targets returns the objects that a check is about, one for each namespace.
func (w *World) Targets(ctx context.Context, check HealthCheck, namespaces []string) ([]client.Object, error) {
	out := make([]client.Object, len(namespaces))
	for i, namespace := range namespaces {
		var err error
		if out[i], err = check.find(ctx, w.Client, namespace); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SetHealth writes into the status of a check's objects that they are healthy, or that they are not.
func (w *World) SetHealth(ctx context.Context, check HealthCheck, objects []client.Object, healthy bool) error {
	return Each(ctx, objects, func(ctx context.Context, obj client.Object) error {
		before := obj.DeepCopyObject().(client.Object)
		check.set(obj, healthy)
		return w.Client.Status().Patch(ctx, obj, client.MergeFrom(before))
	})
}

// TrackHealth follows the objects of a round. Those with the status in the check's condition count as ready.
func (w *World) TrackHealth(ctx context.Context, list client.ObjectList, round string, check HealthCheck, healthy bool) *Tracker {
	return w.track(ctx, list, func(obj client.Object) bool {
		condition := v1beta1helper.GetCondition(obj.(extensionsv1alpha1.Object).GetExtensionStatus().GetConditions(), check.Condition)
		return condition != nil && condition.Status == conditionStatus(healthy)
	}, client.MatchingLabels{RoundLabel: round})
}

func conditionStatus(healthy bool) gardencorev1beta1.ConditionStatus {
	if healthy {
		return gardencorev1beta1.ConditionTrue
	}
	return gardencorev1beta1.ConditionFalse
}

func managedResource(name string) func(context.Context, client.Client, string) (client.Object, error) {
	return func(ctx context.Context, c client.Client, namespace string) (client.Object, error) {
		mr := &resourcesv1alpha1.ManagedResource{}
		return mr, c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, mr)
	}
}

func setManagedResource(obj client.Object, healthy bool) {
	mr, now := obj.(*resourcesv1alpha1.ManagedResource), metav1.Now()
	mr.Status.Conditions = v1beta1helper.MergeConditions(mr.Status.Conditions, gardencorev1beta1.Condition{
		Type: resourcesv1alpha1.ResourcesHealthy, Status: conditionStatus(healthy), Reason: "Bench", Message: "set by the bench", LastUpdateTime: now, LastTransitionTime: now,
	})
}

func deployment(ctx context.Context, c client.Client, namespace string) (client.Object, error) {
	d := &appsv1.Deployment{}
	return d, c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machineControllerManager}, d)
}

func setDeployment(obj client.Object, healthy bool) {
	d := obj.(*appsv1.Deployment)
	d.Status.ObservedGeneration = d.Generation
	d.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionStatus(conditionStatus(healthy))},
		{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
	}
}

func machineDeployment(ctx context.Context, c client.Client, namespace string) (client.Object, error) {
	list := &machinev1alpha1.MachineDeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("there are %d MachineDeployments in %s instead of one", len(list.Items), namespace)
	}
	return &list.Items[0], nil
}

// setMachineDeployment writes that a machine has failed: both extensions take that for False at once. The in-tree one does not
// look at the conditions of Nodes.
func setMachineDeployment(obj client.Object, healthy bool) {
	d := obj.(*machinev1alpha1.MachineDeployment)
	d.Status.FailedMachines = nil
	if !healthy {
		d.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{
			Name: d.Name + "-1", LastOperation: machinev1alpha1.LastOperation{Description: "there is no room", LastUpdateTime: metav1.Now()},
		}}
	}
}

// setMachine writes what machine-controller-manager says of a Machine whose Node is ready.
func setMachine(obj client.Object, healthy bool) {
	machine := obj.(*machinev1alpha1.Machine)
	machine.Status.CurrentStatus.Phase = machinev1alpha1.MachineRunning
	machine.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(conditionStatus(healthy))}}
}
