// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package up is the list of steps that bring the landscape up, and the one that takes it down.
package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/invoker"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/machineimage"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// readyWithin is how long a program that runs may take until it answers, on a slow machine as well. One that ends is noticed at once.
const readyWithin = 5 * time.Minute

// Landscape is one landscape on this machine.
type Landscape struct {
	Layout layout.Layout
	Out    io.Writer
	Now    func() time.Time
	// Invoker is the user who owns what is built, and the kubeconfigs.
	Invoker invoker.Invoker
	// Programs is the reference of an artifact of PushPrograms, whose programs need not be built; "" for none.
	Programs string
	// Gardener is the folder of the checkout that Gardener is built from; empty for the release that is pinned.
	Gardener string

	// optional are the optional programs and images that this Up adds.
	optional []string
	// debug has the instances deployed for a debugger.
	debug bool
	// until is the last step of this `up`.
	until string
	// starts is whether what is there, or in a snapshot, is started: nothing is built.
	starts bool
	// times are when the milestones of this `up` are reached; nil for anything else than `up`.
	times *times
	// reached is called with the title of each milestone that ends a phase, when it is reached; nil unless that is measured.
	reached func(title string)
	// ahead is what is begun before its step; nil for anything else than `up`.
	ahead *ahead
}

// Processes are the books about the landscape's processes.
func (l Landscape) Processes() process.Keeper {
	return process.Keeper{RunDir: l.Layout.State("run"), LogDir: l.Layout.State("logs")}
}

// Up brings the landscape up to and including the step named until; "" means all. At its end, however it ends, it says when
// which milestone was reached.
func (l Landscape) Up(ctx context.Context, until string) (err error) {
	l.times = &times{path: l.Layout.Milestones(), now: l.Now}
	l.ahead = &ahead{}
	l.until = cmp.Or(until, lastStep)
	steps, err := step.Until(l.Steps(), until)
	if err != nil {
		return err
	}
	l.ahead.planned = step.Names(steps)
	unused := !exists(l.Layout.State())
	unlock, err := l.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.times.begin(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.handOver()) }()
	// When a step fails, nothing may go on in the background.
	defer l.ahead.wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = step.Runner{Out: l.Out, Now: l.Now, Done: l.times.end}.Run(ctx, steps)
	if err != nil && unused && len(l.times.content.Steps) == 0 {
		return errors.Join(err, os.RemoveAll(l.Layout.State()))
	}
	if ctx.Err() != nil {
		return err
	}
	err = errors.Join(err, l.summary())
	if err == nil {
		l.next()
	}
	return err
}

// lastStep is the last of Steps.
const lastStep = "shoot"

