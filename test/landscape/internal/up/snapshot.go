// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/registry"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/snapshot"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// The folders of a snapshot's parts. What the journal has is added to that of the registry that is there.
const (
	stateRoot    = "state"
	programsRoot = "programs"
	registryRoot = "registry"
	journalRoot  = "journal"
	basesRoot    = "image-bases"
	machineRoot  = "machine-image"
)

// Annotations of a snapshot.
const (
	networkAnnotation      = "local.gardener.cloud/network"
	architectureAnnotation = "local.gardener.cloud/architecture"
)

// secrets is said of every snapshot that is made or sent.
const secrets = "It has the keys and passwords of all clusters, and everything that is in them: give it to nobody who may not have these."

// fleeting is what is below the state folder and of no use on another machine, or after the processes have ended.
var fleeting = []string{"containerd", "run", "logs", "before.json", "start.json", "restoring", "artefacts"}

var snapshotName = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

// Save keeps all of the landscape under that name. One that runs is stopped meanwhile.
func (l Landscape) Save(ctx context.Context, name string) error {
	if !snapshotName.MatchString(name) {
		return fmt.Errorf("%q can't be the name of a snapshot: use letters, digits, dots, dashes and underscores", name)
	}
	unlock, err := l.existing()
	if err != nil {
		return err
	}
	defer unlock()
	steps, err := l.stopSteps()
	if err != nil {
		return err
	}
	_, running, err := l.Processes().Find(node.Kubelet)
	if err != nil {
		return err
	}
	steps = append(steps, step.Step{
		Name: "save", Title: "saved as " + name, Remedy: "make start brings the landscape back",
		Execute: func(ctx context.Context, progress step.Progress) (string, error) { return l.save(ctx, name, progress) },
	})
	if running {
		again, err := l.startSteps()
		if err != nil {
			return err
		}
		steps = append(steps, again...)
	}
	err = step.Runner{Out: l.Out, Now: l.Now}.Run(ctx, steps)
	if err == nil {
		_, _ = fmt.Fprintf(l.Out, "\nsaved. %s\nnext: make up FROM=%s, where there is no landscape\n", secrets, name)
	}
	if err == nil && !running {
		_, _ = fmt.Fprintln(l.Out, "The landscape is stopped, as it was: make start starts it.")
	}
	return errors.Join(err, l.handOver())
}

func (l Landscape) save(ctx context.Context, name string, progress step.Progress) (string, error) {
	store, err := oci.NewWithContext(ctx, l.Layout.Snapshots())
	if err != nil {
		return "", fmt.Errorf("opening %s: %w", l.Layout.Snapshots(), err)
	}
	if err := os.Chmod(l.Layout.Snapshots(), 0o700); err != nil { // #nosec G302 -- a folder.
		return "", fmt.Errorf("protecting the snapshots: %w", err)
	}
	if err := l.pruneRegistry(); err != nil {
		return "", err
	}
	parts, err := l.parts()
	if err != nil {
		return "", err
	}
	stop := l.heartbeat(ctx, func(elapsed time.Duration) { progress("still packing, %s", elapsed.Round(time.Second)) })
	defer stop()
	before := size(l.Layout.Snapshots())
	folders := l.snapshotFolders()
	folders[journalRoot] = l.Layout.Registry()
	manifest, err := snapshot.Save(ctx, store, name, folders, parts, map[string]string{
		// The name makes it one of its own, though all else may be as in another.
		ocispec.AnnotationTitle: name, networkAnnotation: l.Layout.Network.String(), architectureAnnotation: runtime.GOARCH,
	})
	if err == nil {
		// What had that name before, or was saved half, goes.
		err = store.GC(ctx)
	}
	if err != nil {
		return "", err
	}
	saved, err := snapshot.Manifest(ctx, store, manifest.Digest.String())
	return fmt.Sprintf("%d parts, %.2f GB; %.2f GB of it new", len(saved.Layers), gigabytes(snapshot.Size(saved)), gigabytes(int64(size(l.Layout.Snapshots())-before))), err
}

// saveDeployed notes what Skaffold has deployed there: what is built next may not be.
func (l Landscape) saveDeployed(on place) error {
	built, err := l.toDeploy()
	if err != nil {
		return err
	}
	maps.DeleteFunc(built, func(name, _ string) bool { return (name == "gardenlet") != (on == virtualGarden) })
	return layout.WriteJSON(l.deployedFile(on), built, 0o644)
}

