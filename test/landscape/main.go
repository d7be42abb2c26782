// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command landscape brings up, on one Debian machine and without Docker, what a kind cluster would be to Gardener's local
// setup: a real single-node Kubernetes, an OCI registry, and the images of others. Then it lets Skaffold deploy
// gardener-operator, this repository's extension and a Garden, there or in a real kind cluster.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/invoker"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/registry"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/source"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/statuscontroller"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/up"
)

// Exit codes, as shells and other programs use them.
const (
	exitFailure = 1
	exitUsage   = 2
	exitSignal  = 128
)

func main() { os.Exit(run()) }

func run() int {
	// What root's own umask keeps from others, containers and whoever called sudo have to read. Secrets have a mode of their own.
	syscall.Umask(0o022)
	// sudo and su leave out where Go is, and the programs of administration.
	if err := os.Setenv("PATH", invoker.SearchPath(os.Getenv("PATH"))); err != nil {
		return exitFailure
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // As it is after nohup.
		signal.Notify(signals, syscall.SIGHUP)
	}
	interrupted := make(chan int, 1)
	go func() {
		first, _ := (<-signals).(syscall.Signal)
		interrupted <- exitSignal + int(first)
		cancel()
		fmt.Fprintln(os.Stderr, "interrupted: finishing what can't be left half-way; interrupt again to end at once")
		second, _ := (<-signals).(syscall.Signal)
		os.Exit(exitSignal + int(second))
	}()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	root := command()
	root.SetOut(messages(os.Stdout))
	// A command that is never run was called wrongly.
	called := false
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := cmd.ValidateFlagGroups()
		called = err == nil
		return err
	}
	err := root.ExecuteContext(ctx)
	select {
	case code := <-interrupted:
		fmt.Fprintln(os.Stderr, "interrupted; run it again to continue")
		return code
	default:
	}
	switch {
	case err == nil:
		return 0
	case !called || errors.Is(err, step.ErrUnknown):
		fmt.Fprintf(os.Stderr, "error: %v\nrun '%s --help' for usage\n", err, filepath.Base(os.Args[0]))
		return exitUsage
	}
	fmt.Fprintln(messages(os.Stderr), "error:", err)
	return exitFailure
}

// messages returns where messages go. A released program says what to type without make, as it needs none.
func messages(to io.Writer) io.Writer {
	if source.Included() {
		return withoutMake{to}
	}
	return to
}

// withoutMake has texts call this program in place of make: "landscape up --until seed" is "make up UNTIL=seed".
type withoutMake struct{ io.Writer }

func (w withoutMake) Write(p []byte) (int, error) {
	text := makeCall.ReplaceAllStringFunc(string(p), func(call string) string {
		words := strings.Fields(call)
		words[0] = "landscape"
		for i, word := range words[2:] {
			name, value, _ := strings.Cut(word, "=")
			switch words[2+i] = value; {
			case name == "NAME" && words[1] == "snapshots":
				words[2+i] = "--delete " + value
			case name != "NAME" && name != "INSTANCE":
				words[2+i] = "--" + strings.ToLower(name) + " " + value
			}
		}
		return strings.Join(words, " ")
	})
	_, err := io.WriteString(w.Writer, text)
	return len(p), err
}

