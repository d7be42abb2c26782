// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// deployRuntime deploys what belongs into the runtime cluster.
func (l Landscape) deployRuntime(ctx context.Context, progress step.Progress) (string, error) {
	if _, err := l.finishSkaffold(ctx, progress, "skaffold-build", "build", l.build); err != nil {
		return "", err
	}
	definitions, err := l.ahead.finish(ctx, "crds", l.crds)
	if err != nil {
		return "", err
	}
	progress("built images and charts, and created %s for gardener-operator", definitions)
	if err := l.operator(ctx, progress); err != nil {
		return "", err
	}
	text, err := l.skaffold(ctx, progress, runtimeCluster, "skaffold", "deploy", "--build-artifacts", l.artifacts())
	if err != nil || l.Layout.Kind != "" {
		return text, err
	}
	return text, l.saveGardener()
}

// operator waits until a gardener-operator that was there before takes changes of the Garden, which it validates: after a reboot it
// starts along with all others.
func (l Landscape) operator(ctx context.Context, progress step.Progress) error {
	c, err := l.client(runtimeCluster)
	if err != nil {
		return err
	}
	found, err := cluster.List(ctx, c, gardens)
	if err != nil || len(found) == 0 {
		return err
	}
	stop := l.heartbeat(ctx, func(time.Duration) { progress("waiting for gardener-operator") })
	defer stop()
	if wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		err = c.Patch(ctx, &found[0], client.RawPatch(types.MergePatchType, []byte("{}")), client.DryRunAll)
		return err == nil, nil
	}) != nil {
		return fmt.Errorf("waiting for gardener-operator: %w", err)
	}
	return nil
}

// build has Skaffold make images and charts, which needs only the registry.
func (l Landscape) build(ctx context.Context, progress step.Progress) (string, error) {
	return l.skaffold(ctx, progress, runtimeCluster, "skaffold-build", "build", "--file-output", l.artifacts())
}

func (l Landscape) artifacts() string { return l.Layout.State("skaffold", "artifacts.json") }

// The artifacts of skaffold.yaml that are the instances of this extension.
const (
	gardenInstance = "gardener-extension-provider-local"
	seedInstance   = "gardener-extension-provider-local-gardenlet"
)

// builds returns the references by digest of all that Skaffold has built last, by their names in skaffold.yaml.
func (l Landscape) builds() (map[string]string, error) {
	var built struct {
		Builds []struct{ ImageName, Tag string }
	}
	if err := layout.ReadJSON(l.artifacts(), &built); err != nil {
		return nil, fmt.Errorf("reading what Skaffold has built: %w", err)
	}
	all := map[string]string{}
	for _, build := range built.Builds {
		all[build.ImageName] = build.Tag
	}
	return all, nil
}

// artifact returns the reference by digest of what Skaffold has built last.
func (l Landscape) artifact(name string) (string, error) {
	all, err := l.builds()
	if err == nil && all[name] == "" {
		err = fmt.Errorf("reading what Skaffold has built: %s has no %s", l.artifacts(), name)
	}
	return all[name], err
}

// deployVirtual deploys what belongs into the virtual garden.
func (l Landscape) deployVirtual(ctx context.Context, progress step.Progress) (string, error) {
	return l.finishSkaffold(ctx, progress, "skaffold-virtual-garden", "gardenlet", l.deployGardenlet)
}

func (l Landscape) deployGardenlet(ctx context.Context, progress step.Progress) (string, error) {
	if err := l.virtualKubeconfig(ctx); err != nil {
		return "", err
	}
	if err := l.applyCloudProfile(ctx); err != nil {
		return "", err
	}
	return l.skaffold(ctx, progress, virtualGarden, "skaffold-virtual-garden", "run", "--module", "gardenlet")
}

// finishSkaffold waits for a run of Skaffold that an earlier step may have begun, and reports its progress under this step.
func (l Landscape) finishSkaffold(ctx context.Context, progress step.Progress, logName, name string, work execute) (string, error) {
	defer l.heartbeat(ctx, func(time.Duration) { progress("Skaffold: %s", l.Processes().Tail(logName, 1)) })()
	return l.ahead.finish(ctx, name, work)
}

