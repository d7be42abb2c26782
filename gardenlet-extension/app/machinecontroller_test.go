// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
)

func TestMachineControllerTakesTheFlagsOfAllMachineControllers(t *testing.T) {
	g := NewWithT(t)
	expected := pflag.NewFlagSet("", pflag.ContinueOnError)
	options.NewMCServer().AddFlags(expected)
	expected.StringSlice("remote-allowed-cidrs", nil, "our own")

	var names, expectedNames []string
	newMachineControllerCommand().Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	expected.SetNormalizeFunc(newMachineControllerCommand().Flags().GetNormalizeFunc())
	expected.VisitAll(func(f *pflag.Flag) { expectedNames = append(expectedNames, f.Name) })
	g.Expect(names).To(ConsistOf(expectedNames))
}

func TestMachineControllerTakesWhatGardenerStartsItWith(t *testing.T) {
	for name, shoot := range map[string]*gardencorev1beta1.Shoot{
		"for a shoot in a seed": {},
		"for a shoot that hosts itself": {Spec: gardencorev1beta1.ShootSpec{Provider: gardencorev1beta1.Provider{Workers: []gardencorev1beta1.Worker{
			{Name: "control-plane", ControlPlane: &gardencorev1beta1.WorkerControlPlane{}},
		}}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cmd := newMachineControllerCommand()
			g.Expect(cmd.ParseFlags(machinecontrollermanager.ProviderSidecarContainer(shoot, "shoot--local--local", "local", "image").Args)).To(Succeed())
			g.Expect(cmd.Flags().GetString("namespace")).To(Equal("shoot--local--local"))
			g.Expect(cmd.Flags().GetString("control-kubeconfig")).To(Equal("inClusterConfig"))
		})
	}
}

func TestMachineControllerSaysWhatIsWrong(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		args     []string
		expected string
	}{
		"an argument":           {[]string{"x"}, `unknown command "x"`},
		"a flag":                {[]string{"--kubeconfig=x"}, "unknown flag: --kubeconfig"},
		"a port":                {[]string{"--port=0"}, "invalid port number"},
		"no seed":               {[]string{"--target-kubeconfig=none"}, "--control-kubeconfig cannot be empty"},
		"a missing kubeconfig":  {[]string{"--control-kubeconfig=" + missing}, "finding the seed by --control-kubeconfig: stat " + missing},
		"a range that is none":  {[]string{"--control-kubeconfig=" + missing, "--remote-allowed-cidrs=10.0.0.0/8,192.0.2.1"}, `--remote-allowed-cidrs: "192.0.2.1" is no CIDR`},
		"the cluster's own one": {[]string{"--target-kubeconfig=" + missing}, "finding the seed by --control-kubeconfig: stat " + missing},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t.Context(), newMachineControllerCommand(), test.args...)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.expected)))
		})
	}
}

func TestMachineControllerExplainsItself(t *testing.T) {
	g := NewWithT(t)
	out, err := execute(t.Context(), newMachineControllerCommand(), "--help")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(And(ContainSubstring("makes a pod for each Machine"), ContainSubstring("--control-kubeconfig=inClusterConfig"), ContainSubstring("--machine-creation-timeout")))
}

func execute(ctx context.Context, cmd *cobra.Command, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out := &bytes.Buffer{}
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}