// makeCall matches a call of make whose target is a command of this program.
var makeCall = regexp.MustCompile(`\bmake (up|down|start|stop|status|save|snapshots|doctor|dev|debug|times|scale)\b((?: [A-Z]+=[^\s;)]*[^\s;):,.])*)`)

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "landscape",
		Short:         "A local Gardener landscape on one machine, without Docker",
		Long:          "Runs a whole Gardener on one machine: Kubernetes, a Garden that is its own first seed, and two Shoots.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().String(folderFlag, "", "`FOLDER` of the landscape; otherwise the clone that the program runs in, or, for a released program, ./"+ownFolder)
	root.AddCommand(upCommand(), gardenerUpCommand(), doctorCommand(), timesCommand(), scaleCommand(), extensionCommand(), classCheckCommand(), registryCommand(), statusControllerCommand(),
		&cobra.Command{
			Use: "stand-ins [COMPONENT...]", Short: "Have a kind cluster run what the bare landscape runs (for machines without registries)", Hidden: true, Args: cobra.ArbitraryArgs,
			RunE: act(func(cmd *cobra.Command, l up.Landscape, args []string) (err error) {
				if l.Layout, err = l.Layout.On(layout.Kind); err != nil {
					return err
				}
				if err := l.Use(args); err != nil {
					return err
				}
				return l.StandIns(cmd.Context())
			}),
		},
		&cobra.Command{
			Use: "build", Short: "Build the programs and change nothing else, for tests that need no landscape", Hidden: true,
			RunE: act(func(cmd *cobra.Command, l up.Landscape, _ []string) error { return l.Build(cmd.Context()) }),
		},
		&cobra.Command{
			Use:   "down",
			Short: "Take the landscape down and verify that nothing is left",
			Long: `Stops and removes what up made, and nothing else: processes, mounts, network devices, firewall rules, cgroups, kernel parameters.
What others changed on the machine meanwhile is listed and left alone. Debian packages and bin/ stay.`,
			RunE: act(func(cmd *cobra.Command, l up.Landscape, _ []string) error { return l.Down(cmd.Context()) }),
		},
		&cobra.Command{
			Use:   "stop",
			Short: "Stop all processes and containers, and keep everything for start",
			RunE:  act(func(cmd *cobra.Command, l up.Landscape, _ []string) error { return l.Stop(cmd.Context()) }),
		},
		&cobra.Command{
			Use:   "start",
			Short: "Start a landscape again after stop, or after the machine has started anew",
			Long:  "Starts a landscape again as it was, and waits until it is healthy. It builds and deploys nothing; up does.",
			RunE:  act(func(cmd *cobra.Command, l up.Landscape, _ []string) error { return l.Start(cmd.Context()) }),
		},
		&cobra.Command{
			Use:   "save NAME",
			Short: "Keep all of the landscape under a name, for up --from",
			Long: `Keeps the whole landscape as it is: clusters, registry, volumes, backups and machines. One that runs is stopped for that, and
started again. What another snapshot has already takes no room a second time.`,
			Example: "  sudo make save NAME=shoots\n  sudo make down\n  sudo make up FROM=shoots",
			Args:    cobra.ExactArgs(1),
			RunE:    act(func(cmd *cobra.Command, l up.Landscape, args []string) error { return l.Save(cmd.Context(), args[0]) }),
		},
		snapshotsCommand(),
		&cobra.Command{
			Use:   "push NAME REFERENCE",
			Short: "Send a snapshot to a registry, for up --from REFERENCE on another machine",
			Long:  "Sends a snapshot to a registry as an OCI artifact, with the credentials of docker login.",
			Args:  cobra.ExactArgs(2),
			RunE: act(func(cmd *cobra.Command, l up.Landscape, args []string) error {
				return l.Push(cmd.Context(), args[0], args[1])
			}),
		},
		&cobra.Command{
			Use:   "push-programs REFERENCE",
			Short: "Build the programs and send them to a registry, for up --programs REFERENCE",
			Args:  cobra.ExactArgs(1),
			RunE: act(func(cmd *cobra.Command, l up.Landscape, args []string) error {
				return l.PushPrograms(cmd.Context(), args[0])
			}),
		},
		onTarget(&cobra.Command{
			Use:   "dev",
			Short: "Watch the sources and deploy each edit, after up",
			Long: `Watches the sources of this repository, and those of the checkout that make up was given with GARDENER. After an edit it builds and
pushes what changed, has Skaffold deploy the modules that need it, and waits until both instances serve. It prints what it built and
the seconds of each step. An edit that does not compile is reported; the next one is built again. It needs a landscape that is up.
Files below test/ and docs/ are not deployed by it.`,
			Example: "  sudo make dev",
			RunE:    act(func(cmd *cobra.Command, l up.Landscape, _ []string) error { return l.Dev(cmd.Context()) }),
		}),
		&cobra.Command{
			Use:   "debug seed|garden",
			Short: "Attach a debugger to an instance of the extension, after up",
			Long: `Builds both instances for a debugger and deploys them without liveness probe and leader election, so that they may be stopped.
Then it attaches Delve to the one that is named, which listens on ` + up.DebugAddress + ` until ctrl-C. The next up, or dev, deploys the usual
instances again.`,
			Example:   "  sudo make debug INSTANCE=seed\n  sudo bin/tools/dlv connect " + up.DebugAddress,
			Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
			ValidArgs: []string{"seed", "garden"},
			RunE:      act(func(cmd *cobra.Command, l up.Landscape, args []string) error { return l.Debug(cmd.Context(), args[0]) }),
		},
		onTarget(&cobra.Command{
			Use: "state", Short: "Print the folder of the landscape's state", Hidden: true,
			RunE: act(func(_ *cobra.Command, l up.Landscape, _ []string) error {
				_, err := fmt.Fprintln(l.Out, l.Layout.State())
				return err
			}),
		}),
		onTarget(&cobra.Command{
			Use:   "status",
			Short: "Show what runs and how it is; fails if something is unhealthy",
			RunE:  act(func(cmd *cobra.Command, l up.Landscape, _ []string) error { return l.Status(cmd.Context()) }),
		}),
		onTarget(explainCommand()),
		onTarget(&cobra.Command{
			Use:   "logs [NAME]",
			Short: "Print the log of a process, or list the logs",
			Long:  "Prints the log of a process of the landscape, or of Skaffold; without NAME lists them. The logs of pods: kubectl logs.",
			Args:  cobra.MaximumNArgs(1),
			RunE: act(func(_ *cobra.Command, l up.Landscape, args []string) error {
				if len(args) == 1 {
					return l.Logs(args[0])
				}
				names, err := l.LogNames()
				_, _ = io.WriteString(l.Out, strings.Join(append(names, ""), "\n"))
				return err
			}),
		}),
		&cobra.Command{
			Use:   "policies",
			Short: "Print the admission policies that clusters with the landscape's images need",
			Long: `Prints the admission policies by which the pods of stubs are ready, and pods do without what this machine lacks. The landscape's
own clusters have them. A Shoot that hosts itself needs them, as soon as its API server answers.`,
			Example: "  landscape policies | kubectl apply --server-side -f -",
			RunE: act(func(_ *cobra.Command, l up.Landscape, _ []string) error {
				policies, _, err := cluster.ShootManifests(l.Layout.Optional())
				if err != nil {
					return err
				}
				_, err = l.Out.Write(policies)
				return err
			}),
		},
		onTarget(&cobra.Command{
			Use:   "kubeconfig [virtual-garden | SHOOT]",
			Short: "Print a kubeconfig: of the runtime cluster, the virtual garden, or a Shoot",
			Long: `Prints a kubeconfig that works on this machine: of the runtime cluster, which is the seed as well; of the virtual garden, with
its Seeds and Shoots, valid for 30 days; or of a Shoot, named NAME (in project local) or NAMESPACE/NAME, valid for a day.`,
			Example: "  landscape kubeconfig local > local.kubeconfig\n  kubectl --kubeconfig local.kubeconfig get nodes",
			Args:    cobra.MaximumNArgs(1),
			RunE: act(func(cmd *cobra.Command, l up.Landscape, args []string) error {
				return l.PrintKubeconfig(cmd.Context(), strings.Join(args, ""))
			}),
		}),
	)
	for _, cmd := range root.Commands() {
		if cmd.Args == nil {
			cmd.Args = cobra.NoArgs
		}
	}
	return root
}