// skaffold runs a command of Skaffold, which knows from its own files what to build and deploy in the runtime cluster or the virtual garden.
func (l Landscape) skaffold(ctx context.Context, progress step.Progress, on place, logName, command string, arguments ...string) (string, error) {
	gardener, err := l.moduleFolder(ctx, gardenerModule)
	if err != nil {
		return "", err
	}
	log, err := os.OpenFile(l.Processes().LogPath(logName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("running Skaffold: %w", err)
	}
	defer func() { _ = log.Close() }()
	file := map[place]string{runtimeCluster: "skaffold/skaffold.yaml", virtualGarden: "skaffold/skaffold-virtual-garden.yaml"}[on]
	arguments = slices.Concat([]string{command}, arguments, []string{"--filename", file, "--profile", l.profiles(), "--interactive=false", "--color", "0"})
	if command != "deploy" {
		arguments = append(arguments, "--cache-file", l.Layout.SkaffoldCache())
	}
	cmd := exec.CommandContext(ctx, l.Layout.Binary("skaffold"), arguments...) // #nosec G204 -- a program of the landscape.
	cmd.Dir = l.Layout.Root
	cmd.Env = append(os.Environ(), l.deployEnv(gardener, l.kubeconfig(on))...)
	cmd.Stdout, cmd.Stderr = log, log
	// Interrupted, it should stop its builders itself.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	// Images are built with the caches of the user.
	l.Invoker.Run(cmd)
	stop := l.heartbeat(ctx, func(time.Duration) { progress("Skaffold: %s", l.Processes().Tail(logName, 1)) })
	err = cmd.Run()
	stop()
	if err != nil {
		return "", fmt.Errorf("running Skaffold: %w; last lines of %s:\n%s", err, log.Name(), l.Processes().Tail(logName, 15))
	}
	if command != "build" {
		err = l.saveDeployed(on)
	}
	return "log: " + log.Name(), err
}

// profiles are what skaffold/README.md has for the kind cluster, or for a landscape on this network.
func (l Landscape) profiles() string {
	if l.Layout.Kind != "" {
		profiles := []string{"kind"}
		if l.Layout.Kind != "single" && l.Layout.Kind != "nodes" {
			profiles = append(profiles, l.Layout.Kind)
		}
		if exists(l.standIns()) {
			profiles = append(profiles, "stand-ins")
		}
		// skaffold/kind/cluster writes the file. Machines with IPv6 alone do not reach the caches.
		if exists(l.Layout.State("caches")) && l.Layout.Kind != "ipv6" {
			profiles = append(profiles, "caches")
		}
		return strings.Join(profiles, ",")
	}
	profiles := "landscape"
	if !l.Layout.Network.IsDefault() {
		profiles += ",network"
	}
	if l.Gardener != "" {
		profiles += ",checkout"
	}
	if l.debug {
		profiles += ",debug"
	}
	if images.Has(l.Layout.Optional(), Observability) {
		profiles += ",observability"
	}
	return profiles
}

// deployEnv is the environment that skaffold/README.md asks for.
func (l Landscape) deployEnv(gardener, kubeconfig string) []string {
	return []string{
		"KUBECONFIG=" + kubeconfig,
		"GOWORK=off",
		// The sources of a released program may lie in a repository of the user's, whose tags are none of this one.
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(l.Layout.Root),
		"PATH=" + l.Layout.Binary("") + ":" + os.Getenv("PATH"),
		"GARDENER_DIR=" + gardener,
		"GARDENER_IMAGES=" + l.Layout.State("skaffold"),
		"BACKUP_DIR=" + l.Layout.Backups(),
		"NETWORK_START=" + l.Layout.Network.Start(),
		// Helm would write below the user's home.
		"HELM_CACHE_HOME=" + l.Layout.State("skaffold", "helm", "cache"),
		"HELM_CONFIG_HOME=" + l.Layout.State("skaffold", "helm", "config"),
		"HELM_DATA_HOME=" + l.Layout.State("skaffold", "helm", "data"),
		"SKAFFOLD_CONFIG=" + filepath.Join(l.Layout.Root, "skaffold", "config.yaml"),
		"SKAFFOLD_DEFAULT_REPO=" + l.Layout.RegistryAddress() + "/local-skaffold",
	}
}

// moduleFolder finds the source of a module: Gardener's, whose charts deploy gardener-operator, or of one in the version that this Gardener
// needs. Go lists a module that is not downloaded yet without a folder.
func (l Landscape) moduleFolder(ctx context.Context, module string) (string, error) {
	folder, err := l.goCommand(ctx, "list", "-m", "-f", "{{.Dir}}", module)
	if err == nil && folder == "" {
		if _, err = l.goCommand(ctx, "mod", "download", module); err == nil {
			folder, err = l.goCommand(ctx, "list", "-m", "-f", "{{.Dir}}", module)
		}
	}
	if err != nil {
		return "", fmt.Errorf("finding the source of %s: %w", module, err)
	}
	return folder, nil
}

// goCommand runs Go for the module that pins Gardener, or another release, or in the checkout of Gardener.
func (l Landscape) goCommand(ctx context.Context, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", arguments...) // #nosec G204 -- the landscape's own arguments.
	folder, modFile := l.gardenerModFile()
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOWORK=off")
	if modFile != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -modfile="+modFile)
	}
	var output bytes.Buffer
	cmd.Stderr = &output
	out, err := l.Invoker.Run(cmd).Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(arguments, " "), err, output.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// crdFiles are patterns of the files with the CustomResourceDefinitions that gardener-operator deploys into a garden runtime cluster, below
// the folder of Gardener's components. Of those of VictoriaMetrics it deploys one: an API server would keep hundreds of MB for the rest.
var crdFiles = []string{
	"autoscaling/vpa/templates/crd-*.yaml", "extensions/crds/assets/crd-*.yaml", "gardener/resourcemanager/assets/crd-*.yaml",
	"networking/istio/charts/istio/istio-crds/crd-*.yaml", "observability/logging/fluentoperator/assets/crd-*.yaml",
	"observability/logging/victoria/operator/templates/crd-*_vlsingles.yaml", "observability/monitoring/persesoperator/templates/crd-*.yaml",
	"observability/monitoring/prometheusoperator/templates/crd-*.yaml", "observability/opentelemetry/operator/assets/crd-*.yaml",
}

// crds creates the CustomResourceDefinitions that gardener-operator is going to apply: an API server takes seconds to
// serve all of them, which it has while Skaffold deploys. gardener-operator finds them as they should be, or corrects them.
func (l Landscape) crds(ctx context.Context, _ step.Progress) (string, error) {
	gardener, err := l.moduleFolder(ctx, gardenerModule)
	if err != nil {
		return "", err
	}
	druid, err := l.moduleFolder(ctx, "github.com/gardener/etcd-druid/api")
	if err != nil {
		return "", err
	}
	// Those without validation rules, etcds_without_cel.yaml, are for older API servers.
	patterns := []string{filepath.Join(druid, "core", "v1alpha1", "crds", "*s.yaml")}
	for _, pattern := range crdFiles {
		patterns = append(patterns, filepath.Join(gardener, "pkg", "component", filepath.FromSlash(pattern)))
	}
	// Another version may have them elsewhere. It brings them itself, only later.
	objects, err := readCRDs(patterns, l.Gardener != "")
	if err != nil {
		return "", err
	}
	c, err := l.client(runtimeCluster)
	if err != nil {
		return "", err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, object := range objects {
		group.Go(func() error {
			if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating CustomResourceDefinition %s: %w", object.GetName(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d definitions", len(objects)), nil
}

// readCRDs reads the files that match the patterns. It is an error if none matches one of them, unless some may be missing.
func readCRDs(patterns []string, mayMiss bool) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err == nil && len(files) == 0 && !mayMiss {
			err = fmt.Errorf("no file matches %s", pattern)
		}
		if err != nil {
			return nil, fmt.Errorf("looking for CustomResourceDefinitions: %w", err)
		}
		for _, file := range files {
			objects, err := cluster.Read(file)
			if err != nil {
				return nil, fmt.Errorf("reading CustomResourceDefinitions: %w", err)
			}
			all = append(all, objects...)
		}
	}
	return all, nil
}
