// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// gardenerModule is the module whose programs and charts a checkout replaces.
const gardenerModule = "github.com/gardener/gardener"

// checkoutFolder is where images of a checkout are in the registry, and its programs in the folder of programs.
const checkoutFolder = "checkout"

// deployers are the programs that a chart deploys, with the images that each of them deploys itself. It has to start anew for another one
// of these.
var deployers = map[string][]string{
	"gardener-operator": {
		"gardener-admission-controller", "gardener-apiserver", "gardener-controller-manager", "gardener-resource-manager", "gardener-scheduler",
	},
	"gardenlet": {"gardener-node-agent", "gardener-resource-manager"},
}

// image is a part of Helm values, and of an image vector.
type image struct {
	Name       string `json:"name,omitempty"`
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
}

func (i image) reference() string { return i.Repository + "@" + i.Tag }

// imageValues are Helm values of a deployer's chart.
type imageValues struct {
	Image                image  `json:"image"`
	ImageVectorOverwrite string `json:"imageVectorOverwrite"`
}

// UseGardener has Up build and deploy Gardener from a checkout, or another release.
func (l *Landscape) UseGardener(ctx context.Context, gardener string) (err error) {
	if version := semver.Canonical(gardener); version != "" {
		if version != gardener {
			return fmt.Errorf("%s is no release of Gardener: write all three numbers, such as %s", gardener, version)
		}
		if gardener, err = l.release(ctx, gardener); err != nil {
			return err
		}
	}
	l.Gardener, err = binaries.OpenCheckout(gardener, gardenerModule)
	return err
}

// release pins a release of Gardener in a copy of the go.mod that pins what is deployed otherwise, and returns the folder of its sources.
func (l Landscape) release(ctx context.Context, version string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(l.modFile(version)), 0o755); err != nil { // #nosec G301 -- build output.
		return "", err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(l.Layout.Module("modules", "programs", name))
		if err != nil {
			return "", fmt.Errorf("reading what is pinned: %w", err)
		}
		if err := layout.WriteFile(strings.TrimSuffix(l.modFile(version), ".mod")+filepath.Ext(name), content, 0o644); err != nil {
			return "", err
		}
	}
	l.Gardener = gardenerModule + "@" + version
	var folder string
	// Go runs as the one who called sudo.
	err := l.Invoker.Own(filepath.Dir(l.modFile(version)))
	if err == nil {
		_, err = l.goCommand(ctx, "get", l.Gardener, path.Join(gardenerModule, "pkg/apis")+"@"+version)
	}
	if err == nil {
		folder, err = l.moduleFolder(ctx, gardenerModule)
	}
	if err != nil {
		return "", fmt.Errorf("getting Gardener %s: %w", version, err)
	}
	return folder, nil
}

func (l Landscape) modFile(version string) string {
	return filepath.Join(l.Layout.Root, "bin", "gardener", version+"-programs.mod")
}

// gardenerModFile returns the folder in which Go builds Gardener, and the file that takes the place of its go.mod, if one does: a release is
// in Go's module cache, in a folder with its version.
func (l Landscape) gardenerModFile() (folder, modFile string) {
	_, version, _ := strings.Cut(filepath.Base(l.Gardener), "@")
	if !semver.IsValid(version) {
		return cmp.Or(l.Gardener, l.Layout.Module("modules", "programs")), ""
	}
	return l.Layout.Module("modules", "programs"), l.modFile(version)
}

// saveGardener notes for Dev from what Up has built the Gardener that is deployed.
func (l Landscape) saveGardener() error {
	return layout.WriteFile(l.Layout.State("gardener"), []byte(l.Gardener), 0o644)
}