// folderFlag is where the landscape is, and ownFolder its default for a released program that is in no clone.
const (
	folderFlag = "folder"
	ownFolder  = "provider-local"
)

// open finds the landscape of a folder, or of the clone in which the program runs. A released program, which is in none, unpacks its sources
// for up, and replaces those of another version.
func open(folder, command string) (up.Landscape, error) {
	user, err := invoker.Current()
	if err == nil {
		err = user.UseDockerLogin()
	}
	if err != nil {
		return up.Landscape{}, err
	}
	found, err := layout.Find(cmp.Or(folder, "."))
	if errors.Is(err, layout.ErrNoClone) && source.Included() {
		folder = cmp.Or(folder, ownFolder)
		found, err = layout.Find(folder)
	}
	none := errors.Is(err, layout.ErrNoClone)
	switch {
	case !source.Included():
	case command == "up" && (none || source.Unpacked(found.Root)):
		root := cmp.Or(found.Root, folder)
		written, errUnpack := source.Unpack(root)
		if err := errors.Join(errUnpack, user.OwnOnly(written...)); err != nil {
			return up.Landscape{}, err
		}
		found, err = layout.Find(root)
	case command == "doctor" && none:
		found.Root, err = filepath.Abs(folder)
	case none:
		err = fmt.Errorf("there is no landscape in %s; bring one up with 'landscape up'", folder)
	}
	to := messages(os.Stdout)
	if command == "logs" || command == "kubeconfig" {
		to = os.Stdout // What others wrote is printed as it is.
	}
	return up.Landscape{Layout: found, Out: to, Now: time.Now, Invoker: user}, err
}