// Steps are all steps of Up, in order. In a kind cluster it has only Gardener to deploy.
func (l Landscape) Steps() []step.Step {
	start := func(names ...string) func(context.Context, step.Progress) (string, error) {
		return func(ctx context.Context, _ step.Progress) (string, error) { return l.start(ctx, names...) }
	}
	logs := "read the log in " + l.Layout.State("logs")
	const look = "look at `make status`, and at the logs of the pods that it names"
	programs := step.Step{Name: "binaries", Title: "programs built from their Go modules", Execute: l.binaries, Remedy: "look whether the Go module proxy (go env GOPROXY) is reached and the disk has room"}
	gardener := []step.Step{
		{Name: "deploy", Title: "Skaffold deployed operator, extensions and Garden", Execute: l.deployRuntime, Remedy: "read " + l.Layout.State("logs", "skaffold.log")},
		{Name: "garden", Title: "the Garden is reconciled and healthy", Execute: l.garden, Remedy: look},
		{Name: "gardenlet", Title: "Skaffold deployed CloudProfile, projects and Gardenlet", Execute: l.deployVirtual, Remedy: "read " + l.Layout.State("logs", "skaffold-virtual-garden.log")},
		{Name: "seed", Title: "the Seed is ready", Execute: l.seed, Remedy: look},
		{Name: lastStep, Title: "the example Shoots are reconciled and healthy", Execute: l.shoots, Remedy: look},
	}
	if l.hasSecond() {
		second := step.Step{Name: "second-seed", Title: "the Seed " + layout.SecondSeedName + " is ready", Execute: l.secondSeed, Remedy: look}
		gardener = slices.Insert(gardener, len(gardener)-1, second)
	}
	if l.Layout.Kind != "" {
		return slices.Concat([]step.Step{
			{Name: "cluster", Title: "the kind cluster is ready", Execute: l.kindCluster, Remedy: "run make kind-up, which repairs it, and make gardener-up"},
			programs,
			{Name: "metrics", Title: "metrics-server is there, and nodes have room", Execute: l.roomAndMetrics, Remedy: "run make kind-up, which repairs the cluster"},
		}, gardener)
	}
	return slices.Concat([]step.Step{
		{Name: "preflight", Title: "the machine can take a landscape", Execute: l.preflight, Remedy: "change what is named above; make doctor looks again, and changes nothing"},
		{Name: "packages", Title: "Debian packages installed", Execute: l.packages, Remedy: "run apt-get update and install them by hand"},
		programs,
		{Name: "network", Title: "interface " + layout.Interface + " has the landscape's addresses", Execute: l.network, Remedy: "run make doctor"},
		{Name: "certificates", Title: "certificates and kubeconfigs written", Execute: l.certificates, Remedy: "run down, and up again"},
		{Name: "registry", Title: "registry serves on " + l.Layout.Network.Registry(), Execute: start(node.Registry), Remedy: logs},
		{Name: "images", Title: "images of others pushed", Execute: l.images, Remedy: logs},
		{Name: "machine-image", Title: "machine image pushed", Execute: l.machineImage, Remedy: "look whether Debian's package mirror is reached and 1 GB is free"},
		{Name: "etcd", Title: "etcd serves", Execute: start(node.Etcd), Remedy: logs},
		{Name: "containerd", Title: "containerd serves", Execute: start(node.Containerd), Remedy: logs},
		{Name: "apiserver", Title: "kube-apiserver is ready", Execute: l.apiServer, Remedy: logs},
		{Name: "controllers", Title: "controller manager and scheduler are healthy", Execute: start(node.ControllerManager, node.Scheduler), Remedy: logs},
		{Name: "base", Title: "policies, storage class, namespaces and status controller are there", Execute: l.base, Remedy: logs},
		{Name: "kubelet", Title: "kubelet is healthy", Execute: start(node.Kubelet), Remedy: logs},
		{Name: "proxy", Title: "kube-proxy is healthy", Execute: start(node.Proxy), Remedy: logs},
		{Name: "node", Title: "node " + layout.NodeName + " is Ready", Execute: l.node, Remedy: logs},
		{Name: "dns", Title: "the cluster's DNS serves", Execute: l.dns, Remedy: logs},
	}, gardener)
}

// Build only builds the programs, for which it needs no root.
func (l Landscape) Build(ctx context.Context) error {
	steps := slices.DeleteFunc(l.Steps(), func(s step.Step) bool { return s.Name != "binaries" })
	return step.Runner{Out: l.Out, Now: l.Now}.Run(ctx, steps)
}

