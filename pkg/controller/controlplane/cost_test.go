// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

// sealed is a chart that can be told from others by its digest but not be rendered.
type sealed struct{ chart.Source }

func (s sealed) Load(ctx context.Context) (*chart.Archive, error) {
	archive, err := s.Source.Load(ctx)
	if err != nil {
		return nil, err
	}
	copied := *archive.Chart
	copied.Raw = nil
	return &chart.Archive{Chart: &copied, Digest: archive.Digest}, nil
}

// counted are requests with how often each was sent.
func counted(requests []string) map[string]int {
	out := map[string]int{}
	for _, request := range requests {
		out[request]++
	}
	return out
}

func TestACreationAndADeletionCostLittle(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.opts.DeployCloudController, c.opts.secretConfigs = true, nil
	c.restart()
	cp := c.controlPlane()
	cp.CreationTimestamp.Time = c.clock.Now()
	g.Expect(c.Update(t.Context(), cp)).To(Succeed())
	c.annotate(requests.Asking("reconcile", c.clock.Now()))

	var requests []string
	reconcile := func() {
		c.mustReconcile()
		requests = append(requests, c.requests...)
	}
	reconcile()
	c.healthy()
	reconcile()
	g.Expect(c.controlPlane().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(counted(requests)).To(Equal(map[string]int{
		"patch ControlPlane":     1, // The finalizer and the annotation.
		"status ControlPlane":    1,
		"create ManagedResource": 3,
		"create Secret":          3 + 6,
		"apply Secret":           1,
		"live Node":              1,
	}))

	g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
	g.Expect(c.requests).To(BeEmpty(), "nobody asks for more")

	requests = nil
	c.serve([]string{grmFinalizer}, WebhooksName, SeedName, ShootName)
	c.delete()
	for _, name := range []string{ShootName, SeedName, WebhooksName} {
		reconcile()
		c.serve(nil, name)
	}
	reconcile()
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(counted(requests)).To(Equal(map[string]int{
		"delete ManagedResource":  3,
		"delete Secret":           3 + 1,
		"deletecollection Secret": 1,
		"patch ControlPlane":      1,
	}))
}

func TestAReconcileThatChangesNothingCostsLittle(t *testing.T) {
	secrets := []string{"list Secret"}
	own := []string{"patch ControlPlane", "status ControlPlane"}
	for name, test := range map[string]struct {
		deploy   bool
		requests []string
	}{
		"volumes only":          {false, slices.Concat(secrets, own)},
		"with cloud-controller": {true, slices.Concat([]string{"apply Secret"}, secrets, own)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			c.opts.DeployCloudController = test.deploy
			c.restart()
			c.mustReconcile()
			c.healthy()
			c.mustReconcile()
			before := c.managedResource(ShootName)

			c.opts.LocalPathProvisioner.Chart = sealed{c.opts.LocalPathProvisioner.Chart}
			c.opts.CloudController.Chart = sealed{c.opts.CloudController.Chart}
			c.restart()
			c.ask("reconcile")
			c.clock.Step(time.Minute)
			c.mustReconcile()
			g.Expect(c.controlPlane().Status.LastError).To(BeNil(), "nothing is rendered")
			g.Expect(c.requests).NotTo(ContainElement("create ManagedResource"), "what another process wrote is found")
			g.Expect(c.requests).NotTo(ContainElement("patch ManagedResource"))

			c.clock.Step(time.Minute)
			c.annotate(requests.Asking("reconcile", c.clock.Now()))
			c.mustReconcile()
			g.Expect(c.requests).To(ConsistOf(test.requests))
			g.Expect(c.managedResource(ShootName).ResourceVersion).To(Equal(before.ResourceVersion))
			g.Expect(c.controlPlane().Annotations).NotTo(HaveKey("gardener.cloud/operation"))
		})
	}
}