// act has a command do something with the landscape of the clone in which the program runs, on the network of its flag if it has one.
func act(does func(cmd *cobra.Command, l up.Landscape, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		landscape, err := open(cmd.Flag(folderFlag).Value.String(), cmd.Name())
		if err != nil {
			return err
		}
		if cmd.Flags().Changed(networkFlag) {
			var network layout.Network
			if err := cmd.Flags().GetText(networkFlag, &network); err != nil {
				return err
			}
			if err := landscape.UseNetwork(network); err != nil {
				return err
			}
		}
		if flag := cmd.Flag(targetFlag); flag != nil {
			if landscape.Layout, err = landscape.Layout.On(layout.Target(flag.Value.String())); err != nil {
				return err
			}
		}
		if err := bypassProxy(landscape.Layout.Network); err != nil {
			return err
		}
		return does(cmd, landscape, args)
	}
}

// bypassProxy has this program and those that it starts connect to the landscape directly: no proxy knows it.
func bypassProxy(network layout.Network) error {
	if cmp.Or(os.Getenv("HTTP_PROXY"), os.Getenv("HTTPS_PROXY"), os.Getenv("http_proxy"), os.Getenv("https_proxy")) == "" {
		return nil
	}
	direct := strings.Split(cmp.Or(os.Getenv("NO_PROXY"), os.Getenv("no_proxy"), "localhost"), ",")
	// The API server calls webhooks and aggregated APIs by names of Services, or by addresses of pods.
	landscape := []string{".local.gardener.cloud", network.String(), "fd00:ff::/64", ".svc", ".cluster.local"}
	for _, r := range network.Ranges() {
		landscape = append(landscape, r.Prefix.String())
	}
	for _, to := range landscape {
		if !slices.Contains(direct, to) {
			direct = append(direct, to)
		}
	}
	list := strings.Join(direct, ",")
	return errors.Join(os.Setenv("NO_PROXY", list), os.Setenv("no_proxy", list))
}

// targetFlag chooses the target.
const targetFlag = "target"

// onTarget has a command act on the landscape of its flag, or else on the one that is there.
func onTarget(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().TextVar(new(layout.Target), targetFlag, layout.Target(""), "`TARGET` bare or kind, where there are both")
	return cmd
}