// prepare keeps a second `up` or `down` out, makes the state folder and writes down the network.
func (l Landscape) prepare() (func(), error) {
	bare := l.Layout.Kind == ""
	if length := len(l.Layout.ContainerdSocket()); bare && length > 90 {
		return nil, fmt.Errorf("%s has %d characters, too many for the path of a socket; move the clone to a shorter path", l.Layout.ContainerdSocket(), length)
	}
	// Options of an overlay file system have the latter two between paths.
	if bare && strings.ContainsAny(l.Layout.Root, " \t:,\\") {
		return nil, fmt.Errorf("the path of the clone %q has a blank, colon, comma or backslash, with which containers can't be mounted; move the clone to a path without", l.Layout.Root)
	}
	if bare && os.Geteuid() != 0 {
		return nil, errors.New("the landscape needs root for network devices, containers and iptables rules: run sudo make up")
	}
	unlock, err := l.lockApart()
	if err != nil {
		return nil, err
	}
	if err := l.makeState(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func (l Landscape) makeState() error {
	for _, dir := range []string{"run", "logs", "etc", "skaffold", "artefacts"} {
		if err := os.MkdirAll(l.Layout.State(dir), 0o755); err != nil { // #nosec G301 -- holds nothing secret.
			return fmt.Errorf("making the state folder: %w", err)
		}
	}
	if err := l.handOver(); err != nil {
		return err
	}
	if exists(l.Layout.State("restoring")) {
		return errors.New("a snapshot was unpacked half: run that up with FROM again, or make down")
	}
	if l.Layout.Kind != "" {
		return nil
	}
	return errors.Join(l.Layout.SaveNetwork(), l.saveOptional())
}

// UseNetwork chooses the network for Up. It fails if the machine has addresses of another one already.
func (l *Landscape) UseNetwork(network layout.Network) error {
	if exists(l.snapshotPath()) && network != l.Layout.Network {
		return fmt.Errorf("the landscape uses %s; run make down first, or leave NETWORK out", l.Layout.Network)
	}
	l.Layout.Network = network
	return nil
}

// usersState are the paths of the state that are the invoker's.
func (l Landscape) usersState() []string {
	return []string{l.Layout.State("skaffold"), l.Layout.State("shoots"), l.Layout.Kubeconfig(), filepath.Dir(l.Layout.VirtualKubeconfig())}
}

// handOver gives the invoker what is theirs: what was built, where Skaffold works, the kubeconfigs, the logs of processes and their
// records.
func (l Landscape) handOver() error {
	theirs := append(l.usersState(), filepath.Join(l.Layout.Root, "bin"), l.Layout.State("artefacts")) // Tests of theirs write there.
	for _, pattern := range []string{l.Layout.State("logs", "*.log*"), l.Layout.State("run", "*.json")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		theirs = append(theirs, files...)
	}
	if err := l.Invoker.Own(theirs...); err != nil {
		return fmt.Errorf("giving what was built to the user who called sudo: %w", err)
	}
	return nil
}

// lockApart locks the landscape for what starts its programs, which are to be in a cgroup of their own where that can be.
func (l Landscape) lockApart() (func(), error) {
	unlock, err := l.lock()
	if err != nil || l.Layout.Kind != "" {
		return unlock, err
	}
	if _, own, back, err := host.EnterCgroup(); err == nil {
		// Unless programs run in it, it goes.
		return func() { _, _ = back(), os.Remove(own); unlock() }, nil
	}
	return unlock, nil
}

func (l Landscape) lock() (func(), error) {
	err := os.MkdirAll(filepath.Dir(l.Layout.Lock()), 0o755) // #nosec G301 -- build output.
	if err != nil {
		return nil, fmt.Errorf("locking the landscape: %w", err)
	}
	file, err := os.OpenFile(l.Layout.Lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the landscape: %w", err)
	}
	// The children don't inherit the file, so that the lock ends with this program however it ends.
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("locking the landscape: another up or down is at work: %w", err)
	}
	return func() { _ = file.Close() }, nil
}

func (l Landscape) snapshotPath() string { return l.Layout.State("before.json") }

// start starts components and waits until each is ready.
func (l Landscape) start(ctx context.Context, names ...string) (string, error) {
	components, keeper := node.Components(l.Layout), l.Processes()
	var results []string
	for _, name := range names {
		i := slices.IndexFunc(components, func(c node.Component) bool { return c.Name == name })
		component := components[i]
		for _, config := range component.Configs {
			if _, err := node.WriteConfig(l.Layout, config); err != nil {
				return "", err
			}
		}
		started, err := keeper.Ensure(ctx, component.Spec)
		if err != nil {
			return "", err
		}
		if err := keeper.WaitReady(ctx, component.Spec, readyWithin, component.Ready); err != nil {
			return "", err
		}
		results = append(results, name+map[bool]string{true: " started", false: " runs already"}[started])
	}
	return strings.Join(results, ", "), nil
}

func (l Landscape) packages(ctx context.Context, progress step.Progress) (string, error) {
	if missing := host.Missing(); len(missing) > 0 {
		progress("installing %s", strings.Join(missing, ", "))
	}
	installed, err := host.Install(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d installed", len(installed)), nil
}

func (l Landscape) binaries(ctx context.Context, progress step.Progress) (string, error) {
	if err := os.MkdirAll(l.Layout.Binary(""), 0o755); err != nil { // #nosec G301 -- build output.
		return "", fmt.Errorf("making the folder of the programs: %w", err)
	}
	if err := l.handOver(); err != nil {
		return "", err
	}
	if l.Programs != "" {
		if err := l.pullPrograms(ctx, progress); err != nil {
			return "", err
		}
	}
	programs := l.programs()
	builder := binaries.Builder{Out: l.Layout.Binary(""), Invoker: l.Invoker}
	if l.Layout.Kind == "" {
		if err := builder.Keep("landscape"); err != nil {
			return "", err
		}
	}
	built, err := l.buildCheckout(ctx, progress)
	if err != nil {
		return "", err
	}
	for i, program := range programs {
		begin := l.Now()
		stop := l.heartbeat(ctx, func(elapsed time.Duration) {
			progress("still building %s (%d of %d), %s", program.Name, i+1, len(programs), elapsed.Round(time.Second))
		})
		fresh, err := builder.Build(ctx, program)
		stop()
		if err != nil {
			return "", err
		}
		if fresh {
			built++
			progress("built %s (%d of %d) in %.1fs", program.Name, i+1, len(programs), l.Now().Sub(begin).Seconds())
		}
	}
	return fmt.Sprintf("%d built, %d up to date", built, len(programs)+len(l.checkoutPrograms())-built), l.handOver()
}

// heartbeat reports every 30 seconds that something long is still going on, until the returned function is called.
func (l Landscape) heartbeat(ctx context.Context, report func(elapsed time.Duration)) func() {
	ctx, cancel := context.WithCancel(ctx)
	begin := l.Now()
	var reporting sync.WaitGroup
	reporting.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, 30*time.Second, false, func(context.Context) (bool, error) {
			report(l.Now().Sub(begin))
			return false, nil
		})
	})
	return func() { cancel(); reporting.Wait() }
}

