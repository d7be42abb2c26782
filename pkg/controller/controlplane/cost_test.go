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

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
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

func TestAReconcileThatChangesNothingCostsLittle(t *testing.T) {
	secrets := []string{"list Secret"}
	library := []string{"patch ControlPlane", "status ControlPlane", "status ControlPlane"}
	for name, test := range map[string]struct {
		deploy   bool
		requests []string
	}{
		"volumes only":          {false, slices.Concat([]string{"live ManagedResource"}, secrets, library)},
		"with cloud-controller": {true, slices.Concat([]string{"live ManagedResource", "get Secret", "patch Secret", "live Node"}, secrets, library)},
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

			c.opts.Charts.LocalPathProvisioner = sealed{c.opts.Charts.LocalPathProvisioner}
			c.opts.Charts.CloudController = sealed{c.opts.Charts.CloudController}
			c.restart()
			c.ask("reconcile")
			c.clock.Step(time.Minute)
			c.mustReconcile()
			g.Expect(c.controlPlane().Status.LastError).To(BeNil(), "nothing is rendered")
			g.Expect(c.requests).NotTo(ContainElement("create ManagedResource"), "what another process wrote is found")
			g.Expect(c.requests).NotTo(ContainElement("patch ManagedResource"))

			c.ask("reconcile")
			c.clock.Step(time.Minute)
			c.mustReconcile()
			g.Expect(c.requests).To(ConsistOf(test.requests))
			g.Expect(c.managedResource(ShootName).ResourceVersion).To(Equal(before.ResourceVersion))
			g.Expect(c.controlPlane().Annotations).NotTo(HaveKey("gardener.cloud/operation"))
		})
	}
}