// networkFlag chooses the network.
const networkFlag = "network"

func addNetworkFlag(cmd *cobra.Command) {
	cmd.Flags().TextVar(new(layout.Network), networkFlag, layout.Network{}, "private IPv4 `CIDR` of 16 bits, from which all addresses follow; kept until down")
}

// listOf lists steps for a help text.
func listOf(steps []step.Step) string {
	var list strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&list, "  %-14s %s\n", s.Name, s.Title)
	}
	return list.String()
}

func upCommand() *cobra.Command {
	var config, until, from, programs, gardener string
	var kubernetes, components []string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the landscape up; running it again continues or repairs",
		Long: "Brings the landscape up in these steps. A step that is done already is skipped, so running it again continues after an\n" +
			"interruption, deploys what changed, and repairs, for example after a reboot.\n\n" + listOf(up.Landscape{}.Steps()) + `
It needs root, Debian 12 or 13 or Ubuntu 24.04, Go 1.21 or newer, 2 cores, 8 GB of memory and 25 GB of disk; 'landscape doctor'
checks that and more. The first run builds everything from source, which takes 22 to 55 minutes on two cores; later ones take 5 to 13.
Logs are in .landscape/logs ('landscape logs NAME').`,
		Example: `  sudo make up                  # everything
  sudo make up UNTIL=garden     # stop when there is a Garden; the next run continues
  sudo make up GARDENER=../gardener      # Gardener built from a checkout; again after each edit
  sudo make up GARDENER=v1.150.0         # another release of Gardener
  landscape up --until dns      # a Kubernetes cluster only
  sudo make up NETWORK=172.30.0.0/16
  sudo make up KUBERNETES=1.35  # Shoots may have Kubernetes 1.35 as well
  sudo make up COMPONENTS=observability,autoscaling  # Prometheus and VerticalPodAutoscaler, in place of their stubs
  sudo make up FROM=shoots      # what make save NAME=shoots kept`,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if config == "" {
				return nil
			}
			return configure(cmd, config)
		},
		RunE: act(func(cmd *cobra.Command, l up.Landscape, _ []string) error {
			l.Programs = programs
			if err := l.Use(slices.Concat(kubernetes, components)); err != nil {
				return err
			}
			if from != "" {
				return l.Restore(cmd.Context(), from)
			}
			if gardener != "" {
				if err := l.UseGardener(cmd.Context(), gardener); err != nil {
					return err
				}
			}
			return l.Up(cmd.Context(), until)
		}),
	}
	addNetworkFlag(cmd)
	cmd.Flags().StringVar(&until, "until", "", "stop after this step")
	cmd.Flags().StringVar(&from, "from", "", "start a snapshot instead: the `NAME` of save, or the reference of push")
	cmd.Flags().StringVar(&programs, "programs", "", "`REFERENCE` of push-programs, whose programs need not be built")
	cmd.Flags().StringVar(&gardener, "gardener", "", "build Gardener from the checkout in this `FOLDER`, or from a release such as v1.150.0; without it, from the release that is pinned")
	cmd.Flags().StringSliceVar(&kubernetes, "kubernetes", nil, "further minor `VERSIONS` of Kubernetes to build for Shoots: 1.35, 1.34, 1.33; kept until down")
	cmd.Flags().StringSliceVar(&components, "components", nil, "`COMPONENTS` to build in place of stubs: observability (Prometheus and what belongs to it), autoscaling (VerticalPodAutoscaler), dependency-watchdog, gardenadm; with upstream, whatever has only a stub is pulled from its own registry; kept until down")
	cmd.Flags().StringVar(&config, configFlag, "", "`FILE` with values of these flags, over which those of the command line win (test/landscape/landscape.schema.json)")
	for _, other := range []string{"until", networkFlag, "programs", "gardener", "kubernetes", "components"} {
		cmd.MarkFlagsMutuallyExclusive("from", other)
	}
	names := step.Names(up.Landscape{}.Steps())
	_ = cmd.RegisterFlagCompletionFunc("until", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // The flag is above.
	return cmd
}

