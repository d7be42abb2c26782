// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
)

// asProgram makes the test binary behave as the program itself.
const asProgram = "PROVIDER_LOCAL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func TestTheProgramKnowsTheFlagsThatItIsStartedWith(t *testing.T) {
	g := NewWithT(t)
	l := layout.Layout{Root: t.TempDir()}
	started := 0
	for _, component := range node.Components(l) {
		if component.Command[0] != l.Binary("landscape") {
			continue
		}
		started++
		command, args, err := command().Find(component.Command[1:])
		g.Expect(err).NotTo(HaveOccurred(), component.Name)
		g.Expect(command.ParseFlags(args)).To(Succeed(), component.Name)
	}
	g.Expect(started).To(BeNumerically(">=", 2))
}

func TestTheProgramKnowsWhatTheMakefileCallsItWith(t *testing.T) {
	g := NewWithT(t)
	makefile, err := os.ReadFile("../../Makefile")
	g.Expect(err).NotTo(HaveOccurred())
	calls := regexp.MustCompile(`\$\(LANDSCAPE\) ([a-z-]+)([^;&\n]*)`).FindAllStringSubmatch(string(makefile), -1)
	g.Expect(len(calls)).To(BeNumerically(">", 20), "the pattern finds the calls")
	for _, call := range calls {
		found, _, err := command().Find(call[1:2])
		g.Expect(err).NotTo(HaveOccurred(), call[0])
		g.Expect(found.Name()).To(Equal(call[1]), call[0])
		for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(call[2], -1) {
			g.Expect(found.Flag(flag[1])).NotTo(BeNil(), call[0]+": "+flag[0])
		}
	}
}

func TestWrongUsageExitsWith2AndSaysWhereHelpIs(t *testing.T) {
	for _, test := range []struct{ args, message string }{
		{"nonsense", `unknown command "nonsense"`},
		{"up --nonsense", "unknown flag: --nonsense"},
		{"up now", `unknown command "now"`},
		{"up --until nonsense", `there is no step "nonsense"; the steps are: preflight, packages`},
		{"doctor --until nonsense", `there is no step "nonsense"`},
		{"logs a b", "accepts at most 1 arg"},
		{"debug", "accepts 1 arg(s), received 0"},
		{"debug shoot", `invalid argument "shoot"`},
		{"up --from saved --until seed", "none of the others can be"},
		{"status --target nowhere", `target "nowhere" is neither bare nor kind`},
	} {
		t.Run(test.args, func(t *testing.T) {
			g := NewWithT(t)
			out, err := program(t, strings.Fields(test.args)...).CombinedOutput()
			g.Expect(exitCode(err)).To(Equal(2), string(out))
			g.Expect(string(out)).To(And(ContainSubstring(test.message), ContainSubstring("--help' for usage")))
		})
	}
}

func TestAFailureExitsWith1(t *testing.T) {
	g := NewWithT(t)
	cmd := program(t, "status")
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	g.Expect(exitCode(err)).To(Equal(1), string(out))
	g.Expect(string(out)).To(ContainSubstring("run it inside of a clone"))
}

func TestUpRefusesWhatIsNoGardener(t *testing.T) {
	for gardener, message := range map[string]string{
		"standins": "standins is no clone of https://github.com/gardener/gardener: its go.mod is that of module",
		"v1.150":   "v1.150 is no release of Gardener: write all three numbers, such as v1.150.0",
	} {
		t.Run(gardener, func(t *testing.T) {
			g := NewWithT(t)
			out, err := program(t, "up", "--gardener", gardener).CombinedOutput()
			g.Expect(exitCode(err)).To(Equal(1), string(out))
			g.Expect(string(out)).To(ContainSubstring(message))
		})
	}
}

func TestHelpExplainsTheSteps(t *testing.T) {
	g := NewWithT(t)
	out, err := program(t, "up", "--help").CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(out)).To(And(ContainSubstring("dns            the cluster's DNS serves"), ContainSubstring("memory"), ContainSubstring("sudo make up")))
	out, err = program(t, "gardener-up", "--help").CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(out)).To(And(ContainSubstring("cluster        the kind cluster is ready"), Not(ContainSubstring("etcd serves"))))
}

