// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

var (
	deployments  = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	statefulSets = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	gardens      = schema.GroupVersionKind{Group: "operator.gardener.cloud", Version: "v1alpha1", Kind: "Garden"}
	seeds        = schema.GroupVersionKind{Group: "core.gardener.cloud", Version: "v1beta1", Kind: "Seed"}
	shoots       = schema.GroupVersionKind{Group: "core.gardener.cloud", Version: "v1beta1", Kind: "Shoot"}
)

// garden waits until the Garden is up.
func (l Landscape) garden(ctx context.Context, progress step.Progress) (string, error) {
	garden := client.InNamespace("garden")
	named := func(name string) []client.ListOption {
		return []client.ListOption{garden, client.MatchingFields{"metadata.name": name}}
	}
	instance, err := l.artifact(gardenInstance)
	if err != nil {
		return "", err
	}
	built, err := l.runsCheckout("gardener-operator")
	if err != nil {
		return "", err
	}
	// Before the Garden is done with all the rest, its API is.
	gardenlet := func(ctx context.Context) { l.ahead.begin(ctx, "gardenlet", "gardenlet", l.deployGardenlet) }
	result, err := l.wait(ctx, progress, append(built, []milestone{
		{title: "gardener-operator is available", kind: deployments, options: named("gardener-operator"), reached: rolledOut},
		{title: "the extension's pod is available", kind: deployments, reached: runs(instance)},
		{title: "BackupBucket Succeeded", kind: cluster.ExtensionKind("BackupBucket"), reached: succeeded(1)},
		{title: "DNSRecords Succeeded", kind: cluster.ExtensionKind("DNSRecord"), options: []client.ListOption{garden}, reached: succeeded(5)},
		{title: "BackupEntry Succeeded", kind: cluster.ExtensionKind("BackupEntry"), reached: succeeded(1)},
		{title: "etcd-main is available", kind: statefulSets, options: named("virtual-garden-etcd-main"), reached: rolledOut},
		{title: "virtual kube-apiserver is available", kind: deployments, options: named("virtual-garden-kube-apiserver"), reached: rolledOut},
		{title: "gardener-apiserver is available", kind: deployments, options: named("gardener-apiserver"), reached: rolledOut},
		{title: "gardener-admission-controller is available", kind: deployments, options: named("gardener-admission-controller"), reached: rolledOut, then: gardenlet},
		{title: "the extension's admission is available", kind: deployments, options: named("gardener-extension-admission-local"), reached: rolledOut},
		{title: "Extension Succeeded", kind: cluster.ExtensionKind("Extension"), options: []client.ListOption{garden}, reached: succeeded(1)},
		{title: "Garden Succeeded", kind: gardens, reached: reconciled, phase: true},
		{title: "Garden healthy", kind: gardens, reached: healthy},
	}...))
	// Otherwise the step gardenlet does it.
	if err == nil && l.until == "garden" {
		err = l.virtualKubeconfig(ctx)
	}
	return result, err
}

// seed waits until the seed that gardenlet registers is up.
func (l Landscape) seed(ctx context.Context, progress step.Progress) (string, error) {
	create := func(ctx context.Context) { l.ahead.begin(ctx, "shoot", "shoots", l.createShoots) }
	only := []client.ListOption{client.MatchingFields{"metadata.name": layout.SeedName}}
	instance, err := l.artifact(seedInstance)
	if err != nil {
		return "", err
	}
	built, err := l.runsCheckout("gardenlet")
	if err != nil {
		return "", err
	}
	return l.wait(ctx, progress, append(built, []milestone{
		{title: "the extension's pod in the Seed is available", kind: deployments, reached: runs(instance)},
		{title: "Seed Succeeded", on: virtualGarden, kind: seeds, options: only, reached: reconciled},
		{title: "Seed takes shoots", on: virtualGarden, kind: seeds, options: only, reached: takesShoots, then: create},
		{title: "Seed healthy", on: virtualGarden, kind: seeds, options: only, reached: seedHealthy, phase: true},
	}...))
}

// shoots creates the example shoots and waits until they are up.
func (l Landscape) shoots(ctx context.Context, progress step.Progress) (string, error) {
	if _, err := l.ahead.finish(ctx, "shoots", l.createShoots); err != nil {
		return "", err
	}
	examples, err := l.exampleShoots()
	if err != nil {
		return "", err
	}
	var all []milestone
	for _, shoot := range examples {
		only := []client.ListOption{client.InNamespace(shoot.GetNamespace()), client.MatchingFields{"metadata.name": shoot.GetName()}}
		all = append(all,
			milestone{title: "Shoot " + shoot.GetName() + " Succeeded", on: virtualGarden, kind: shoots, options: only, reached: reconciled, phase: true},
			milestone{title: "Shoot " + shoot.GetName() + " healthy", on: virtualGarden, kind: shoots, options: only, reached: healthy})
	}
	text, err := l.wait(ctx, progress, all)
	if err != nil {
		return "", err
	}
	return text, l.saveShootKubeconfigs(ctx, examples)
}