func snapshotsCommand() *cobra.Command {
	var deleted []string
	cmd := &cobra.Command{
		Use:   "snapshots",
		Short: "List what was saved on this machine, or delete some of it",
		RunE: act(func(cmd *cobra.Command, l up.Landscape, _ []string) error {
			return l.Snapshots(cmd.Context(), deleted...)
		}),
	}
	cmd.Flags().StringArrayVar(&deleted, "delete", nil, "`NAME` of a snapshot to delete; may be repeated")
	return cmd
}

func gardenerUpCommand() *cobra.Command {
	var until string
	cmd := &cobra.Command{
		Use:   "gardener-up",
		Short: "Deploy Gardener to the kind cluster of make kind-up; running it again continues, or deploys what changed",
		Long: "Deploys Gardener to the kind cluster of make kind-up, with the latter's variant, in these steps:\n\n" +
			listOf(up.Landscape{Layout: layout.Layout{Kind: "single"}}.Steps()) + "\nIts logs and kubeconfigs are in .kind.",
		RunE: act(func(cmd *cobra.Command, l up.Landscape, _ []string) (err error) {
			if l.Layout, err = l.Layout.On(layout.Kind); err != nil {
				return err
			}
			return l.Up(cmd.Context(), until)
		}),
	}
	cmd.Flags().StringVar(&until, "until", "", "stop after this step")
	return cmd
}

func timesCommand() *cobra.Command {
	var docs bool
	cmd := &cobra.Command{
		Use:   "times",
		Short: "Measure a landscape from nothing to nothing: times, memory, CPU time by program",
		Long: `Brings a landscape up, stops, starts, changes it and takes it down, and measures each part, memory, and the CPU time of each program.
It takes half an hour to an hour on two idle cores, keeps the results in bin/times, and needs a machine on which up and down have run before.`,
		RunE: act(func(cmd *cobra.Command, l up.Landscape, _ []string) error { return l.Measure(cmd.Context(), docs) }),
	}
	cmd.Flags().BoolVar(&docs, "docs", false, "write docs/development/times.md and times.json")
	return cmd
}

func scaleCommand() *cobra.Command {
	var docs bool
	var count, nodes int
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Create, reconcile, update and delete many Shoots with fake Nodes, and measure that, after up",
		Long: `Enables the mock provider, creates Shoots with real control planes and fake Nodes, as many at a time as there are cores, reconciles, updates
and deletes them. It prints a table of times, requests, CPU time and memory, and keeps it in bin/scale. A Shoot takes 0.8 GB of memory
and 50 seconds of CPU time. After an interruption, --shoots 0 deletes what is left.`,
		Example: "  sudo make up UNTIL=seed\n  sudo make scale SHOOTS=10 NODES=1000",
		RunE: act(func(cmd *cobra.Command, l up.Landscape, _ []string) error {
			return l.Scale(cmd.Context(), count, nodes, docs)
		}),
	}
	cmd.Flags().IntVar(&count, "shoots", 10, "number of Shoots")
	cmd.Flags().IntVar(&nodes, "nodes", 1000, "number of Nodes of all Shoots")
	cmd.Flags().BoolVar(&docs, "docs", false, "write docs/development/scale.md")
	return cmd
}