// lastGardener is the folder of the checkout of the last Up; empty if there was none.
func (l Landscape) lastGardener() (string, error) {
	content, err := os.ReadFile(l.Layout.State("gardener"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("reading which Gardener is deployed: %w", err)
	}
	return string(content), nil
}

// checkoutPrograms are those that are built from the checkout, if there is one.
func (l Landscape) checkoutPrograms() []binaries.Program {
	if l.Gardener == "" {
		return nil
	}
	return slices.DeleteFunc(binaries.Programs(l.Layout.Root), func(p binaries.Program) bool { return p.Module != gardenerModule || l.isUnused(p) })
}

// isFromCheckout reports whether the program of that name is built from the checkout, not from the release that is pinned.
func (l Landscape) isFromCheckout(name string) bool {
	return slices.ContainsFunc(l.checkoutPrograms(), func(p binaries.Program) bool { return p.Name == name })
}

// buildCheckout builds the programs of the checkout and returns the number of those that changed.
func (l Landscape) buildCheckout(ctx context.Context, progress step.Progress) (int, error) {
	programs := l.checkoutPrograms()
	if len(programs) == 0 {
		return 0, nil
	}
	begin := l.Now()
	stop := l.heartbeat(ctx, func(elapsed time.Duration) { progress("still building %s, %s", l.Gardener, elapsed.Round(time.Second)) })
	defer stop()
	checkout := binaries.Checkout{Folder: l.Gardener, Out: l.Layout.Binary(checkoutFolder), Invoker: l.Invoker}
	checkout.BuildFolder, checkout.ModFile = l.gardenerModFile()
	changed, err := checkout.Build(ctx, programs)
	if len(changed) > 0 {
		progress("built %s in %.1fs", strings.Join(changed, ", "), l.Now().Sub(begin).Seconds())
	}
	return len(changed), err
}

// pushCheckout pushes the images of the checkout's programs, and writes the values by which the charts name them. It returns the number
// of images that are new.
func (l Landscape) pushCheckout(ctx context.Context, table images.Table, progress step.Progress) (int, error) {
	if l.Gardener == "" {
		return 0, nil
	}
	pusher := images.Pusher{
		Registry: fmt.Sprintf("127.0.0.1:%d", layout.RegistryPort), Report: progress,
		Binary: func(name string) string { return l.Layout.Binary(filepath.Join(checkoutFolder, name)) },
	}
	count, pushed := 0, map[string]image{}
	for _, program := range l.checkoutPrograms() {
		i := slices.IndexFunc(table.Real, func(r images.Real) bool { return r.Binary == program.Name })
		repository := checkoutFolder + "/" + program.Name
		digest, fresh, err := pusher.PushPinned(ctx, table.Real[i], repository)
		if err != nil {
			return 0, err
		}
		if fresh {
			count++
			progress("pushed %s", program.Name)
		}
		pushed[program.Name] = image{Repository: l.Layout.RegistryAddress() + "/" + repository, Tag: digest}
	}
	for deployer, deploys := range deployers {
		content, err := valuesOf(deployer, deploys, pushed)
		if err == nil {
			err = layout.WriteFile(l.imageValues(deployer), content, 0o644)
		}
		if err != nil {
			return 0, fmt.Errorf("writing the images of %s: %w", deployer, err)
		}
	}
	return count, l.handOver()
}

// imageValues is the file that the profile checkout adds to the values of a deployer's chart.
func (l Landscape) imageValues(deployer string) string {
	return l.Layout.State("skaffold", deployer+"-images.yaml")
}

// valuesOf returns the values for a deployer: its own image, and an image vector with those that it deploys.
func valuesOf(deployer string, deploys []string, pushed map[string]image) ([]byte, error) {
	var vector struct {
		Images []image `json:"images"`
	}
	for _, name := range deploys {
		i := pushed[name]
		i.Name = name
		vector.Images = append(vector.Images, i)
	}
	content, err := yaml.Marshal(vector)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(imageValues{Image: pushed[deployer], ImageVectorOverwrite: string(content)})
}

// runsCheckout waits until a deployer, and what it deploys, runs as it was built from the checkout, if there is one.
func (l Landscape) runsCheckout(deployer string) ([]milestone, error) {
	if l.Gardener == "" {
		return nil, nil
	}
	references, err := l.checkoutImages(deployer)
	return []milestone{{title: deployer + " of the checkout is available", kind: deployments, reached: runs(references...)}}, err
}

// checkoutImages returns references of the images in a deployer's values.
func (l Landscape) checkoutImages(deployer string) ([]string, error) {
	content, err := os.ReadFile(l.imageValues(deployer))
	if err != nil {
		return nil, fmt.Errorf("reading the images of %s: %w", deployer, err)
	}
	var values imageValues
	var vector struct{ Images []image }
	err = yaml.UnmarshalStrict(content, &values)
	if err == nil {
		err = yaml.UnmarshalStrict([]byte(values.ImageVectorOverwrite), &vector)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the images of %s: %w", deployer, err)
	}
	references := []string{values.Image.reference()}
	for _, i := range vector.Images {
		// Machines take it in when their Shoot is reconciled.
		if i.Name != "gardener-node-agent" {
			references = append(references, i.reference())
		}
	}
	return references, nil
}