// createShoots creates those of the example shoots that are not there yet, and names their seed: gardener-scheduler takes a
// Seed only once gardener-controller-manager, which does so twice a minute, has looked at its backup buckets.
func (l Landscape) createShoots(ctx context.Context, _ step.Progress) (string, error) {
	examples, err := l.exampleShoots()
	if err != nil {
		return "", err
	}
	c, err := l.client(virtualGarden)
	if err != nil {
		return "", err
	}
	for _, shoot := range examples {
		err := unstructured.SetNestedField(shoot.Object, layout.SeedName, "spec", "seedName")
		if err == nil {
			err = c.Create(ctx, shoot)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return "", fmt.Errorf("creating Shoot %s: %w", client.ObjectKeyFromObject(shoot), err)
		}
	}
	return "created", nil
}

// exampleShoots reads the Shoots that `up` creates, for the network and the IP family of the landscape.
func (l Landscape) exampleShoots() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, file := range []string{"90-shoot-workerless.yaml", "91-shoot.yaml"} {
		objects, err := cluster.Read(filepath.Join(l.Layout.Root, "example", file))
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	for _, shoot := range all {
		nodes := l.Layout.Network.ShootNodeCIDR()
		if l.Layout.Kind == "ipv6" {
			nodes = "fd00:10:a::/64"
			if err := unstructured.SetNestedStringSlice(shoot.Object, []string{"IPv6"}, "spec", "networking", "ipFamilies"); err != nil {
				return nil, fmt.Errorf("giving Shoot %s the IP family of its seed: %w", client.ObjectKeyFromObject(shoot), err)
			}
		}
		// A Shoot without machines has no range for them.
		if _, found, _ := unstructured.NestedString(shoot.Object, "spec", "networking", "nodes"); !found {
			continue
		}
		if err := unstructured.SetNestedField(shoot.Object, nodes, "spec", "networking", "nodes"); err != nil {
			return nil, fmt.Errorf("giving Shoot %s its range of addresses: %w", client.ObjectKeyFromObject(shoot), err)
		}
	}
	return all, nil
}

// reconciled wants at least one object, and the last operation of all of them Succeeded.
func reconciled(objects []unstructured.Unstructured) (bool, string) {
	for _, o := range objects {
		status := cluster.StatusOf(&o)
		if last := status.LastOperation; last.State != "Succeeded" || ptr.Deref(status.ObservedGeneration, 0) != o.GetGeneration() {
			return false, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s", o.GetKind(), o.GetName(), last.State, last.Description))
		}
	}
	return len(objects) > 0, fmt.Sprintf("%d objects", len(objects))
}

// healthy wants at least one object, and all conditions of all of them True.
func healthy(objects []unstructured.Unstructured) (bool, string) {
	count := 0
	for _, o := range objects {
		conditions := cluster.StatusOf(&o).Conditions
		for _, c := range conditions {
			if c.Status != "True" {
				return false, fmt.Sprintf("%s is %s: %s", c.Type, c.Status, c.Message)
			}
		}
		if len(conditions) == 0 {
			return false, fmt.Sprintf("%s %s has no conditions yet", o.GetKind(), o.GetName())
		}
		count += len(conditions)
	}
	return count > 0, fmt.Sprintf("%d conditions are True", count)
}

// takesShoots wants what gardenlet wants of the Seed before it works on a shoot; otherwise it looks again after 15 seconds.
func takesShoots(objects []unstructured.Unstructured) (bool, string) {
	if done, state := reconciled(objects); !done {
		return false, state
	}
	return conditions(objects, "GardenletReady", "SeedSystemComponentsHealthy")
}

// seedHealthy wants all conditions True, and all of them there: they appear one after the other.
func seedHealthy(objects []unstructured.Unstructured) (bool, string) {
	if done, state := conditions(objects, "GardenletReady", "SeedSystemComponentsHealthy", "ExtensionsReady", "BackupBucketsReady"); !done {
		return false, state
	}
	return healthy(objects)
}

// conditions wants at least one object, and these conditions of all of them True.
func conditions(objects []unstructured.Unstructured, types ...string) (bool, string) {
	for _, o := range objects {
		if missing := notTrue(cluster.StatusOf(&o).Conditions, types...); missing != "" {
			return false, fmt.Sprintf("%s %s: %s", o.GetKind(), o.GetName(), missing)
		}
	}
	return len(objects) > 0, strings.Join(types, " and ")
}

// notTrue tells of the first of these conditions that is not True, or not there yet.
func notTrue(conditions []cluster.Condition, wanted ...string) string {
	for _, kind := range wanted {
		i := slices.IndexFunc(conditions, func(c cluster.Condition) bool { return c.Type == kind })
		if i < 0 {
			return kind + " is not reported yet"
		}
		if conditions[i].Status != "True" {
			return fmt.Sprintf("%s is %s: %s", kind, conditions[i].Status, conditions[i].Message)
		}
	}
	return ""
}