func explainCommand() *cobra.Command {
	var bundle string
	cmd := &cobra.Command{
		Use:   "explain [garden | seed[/NAME] | shoot/[NAMESPACE/]NAME]",
		Short: "Say why the Garden, a Seed or a Shoot is not healthy",
		Long: `Looks for the first cause of why a target is not healthy: which object, since when, the event or the end of the log that says more, and
the command to look further. A Shoot is NAME (in project local) or NAMESPACE/NAME. Without a target, it explains all that are not healthy.
It changes nothing, and fails if a target is not healthy. With --bundle it writes what an issue needs instead: a gzipped tar with its
answer, status, objects without Secrets, events and logs.`,
		Example: "  landscape explain\n  landscape explain shoot/local\n  landscape explain --bundle issue.tar.gz",
		Args:    cobra.MaximumNArgs(1),
		RunE: act(func(cmd *cobra.Command, l up.Landscape, args []string) error {
			if bundle != "" {
				return l.Bundle(cmd.Context(), bundle)
			}
			return l.Explain(cmd.Context(), strings.Join(args, ""))
		}),
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "write this `FILE`, which must not be there, for an issue")
	return cmd
}

func extensionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "extension", Short: "Add your own extension to the landscape, or remove it, after up"}
	e := up.Extension{}
	add := &cobra.Command{
		Use:   "add NAME",
		Short: "Add an extension, or change it to what is given now, and wait until it runs",
		Long: `Makes an operator.gardener.cloud Extension of a manifest, or of resources and a chart, and waits until Gardener has installed it. Charts
that are folders are pushed to the landscape's registry. Images are, too: an image of any registry whose repository is NAME, or ends in
/NAME, is the one given as NAME=SOURCE, whatever its tag. Run it again after an edit: pods get the new image.

SOURCE is one of
  go:FOLDER                   a program that is built from a checkout
  go:MODULE/PACKAGE@VERSION   a program that is built from a Go module
  FILE                        what docker save wrote
  FOLDER                      an OCI image layout
  REFERENCE                   an image in a registry

An image that nobody gave, and that can't be pulled, is an error that names it. See docs/usage/your-extension.md.`,
		Example: `  landscape extension add my-extension --manifest example/extension.yaml --chart charts/my-extension --image my-extension=go:./cmd/my-extension
  landscape extension add my-extension --resource Extension/mine --chart charts/my-extension --values dev.yaml --image my-extension=my.tar`,
		Args: cobra.ExactArgs(1),
		RunE: act(func(cmd *cobra.Command, l up.Landscape, args []string) error {
			e.Name = args[0]
			return l.AddExtension(cmd.Context(), e)
		}),
	}
	add.Flags().StringVar(&e.Manifest, "manifest", "", "`FILE` with the Extension, or go:MODULE/FILE@VERSION; its name is replaced by NAME")
	add.Flags().StringArrayVar(&e.Resources, "resource", nil, "without a manifest: `KIND/TYPE` that it serves; may be repeated")
	add.Flags().StringVar(&e.Chart, "chart", "", "its `CHART`: a folder, go:MODULE/FOLDER@VERSION, or a reference to a registry")
	add.Flags().StringVar(&e.AdmissionRuntime, "admission-runtime", "", "`CHART` of its admission for the garden runtime cluster")
	add.Flags().StringVar(&e.AdmissionApplication, "admission-application", "", "`CHART` of its admission for the virtual garden")
	add.Flags().StringVar(&e.Values, "values", "", "`FILE` with values of its chart; they win over the manifest's")
	add.Flags().StringArrayVar(&e.Images, "image", nil, "`NAME=SOURCE` of an image; may be repeated")
	add.MarkFlagsMutuallyExclusive("manifest", "resource")
	cmd.AddCommand(add, &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an extension that was added, and its images",
		Args:  cobra.ExactArgs(1),
		RunE: act(func(cmd *cobra.Command, l up.Landscape, args []string) error {
			return l.RemoveExtension(cmd.Context(), args[0])
		}),
	})
	return cmd
}

