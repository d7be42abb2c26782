// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"cmp"
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// example is the Shoot in a file of the folder example.
func example(file string) *gardencorev1beta1.Shoot {
	GinkgoHelper()
	shoot := &gardencorev1beta1.Shoot{}
	Expect(yaml.UnmarshalStrict(readExample(file).content, shoot)).To(Succeed())
	return shoot
}

// exampleNamed is an example with another name.
func exampleNamed(file, name string) *gardencorev1beta1.Shoot {
	GinkgoHelper()
	return named(example(file), name)
}

// named gives a Shoot another name, and has nobody but the tests change it: at an hour that is up to chance, Gardener would take newer
// versions by itself.
func named(shoot *gardencorev1beta1.Shoot, name string) *gardencorev1beta1.Shoot {
	shoot.Name = name
	update := &gardencorev1beta1.MaintenanceAutoUpdate{KubernetesVersion: false}
	if !v1beta1helper.IsWorkerless(shoot) {
		update.MachineImageVersion = new(false)
	}
	shoot.Spec.Maintenance = &gardencorev1beta1.Maintenance{AutoUpdate: update}
	return shoot
}

// create makes a Shoot, after one that an earlier run left behind.
func create(ctx context.Context, shoot *gardencorev1beta1.Shoot) {
	GinkgoHelper()
	left := shoot.DeepCopy()
	if err := g.Refresh(ctx, left); !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
		By("deleting what an earlier run left of " + shoot.Name)
		remove(ctx, left)
	}
	Expect(g.Client.Create(ctx, shoot)).To(Succeed())
}

// createHealthy makes a Shoot, waits until it is healthy, and notes how long that took.
func createHealthy(ctx context.Context, shoot *gardencorev1beta1.Shoot) {
	GinkgoHelper()
	timed(shoot.Name, "create", func() {
		create(ctx, shoot)
		g.EventuallyHealthy(ctx, shoot, patience)
	})
}

// remove deletes a Shoot, if it is still there.
func remove(ctx context.Context, shoot *gardencorev1beta1.Shoot) {
	GinkgoHelper()
	g.Delete(ctx, shoot)
	g.EventuallyDeleted(ctx, shoot, patience)
}

// setHibernated hibernates a Shoot or wakes it up, and waits until it is healthy.
func setHibernated(ctx context.Context, shoot *gardencorev1beta1.Shoot, hibernated bool) {
	GinkgoHelper()
	Expect(g.Refresh(ctx, shoot)).To(Succeed())
	if v1beta1helper.HibernationIsEnabled(shoot) != hibernated {
		g.Change(ctx, shoot, func() {
			if shoot.Spec.Hibernation == nil {
				shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{}
			}
			shoot.Spec.Hibernation.Enabled = new(hibernated)
		})
	}
	g.EventuallyHealthy(ctx, shoot, patience)
}

// makeRoom hibernates the example with machines, so that there is memory for another shoot.
func makeRoom(ctx context.Context) {
	GinkgoHelper()
	if os.Getenv("KEEP_EXAMPLES") == "true" {
		return
	}
	shoot := example(exampleMachines)
	Expect(client.IgnoreNotFound(g.Refresh(ctx, shoot))).To(Succeed())
	if shoot.UID != "" && !v1beta1helper.HibernationIsEnabled(shoot) {
		timed(shoot.Name, "hibernate", func() { setHibernated(ctx, shoot, true) })
	}
}

// wakeExamples undoes what makeRoom did.
func wakeExamples(ctx context.Context) {
	GinkgoHelper()
	for _, file := range []string{exampleWorkerless, exampleMachines} {
		shoot := example(file)
		Expect(client.IgnoreNotFound(g.Refresh(ctx, shoot))).To(Succeed())
		if v1beta1helper.HibernationIsEnabled(shoot) {
			timed(shoot.Name, "wake up", func() { setHibernated(ctx, shoot, false) })
		}
	}
}

// access asks for access to a shoot that is awake.
func access(ctx context.Context, shoot *gardencorev1beta1.Shoot) *landscape.Cluster {
	GinkgoHelper()
	address := ""
	if seed := shoot.Status.SeedName; seed != nil && *seed != seedName {
		address = gatewayOf(ctx, *seed)
	}
	var cluster *landscape.Cluster
	Eventually(func() (err error) {
		cluster, err = g.Access(ctx, shoot, address)
		return err
	}).WithContext(ctx).Should(Succeed())
	return cluster
}

// gatewayOf is the address of the API servers of the shoots in a ManagedSeed. Their names are known within that seed only,
// as each one has a CoreDNS of its own (docs/usage/dns.md).
func gatewayOf(ctx context.Context, seed string) string {
	GinkgoHelper()
	cluster := access(ctx, landscape.Named[*gardencorev1beta1.Shoot](gardenNamespace, seed))
	gateway := landscape.Named[*corev1.Service](v1beta1constants.DefaultSNIIngressNamespace, v1beta1constants.DefaultSNIIngressServiceName)
	Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(gateway), gateway)).To(Succeed())
	Expect(gateway.Status.LoadBalancer.Ingress).NotTo(BeEmpty())
	return gateway.Status.LoadBalancer.Ingress[0].IP
}

// seedProblem tells for Eventually why a Seed is not ready, and nothing if it is.
func seedProblem(ctx context.Context, seed *gardencorev1beta1.Seed) func() (string, error) {
	return func() (string, error) {
		fresh := &gardencorev1beta1.Seed{}
		if err := g.Client.Get(ctx, client.ObjectKeyFromObject(seed), fresh); err != nil {
			return "", err
		}
		fresh.DeepCopyInto(seed)
		if seed.Status.ObservedGeneration != seed.Generation {
			return "its newest generation is not observed", nil
		}
		if operation := seed.Status.LastOperation; operation == nil || operation.State != gardencorev1beta1.LastOperationStateSucceeded {
			return cmp.Or(describe(operation), "no operation yet"), nil
		}
		if _, err := health.CheckRequiredSeedConditions(seed); err != nil {
			return err.Error(), nil
		}
		return landscape.ConditionsProblem(seed.Status.Conditions), nil
	}
}

func describe(operation *gardencorev1beta1.LastOperation) string {
	if operation == nil {
		return ""
	}
	return string(operation.Type) + " " + string(operation.State) + ": " + operation.Description
}