func (l Landscape) deployedFile(on place) string {
	return l.Layout.State("deployed-" + map[place]string{runtimeCluster: "runtime", virtualGarden: "virtual-garden"}[on] + ".json")
}

// deployed returns the references that saveDeployed has noted, by their names.
func (l Landscape) deployed() (map[string]string, error) {
	all := map[string]string{}
	for _, on := range []place{runtimeCluster, virtualGarden} {
		if err := layout.ReadJSON(l.deployedFile(on), &all); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("reading what is deployed: %w", err)
		}
	}
	return all, nil
}

// pruneRegistry removes the images of former builds, of this repository and of checkouts of Gardener: only what is deployed is needed.
func (l Landscape) pruneRegistry() error {
	built, err := l.toDeploy()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	deployed, err := l.deployed()
	if err != nil {
		return err
	}
	references := strings.Join(slices.Concat(slices.Collect(maps.Values(built)), slices.Collect(maps.Values(deployed))), "\n")
	return registry.Prune(l.Layout.Registry(), func(repository, digest string) bool {
		isBuild := strings.HasPrefix(repository, checkoutFolder+"/") || strings.Contains(references, "/"+repository+":")
		return !isBuild || strings.Contains(references, digest)
	})
}

func gigabytes(bytes int64) float64 { return float64(bytes) / 1e9 }

func (l Landscape) snapshotFolders() map[string]string {
	return map[string]string{
		stateRoot: l.Layout.State(), programsRoot: l.Layout.Binary(""), registryRoot: l.Layout.Registry(), journalRoot: l.Layout.State("restoring"),
		basesRoot: l.Layout.ImageBases(), machineRoot: l.Layout.MachineImages(),
	}
}

// parts are all of the landscape: its state, what is in its registry, and the programs that run on the machine itself.
func (l Landscape) parts() ([]snapshot.Part, error) {
	// What may stay the same is a part for itself: above all, images and their layers on machines.
	const machines = "kubelet/pods/*/volumes/kubernetes.io~empty-dir/*/"
	parts, err := snapshot.Split(stateRoot, l.Layout.State(), "etcd", "volumes/*", "backupbuckets/*",
		machines+"io.containerd.content.v1.content/blobs/sha256/*", machines+"io.containerd.snapshotter.v1.overlayfs/snapshots/*")
	if err != nil {
		return nil, err
	}
	rest := snapshot.Part{Root: stateRoot}
	for _, part := range parts {
		rest.Exclude = append(rest.Exclude, part.Paths...)
	}
	entries, err := os.ReadDir(l.Layout.State())
	if err != nil {
		return nil, fmt.Errorf("reading the state folder: %w", err)
	}
	for _, entry := range entries {
		if !slices.Contains(fleeting, entry.Name()) && entry.Name() != "etcd" {
			rest.Paths = append(rest.Paths, entry.Name())
		}
	}
	blobs, err := snapshot.Split(registryRoot, l.Layout.Registry(), "sha256/*")
	if err != nil {
		return nil, err
	}
	parts = append(append(parts, rest), blobs...)
	for _, name := range l.hostPrograms() {
		part := programPart(name)
		if !exists(l.Layout.Binary(part.Paths[1])) {
			// make test builds some programs without a stamp.
			part.Paths = part.Paths[:1]
		}
		parts = append(parts, part)
	}
	return append(parts, snapshot.Part{Root: journalRoot, Paths: []string{"manifests.jsonl"}}), nil
}