func classCheckCommand() *cobra.Command {
	var since time.Duration
	var shared []string
	cmd := &cobra.Command{
		Use:   "classcheck EXTENSION",
		Short: "Prove from the audit log that both instances of an extension keep to objects of their classes",
		Long: `Reads the audit log of the runtime cluster, which is its own first seed: an extension can have an instance for the garden there, which is for
class garden, and one for the seed, which is for classes seed and shoot. It prints how many extension objects of which class each wrote,
and fails if one wrote to an object of another's class, or both to the same ManagedResource, Secret, ConfigMap or Service. It fails as
well if an instance wrote nothing, which would prove nothing. It changes nothing.`,
		Example: "  landscape classcheck my-extension\n  landscape classcheck my-extension --since 10m",
		Args:    cobra.ExactArgs(1),
		RunE: act(func(_ *cobra.Command, l up.Landscape, args []string) error {
			begin := time.Time{}
			if since > 0 {
				begin = l.Now().Add(-since)
			}
			return l.ClassCheck(args[0], begin, shared)
		}),
	}
	cmd.Flags().DurationVar(&since, "since", 0, "judge only what was written in the last `DURATION`; otherwise all since the landscape began")
	cmd.Flags().StringArrayVar(&shared, "shared", nil, "`RESOURCE/NAMESPACE/NAME` that both may write to, with * and ?; may be repeated")
	return cmd
}

func doctorCommand() *cobra.Command {
	var until string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can take a landscape, and change nothing",
		RunE:  act(func(cmd *cobra.Command, l up.Landscape, _ []string) error { return l.Doctor(cmd.Context(), until) }),
	}
	addNetworkFlag(cmd)
	cmd.Flags().StringVar(&until, "until", "", "check for a landscape up to this step")
	return cmd
}

func registryCommand() *cobra.Command {
	var dir, optional string
	var listen, caches []string
	cmd := &cobra.Command{
		Use: "registry", Short: "The landscape's registry (started by up)", Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := os.ReadFile(optional) // #nosec G304 -- up says which.
			if err != nil && optional != "" {
				return err
			}
			table, err := images.Load(strings.Fields(string(names)))
			if err != nil {
				return err
			}
			handler, err := registry.Open(dir, table, slog.New(slog.NewTextHandler(os.Stderr, nil)))
			if err != nil {
				return err
			}
			defer func() { _ = handler.Close() }()
			// up gives it to the one who called sudo before anything else, and another may do so later.
			owned := filepath.Dir(dir)
			group, ctx := errgroup.WithContext(cmd.Context())
			group.Go(func() error { return registry.Serve(ctx, handler, listen, owned) })
			group.Go(func() error { return registry.Serve(ctx, handler.ForCaches(), caches, owned) })
			return group.Wait()
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder that keeps what is pushed")
	cmd.Flags().StringArrayVar(&listen, "listen", nil, "addresses to serve on")
	cmd.Flags().StringArrayVar(&caches, "listen-for-caches", nil, "addresses to serve pull-through caches on")
	cmd.Flags().StringVar(&optional, "optional", "", "file with the optional images that are in use")
	return cmd
}

func statusControllerCommand() *cobra.Command {
	var kubeconfig string
	var optional []string
	opts := statuscontroller.Options{Provisioner: cluster.Provisioner}
	cmd := &cobra.Command{
		Use: "status-controller", Short: "Writes what absent controllers would write (started by up)", Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := cluster.Config(kubeconfig)
			if err != nil {
				return err
			}
			if opts.ShootManifest, opts.SeedManifest, err = cluster.ShootManifests(optional); err != nil {
				return err
			}
			opts.Observability = images.Has(optional, up.Observability)
			return statuscontroller.Run(cmd.Context(), config, opts)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the runtime cluster; that of its pod if empty")
	cmd.Flags().StringVar(&opts.Volumes, "volumes", "", "folder of the volumes")
	cmd.Flags().StringVar(&opts.Node, "node", "", "the node with the folder, in a cluster with several")
	cmd.Flags().StringVar(&opts.Health, "health", "", "address of the health endpoint; empty for none")
	cmd.Flags().StringArrayVar(&optional, "optional", nil, "optional images that are in use")
	cmd.Flags().BoolVar(&opts.ManagedSeed, "managed-seed", false, "the cluster is a seed that is a shoot, with volumes of its own")
	return cmd
}