func TestAReleasedProgramNeedsNoMake(t *testing.T) {
	for text, expected := range map[string]string{
		"there is no landscape; bring it up with make up: no file\n":         "there is no landscape; bring it up with landscape up: no file\n",
		"  sudo make up UNTIL=garden     # stop when there is a Garden":      "  sudo landscape up --until garden     # stop when there is a Garden",
		"use another network: make up NETWORK=172.30.0.0/16.":                "use another network: landscape up --network 172.30.0.0/16.",
		"run make down first, then make up COMPONENTS=a,b":                   "run landscape down first, then landscape up --components a,b",
		"what make save NAME=shoots kept; make debug INSTANCE=seed":          "what landscape save shoots kept; landscape debug seed",
		"next: make up FROM=shoots, where there is no landscape":             "next: landscape up --from shoots, where there is no landscape",
		"make scale SHOOTS=2 NODES=20; look at `make status`":                "landscape scale --shoots 2 --nodes 20; look at `landscape status`",
		"make snapshots NAME=x deletes it; run make doctor":                  "landscape snapshots --delete x deletes it; run landscape doctor",
		"make room there, run make kind-up or make gardener-up, makes upset": "make room there, run make kind-up or make gardener-up, makes upset",
	} {
		t.Run(text, func(t *testing.T) {
			g, out := NewWithT(t), &strings.Builder{}
			g.Expect(withoutMake{out}.Write([]byte(text))).To(Equal(len(text)))
			g.Expect(out.String()).To(Equal(expected))
		})
	}
}

func TestNoHelpOfAReleasedProgramNeedsMake(t *testing.T) {
	for _, cmd := range command().Commands() {
		if cmd.Name() == "gardener-up" {
			continue // It needs the kind cluster of a clone.
		}
		t.Run(cmd.Name(), func(t *testing.T) {
			g, out := NewWithT(t), &strings.Builder{}
			cmd.SetOut(withoutMake{out})
			g.Expect(cmd.Help()).To(Succeed())
			g.Expect(out.String()).NotTo(MatchRegexp(`\bmake [a-z]`))
		})
	}
}

func TestNoProxyIsAskedForTheLandscape(t *testing.T) {
	const ofMake, names = ".local.gardener.cloud,172.18.0.0/16,fd00:ff::/64", ",.svc,.cluster.local"
	ours := ofMake + names
	for _, r := range (layout.Network{}).Ranges() {
		ours += "," + r.Prefix.String()
	}
	for _, test := range []struct{ name, variable, before, want string }{
		{name: "without a proxy nothing is set"},
		{name: "with a proxy", variable: "https_proxy", want: "localhost," + ours},
		{name: "with exceptions", variable: "HTTP_PROXY", before: "example.com", want: "example.com," + ours},
		{name: "with those of make", variable: "HTTPS_PROXY", before: "example.com," + ofMake, want: "example.com," + ours},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy"} {
				t.Setenv(name, "")
			}
			if test.variable != "" {
				t.Setenv(test.variable, "http://proxy.example.com:3128")
			}
			t.Setenv("no_proxy", test.before)
			g.Expect(bypassProxy(layout.Network{})).To(Succeed())
			g.Expect(os.Getenv("NO_PROXY")).To(Equal(test.want))
			g.Expect(os.Getenv("no_proxy")).To(Equal(test.want))
		})
	}
}

func TestASignalExitsWith128AndItsNumber(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sent.String(), func(t *testing.T) {
			if signal.Ignored(sent) {
				t.Skip("it is ignored")
			}
			g := NewWithT(t)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			g.Expect(err).NotTo(HaveOccurred())
			address := listener.Addr().String()
			g.Expect(listener.Close()).To(Succeed())
			cmd := program(t, "registry", "--dir", t.TempDir(), "--listen", address)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			g.Expect(cmd.Start()).To(Succeed())
			g.Eventually(func() error {
				connection, err := net.Dial("tcp", address)
				if err == nil {
					err = connection.Close()
				}
				return err
			}).WithTimeout(20*time.Second).Should(Succeed(), "it serves")
			g.Expect(cmd.Process.Signal(sent)).To(Succeed())
			g.Expect(exitCode(cmd.Wait())).To(Equal(exitSignal + int(sent)))
			g.Expect(stderr.String()).To(And(ContainSubstring("run it again to continue"), Not(ContainSubstring("error:"))))
		})
	}
}