// programPart is a program with its stamp, by which it is not built again.
func programPart(name string) snapshot.Part {
	return snapshot.Part{Root: programsRoot, Paths: []string{name, filepath.Join(".stamps", name)}}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hostPrograms are the names of the programs that run on the machine itself, but for this one.
func (l Landscape) hostPrograms() []string {
	names := []string{"ipam", "kubectl"}
	for _, component := range node.Components(l.Layout) {
		if name := filepath.Base(component.Command[0]); component.Command[0] == l.Layout.Binary(name) && name != "landscape" {
			names = append(names, name)
		}
	}
	return names
}

// Restore brings up what was saved under that name, or pushed to that reference, and waits until it is healthy.
func (l Landscape) Restore(ctx context.Context, from string) error {
	if exists(l.snapshotPath()) {
		return errors.New("there is a landscape already: take it down with make down first, or start it with make start")
	}
	if exists(l.Layout.State("restoring")) || exists(l.Layout.State("etcd")) {
		// Unless it still goes on, it was interrupted or the machine was refused, and nothing runs from that folder yet.
		unlock, err := l.lock()
		if err != nil {
			return err
		}
		err = os.RemoveAll(l.Layout.State())
		unlock()
		if err != nil {
			return fmt.Errorf("removing what was restored before: %w", err)
		}
	}
	source, tag, err := snapshot.Open(ctx, l.Layout.Snapshots(), from)
	if err != nil {
		return err
	}
	manifest, err := snapshot.Manifest(ctx, source, tag)
	if err != nil {
		return fmt.Errorf("%w; make snapshots lists what is on this machine", err)
	}
	if found := manifest.Annotations[architectureAnnotation]; found != runtime.GOARCH {
		return fmt.Errorf("snapshot %s is of a machine with architecture %s, this one has %s", from, found, runtime.GOARCH)
	}
	if err := l.Layout.Network.UnmarshalText([]byte(manifest.Annotations[networkAnnotation])); err != nil {
		return fmt.Errorf("reading the network of snapshot %s: %w", from, err)
	}
	unused := !exists(l.Layout.State())
	unlock, err := l.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	steps, err := l.startSteps()
	if err != nil {
		return err
	}
	l.until = lastStep
	first := slices.DeleteFunc(l.Steps(), func(s step.Step) bool { return s.Name != "preflight" && s.Name != "packages" })
	restore := step.Step{
		Name: "restore", Title: "unpacked " + from, Remedy: "read the cause above",
		Execute: func(ctx context.Context, progress step.Progress) (string, error) {
			return l.restore(ctx, source, manifest, progress)
		},
	}
	steps = slices.Concat(first, []step.Step{restore}, slices.DeleteFunc(steps, func(s step.Step) bool { return s.Name == "preflight" }))
	err = l.runStart(ctx, steps)
	if err != nil && unused && !exists(l.Layout.State("restoring")) && !exists(l.Layout.State("etcd")) {
		// The machine was refused: the snapshot's network must not become that of another landscape.
		err = errors.Join(err, os.RemoveAll(l.Layout.State()))
	}
	return err
}

func (l Landscape) restore(ctx context.Context, source oras.ReadOnlyTarget, manifest ocispec.Manifest, progress step.Progress) (string, error) {
	// Programs may be newer here, and a blob of the registry never changes.
	manifest.Layers = slices.DeleteFunc(manifest.Layers, func(layer ocispec.Descriptor) bool {
		root := snapshot.Root(layer)
		return (root == programsRoot || root == registryRoot) && exists(filepath.Join(l.snapshotFolders()[root], snapshot.Title(layer)))
	})
	stop := l.heartbeat(ctx, func(elapsed time.Duration) { progress("still unpacking, %s", elapsed.Round(time.Second)) })
	defer stop()
	if err := os.MkdirAll(l.Layout.State("restoring"), 0o700); err != nil {
		return "", err
	}
	if err := snapshot.Restore(ctx, source, manifest, l.snapshotFolders(), stateRoot); err != nil {
		return "", err
	}
	if err := l.addJournal(); err != nil {
		return "", fmt.Errorf("restoring the registry: %w", err)
	}
	// What was a user's there is somebody else's here, until it is handed over.
	for _, path := range l.usersState() {
		err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return errors.Join(err, os.Lchown(path, 0, 0))
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d parts, %.2f GB", len(manifest.Layers), gigabytes(snapshot.Size(manifest))), l.handOver()
}

// addJournal adds the restored manifests to those of the registry that is there.
func (l Landscape) addJournal() error {
	const name = "manifests.jsonl"
	restored, err := os.ReadFile(l.Layout.State("restoring", name))
	if err != nil {
		return err
	}
	present, err := os.ReadFile(filepath.Join(l.Layout.Registry(), name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := layout.WriteFile(filepath.Join(l.Layout.Registry(), name), append(present, restored...), 0o600); err != nil {
		return err
	}
	return os.RemoveAll(l.Layout.State("restoring"))
}

// PushPrograms builds the programs and sends them to a registry, along with the Debian layers of images that are in bin.
func (l Landscape) PushPrograms(ctx context.Context, reference string) error {
	if err := l.Build(ctx); err != nil {
		return err
	}
	target, tag, err := snapshot.Open(ctx, "", reference)
	if err != nil {
		return err
	}
	parts := []snapshot.Part{}
	for _, program := range l.programs() {
		parts = append(parts, programPart(program.Name))
	}
	for _, root := range []string{basesRoot, machineRoot} {
		more, err := snapshot.Split(root, l.snapshotFolders()[root], "*")
		if err != nil {
			return err
		}
		parts = append(parts, more...)
	}
	pushed, err := snapshot.Save(ctx, target, tag, l.snapshotFolders(), parts, map[string]string{architectureAnnotation: runtime.GOARCH})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(l.Out, "pushed %s\nnext: make up PROGRAMS=%s\n", pushed.Digest, reference)
	return err
}

// pullPrograms gets what PushPrograms has sent, unless that is here.
func (l Landscape) pullPrograms(ctx context.Context, progress step.Progress) error {
	source, tag, err := snapshot.Open(ctx, "", l.Programs)
	if err != nil {
		return err
	}
	descriptor, err := source.Resolve(ctx, tag)
	if err != nil {
		return fmt.Errorf("pulling the programs: %w", err)
	}
	pulled := l.Layout.Binary(".pulled")
	if present, err := os.ReadFile(pulled); err == nil && string(present) == descriptor.Digest.String() { // #nosec G304 -- build output.
		return nil
	}
	manifest, err := snapshot.Manifest(ctx, source, descriptor.Digest.String())
	if err != nil {
		return err
	}
	if found := manifest.Annotations[architectureAnnotation]; found != runtime.GOARCH {
		return fmt.Errorf("the programs of %s are for architecture %s, this machine has %s", l.Programs, found, runtime.GOARCH)
	}
	stop := l.heartbeat(ctx, func(elapsed time.Duration) { progress("still pulling programs, %s", elapsed.Round(time.Second)) })
	defer stop()
	folders := l.snapshotFolders()
	maps.DeleteFunc(folders, func(root, _ string) bool {
		return !slices.Contains([]string{programsRoot, basesRoot, machineRoot}, root)
	})
	if err := snapshot.Restore(ctx, source, manifest, folders, ""); err != nil {
		return err
	}
	progress("pulled %d parts, %.2f GB", len(manifest.Layers), gigabytes(snapshot.Size(manifest)))
	return layout.WriteFile(pulled, []byte(descriptor.Digest), 0o644)
}

// Push sends a snapshot of this machine to a registry.
func (l Landscape) Push(ctx context.Context, name, reference string) error {
	store, tag, err := snapshot.Open(ctx, l.Layout.Snapshots(), name)
	if err != nil {
		return err
	}
	target, remoteTag, err := snapshot.Open(ctx, "", reference)
	if err != nil {
		return err
	}
	pushed, err := oras.Copy(ctx, store, tag, target, remoteTag, oras.DefaultCopyOptions)
	if err != nil {
		return fmt.Errorf("pushing snapshot %s to %s: %w", name, reference, err)
	}
	_, err = fmt.Fprintf(l.Out, "pushed %s. %s\nnext: landscape up --from %s\n", pushed.Digest, secrets, reference)
	return err
}

// Snapshots lists what is saved on this machine, or deletes those of the names.
func (l Landscape) Snapshots(ctx context.Context, deleted ...string) error {
	if len(deleted) > 0 {
		// One that is being saved may need the same layers.
		unlock, err := l.lock()
		if err != nil {
			return err
		}
		defer unlock()
	}
	store, err := oci.NewWithContext(ctx, l.Layout.Snapshots())
	if err != nil {
		return fmt.Errorf("opening %s: %w", l.Layout.Snapshots(), err)
	}
	for _, name := range deleted {
		manifest, err := store.Resolve(ctx, name)
		if err == nil {
			err = store.Delete(ctx, manifest)
		}
		if err != nil {
			return fmt.Errorf("deleting snapshot %s: %w", name, err)
		}
	}
	if len(deleted) > 0 {
		return nil
	}
	table := tabwriter.NewWriter(l.Out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "NAME\tSAVED\tSIZE\tNETWORK")
	err = store.Tags(ctx, "", func(names []string) error {
		for _, name := range names {
			manifest, err := snapshot.Manifest(ctx, store, name)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%.2f GB\t%s\n", name, manifest.Annotations[ocispec.AnnotationCreated], gigabytes(snapshot.Size(manifest)), manifest.Annotations[networkAnnotation])
		}
		return nil
	})
	return errors.Join(err, table.Flush())
}