// network is the first step that changes the machine outside of the clone, apart from packages: before it does, it takes the
// snapshot that `down` compares with, and after the machine was booted a new one. The link comes first: of two clones, that without it
// has no snapshot, and its `down` leaves the landscape of the other alone.
func (l Landscape) network(ctx context.Context, _ step.Progress) (string, error) {
	if err := host.Link(l.Layout.State()); err != nil {
		return "", err
	}
	_, rebooted := l.rebooted()
	if _, err := os.Stat(l.snapshotPath()); errors.Is(err, os.ErrNotExist) || rebooted {
		before, err := host.Take(ctx, l.Layout.State())
		if err != nil {
			return "", err
		}
		if old, err := host.Load(l.snapshotPath()); err == nil {
			// Folders outlive a boot.
			before.Folders = old.Folders
		}
		if err := before.Save(l.snapshotPath()); err != nil {
			return "", err
		}
		// containerd expects this folder to be empty after a boot, as /run is.
		if err := os.RemoveAll(l.Layout.State("containerd", "state")); err != nil {
			return "", fmt.Errorf("removing what containerd kept about containers: %w", err)
		}
	}
	added, err := host.Network(ctx, l.Layout.Network)
	return fmt.Sprintf("%d addresses added", added), err
}

// rebooted reports whether the machine was booted since the landscape came up, and when that was.
func (l Landscape) rebooted() (string, bool) {
	before, err := host.Load(l.snapshotPath())
	boot, errBoot := process.BootID()
	if err != nil || errBoot != nil || before.Boot == boot {
		return "", false
	}
	info, err := os.Stat(l.snapshotPath())
	if err != nil {
		return "", false
	}
	return info.ModTime().Format(time.DateTime), true
}

func (l Landscape) certificates(context.Context, step.Progress) (string, error) {
	err := node.Certificates(l.Layout, l.Now)
	return "admin: " + l.Layout.Kubeconfig(), errors.Join(err, l.handOver())
}

func (l Landscape) images(ctx context.Context, progress step.Progress) (string, error) {
	table, err := images.Load(l.Layout.Optional())
	if err != nil {
		return "", err
	}
	pusher := images.Pusher{
		Registry: fmt.Sprintf("127.0.0.1:%d", layout.RegistryPort), Binary: l.Layout.Binary,
		Bases: table.Bases, Cache: l.Layout.ImageBases(), Report: progress,
	}
	pushed, err := l.pushCheckout(ctx, table, progress)
	if err != nil {
		return "", err
	}
	programs := slices.DeleteFunc(table.Programs(), func(r images.Real) bool { return l.isFromCheckout(r.Binary) })
	for _, real := range programs {
		begin := l.Now()
		fresh, err := pusher.Push(ctx, l.served(real))
		if err != nil {
			return "", err
		}
		if fresh {
			pushed++
			progress("pushed %s in %.1fs", real.Name, l.Now().Sub(begin).Seconds())
		}
	}
	return fmt.Sprintf("%d pushed, %d up to date", pushed, len(programs)+len(l.checkoutPrograms())-pushed), nil
}

func (l Landscape) machineImage(ctx context.Context, progress step.Progress) (string, error) {
	stop := l.heartbeat(ctx, func(elapsed time.Duration) { progress("still at work, %s", elapsed.Round(time.Second)) })
	defer stop()
	result, err := pushed(l.machineImages().Push(ctx, progress))
	if err == nil {
		l.times.reach(imagesReady)
		l.ahead.begin(ctx, "deploy", "build", l.build)
	}
	return result, err
}

// pushed says what has become of an image.
func pushed(isNew bool, err error) (string, error) {
	return map[bool]string{true: "pushed", false: "up to date"}[isNew], err
}

func (l Landscape) machineImages() machineimage.Builder {
	return machineimage.Builder{
		Source:     filepath.Join(l.Layout.Root, "skaffold", "images", "machine"),
		Cache:      l.Layout.MachineImages(),
		Registry:   l.Layout.Network.Registry(),
		Repository: fmt.Sprintf("127.0.0.1:%d/%s", layout.RegistryPort, images.Repository(machineimage.Name)),
	}
}

func (l Landscape) apiServer(ctx context.Context, _ step.Progress) (string, error) {
	text, err := l.start(ctx, node.APIServer)
	if err == nil {
		l.ahead.begin(ctx, "deploy", "crds", l.crds)
	}
	return text, err
}

func (l Landscape) base(ctx context.Context, _ step.Progress) (string, error) {
	count, err := l.applyBase(ctx)
	if err != nil {
		return "", err
	}
	if err := l.folders(); err != nil {
		return "", err
	}
	started, err := l.start(ctx, node.StatusController)
	return fmt.Sprintf("%d objects applied, %s", count, started), err
}

// applyBase applies the policies by which stand-ins run, and what else is always there. It returns the number of objects.
func (l Landscape) applyBase(ctx context.Context) (int, error) {
	table, errTable := images.Load(l.Layout.Optional())
	machine, errMachine := cluster.ThisMachine()
	objects, errObjects := cluster.Base(table, machine)
	if err := errors.Join(errTable, errMachine, errObjects); err != nil {
		return 0, err
	}
	return len(objects), l.apply(ctx, objects)
}

// folders makes the folders that pods write to. The extension runs as 65532, and so does etcd-backup-restore.
func (l Landscape) folders() error {
	const nonroot = 65532
	for dir, mode := range map[string]os.FileMode{
		// Volumes are for any user, and mounted: only root has to pass.
		l.Layout.Volumes(): 0o700,
		l.Layout.Backups(): 0o755,
	} {
		if err := errors.Join(os.MkdirAll(dir, mode), os.Chmod(dir, mode)); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
	}
	if err := os.Chown(l.Layout.Backups(), nonroot, nonroot); err != nil {
		return fmt.Errorf("making %s: %w", l.Layout.Backups(), err)
	}
	return nil
}

func (l Landscape) node(ctx context.Context, progress step.Progress) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err := l.wait(ctx, progress, []milestone{{title: nodeReady, kind: corev1.SchemeGroupVersion.WithKind("Node"), reached: nodesReady}})
	return "kubectl: " + l.Layout.Kubectl(), err
}

func (l Landscape) dns(ctx context.Context, _ step.Progress) (string, error) {
	objects, err := cluster.DNS(l.Layout.Network)
	if err != nil {
		return "", err
	}
	if err := l.apply(ctx, objects); err != nil {
		return "", err
	}
	return l.start(ctx, node.DNS)
}

// apply applies objects to the runtime cluster.
func (l Landscape) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	places := []place{runtimeCluster}
	if l.hasSecond() {
		places = append(places, secondCluster)
	}
	for _, on := range places {
		c, err := l.client(on)
		if err == nil {
			err = cluster.Apply(ctx, c, objects)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ahead is what later steps do that needs only a part of the steps before: it is begun as soon as that part is there, while
// the others still wait. A nil one begins nothing, so that each step does its own work when it is its turn.
type ahead struct {
	// planned are the steps that this `up` comes to.
	planned []string

	// begun has by names what does the work once, and returns what came of it.
	begun   sync.Map
	running sync.WaitGroup
}

// execute is work that a step does, or that is begun before it.
type execute = func(context.Context, step.Progress) (string, error)

// silent reports nothing: the step that needs the work does.
func silent(string, ...any) {}

// begin does some work of a step in the background, if `up` comes to that step and it wasn't begun before. Its name tells it
// from other work.
func (a *ahead) begin(ctx context.Context, step, name string, work execute) {
	if a == nil || !slices.Contains(a.planned, step) {
		return
	}
	once := sync.OnceValues(func() (string, error) { return work(ctx, silent) })
	if _, begun := a.begun.LoadOrStore(name, once); !begun {
		a.running.Go(func() { _, _ = once() })
	}
}

// wait waits until nothing is going on any more.
func (a *ahead) wait() { a.running.Wait() }

// finish waits for the work of that name. If it wasn't begun, or if it failed, as it may have been too early, it is done now.
func (a *ahead) finish(ctx context.Context, name string, work execute) (string, error) {
	if a != nil {
		if once, begun := a.begun.Load(name); begun {
			if text, err := once.(func() (string, error))(); err == nil {
				return text, nil
			}
		}
	}
	return work(ctx, silent)
}
