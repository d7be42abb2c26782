// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
)

const sleeper = "/bin/sleep"

func newKeeper(t *testing.T) process.Keeper {
	t.Helper()
	dir := t.TempDir()
	keeper := process.Keeper{RunDir: filepath.Join(dir, "run"), LogDir: filepath.Join(dir, "logs")}
	t.Cleanup(func() {
		records, err := filepath.Glob(filepath.Join(keeper.RunDir, "*.json"))
		if err != nil {
			t.Error(err)
		}
		for _, record := range records {
			if err := keeper.Stop(context.Background(), strings.TrimSuffix(filepath.Base(record), ".json"), time.Second); err != nil {
				t.Error(err)
			}
		}
	})
	return keeper
}

func TestEnsureStartsOnceAndStopEndsIt(t *testing.T) {
	g := NewWithT(t)
	keeper := newKeeper(t)
	spec := process.Spec{Name: "x", Command: []string{sleeper, "60"}}
	started, err := keeper.Ensure(t.Context(), spec)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(started).To(BeTrue())
	first, running, err := keeper.Find("x")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(running).To(BeTrue())

	started, err = keeper.Ensure(t.Context(), spec)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(started).To(BeFalse(), "it runs already")
	second, _, err := keeper.Find("x")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second.PID).To(Equal(first.PID))

	g.Expect(keeper.Stop(t.Context(), "x", time.Second)).To(Succeed())
	_, running, err = keeper.Find("x")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(running).To(BeFalse())
	g.Expect(keeper.Stop(t.Context(), "x", time.Second)).To(Succeed(), "a process that is gone is no error")
}

func TestEnsureStartsAnewWhatChanged(t *testing.T) {
	input := filepath.Join(t.TempDir(), "config")
	for _, test := range []struct {
		name   string
		change func(t *testing.T, spec *process.Spec)
	}{
		{name: "when the command changes", change: func(_ *testing.T, spec *process.Spec) { spec.Command[1] = "61" }},
		{name: "when the environment changes", change: func(_ *testing.T, spec *process.Spec) { spec.Env = []string{"A=b"} }},
		{name: "when a file it reads changes", change: func(t *testing.T, _ *process.Spec) {
			t.Helper()
			if err := os.WriteFile(input, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(os.WriteFile(input, []byte("old"), 0o600)).To(Succeed())
			keeper := newKeeper(t)
			spec := process.Spec{Name: "x", Command: []string{sleeper, "60"}, Inputs: []string{input}}
			_, err := keeper.Ensure(t.Context(), spec)
			g.Expect(err).NotTo(HaveOccurred())
			before, _, err := keeper.Find("x")
			g.Expect(err).NotTo(HaveOccurred())

			test.change(t, &spec)
			started, err := keeper.Ensure(t.Context(), spec)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(started).To(BeTrue())
			after, running, err := keeper.Find("x")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(running).To(BeTrue())
			g.Expect(after.PID).NotTo(Equal(before.PID))
		})
	}
}

func TestAProcessIsPreferredAsASession(t *testing.T) {
	g := NewWithT(t)
	keeper := newKeeper(t)
	// Anybody may be less important than others.
	_, err := keeper.Ensure(t.Context(), process.Spec{Name: "x", Command: []string{sleeper, "60"}, Nice: 5})
	g.Expect(err).NotTo(HaveOccurred())
	record, _, err := keeper.Find("x")
	g.Expect(err).NotTo(HaveOccurred())

	// The kernel says 20 less than the nice value, so that it is never negative.
	priority, err := syscall.Getpriority(syscall.PRIO_PROCESS, record.PID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(20 - priority).To(Equal(5))
	session, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", record.PID))
	if !errors.Is(err, os.ErrNotExist) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(session)).To(HaveSuffix(" nice 5\n"))
	}
}

func TestAProcessThatCannotBePreferredOrRecordedDoesNotGoOn(t *testing.T) {
	for _, test := range []struct {
		name, message string
		nice          int
		hinder        func(keeper process.Keeper) error
	}{
		{name: "preferred", message: "setting the nice value of its session to 40", nice: 40, hinder: func(process.Keeper) error {
			_, err := os.Stat("/proc/self/autogroup")
			return err
		}},
		{name: "recorded", message: "x.json", hinder: func(keeper process.Keeper) error {
			return os.MkdirAll(filepath.Join(keeper.RunDir, "x.json.new"), 0o700)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			keeper := newKeeper(t)
			if err := test.hinder(keeper); errors.Is(err, os.ErrNotExist) {
				t.Skip("the kernel takes any nice value where it does not share the CPU between sessions")
			}
			fifo := filepath.Join(t.TempDir(), "fifo")
			g.Expect(syscall.Mkfifo(fifo, 0o600)).To(Succeed())
			_, err := keeper.Ensure(t.Context(), process.Spec{Name: "x", Command: []string{"/bin/sh", "-c", "exec sleep 60 3<>" + fifo}, Nice: test.nice})
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
			nobodyReads := func() error {
				file, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
				if err == nil {
					err = file.Close()
				}
				return err
			}
			g.Eventually(nobodyReads).Should(MatchError(syscall.ENXIO))
			g.Consistently(nobodyReads).WithTimeout(300*time.Millisecond).Should(MatchError(syscall.ENXIO), "it is ended")
			_, running, err := keeper.Find("x")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(running).To(BeFalse())
		})
	}
}

func TestFindTakesNobodyElseForTheProcess(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*process.Record)
	}{
		{name: "when the pid was given to another process", change: func(r *process.Record) { r.Ticks++ }},
		{name: "when the machine was booted since", change: func(r *process.Record) { r.Boot = "another" }},
		{name: "when nobody has the pid", change: func(r *process.Record) { r.PID = 1 << 30 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			keeper := newKeeper(t)
			_, err := keeper.Ensure(t.Context(), process.Spec{Name: "x", Command: []string{sleeper, "60"}})
			g.Expect(err).NotTo(HaveOccurred())
			record, _, err := keeper.Find("x")
			g.Expect(err).NotTo(HaveOccurred())
			path := filepath.Join(keeper.RunDir, "x.json")
			original, err := os.ReadFile(path)
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { g.Expect(os.WriteFile(path, original, 0o600)).To(Succeed()) }()

			test.change(&record)
			content, err := json.Marshal(record)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
			_, running, err := keeper.Find("x")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(running).To(BeFalse())
		})
	}
}

func TestNobodyElseOnASocketIsTakenForTheProcess(t *testing.T) {
	g := NewWithT(t)
	keeper := newKeeper(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	address := netip.MustParseAddrPort(listener.Addr().String())
	spec := process.Spec{Name: "x", Command: []string{sleeper, "60"}, Sockets: []process.Socket{{Network: "tcp", Address: address}}}

	// It runs, and somebody else answers in its place.
	_, err = keeper.Ensure(t.Context(), process.Spec{Name: "x", Command: []string{sleeper, "60"}})
	g.Expect(err).NotTo(HaveOccurred())
	answers := func(context.Context) error { return nil }
	g.Expect(keeper.WaitReady(t.Context(), spec, 300*time.Millisecond, answers)).To(MatchError(ContainSubstring("does not listen on tcp " + address.String())))
}

func TestWaitReadyLooksWhetherTheProcessRunsFirst(t *testing.T) {
	g := NewWithT(t)
	answers := func(context.Context) error { return nil }
	g.Expect(newKeeper(t).WaitReady(t.Context(), process.Spec{Name: "x"}, time.Minute, answers)).To(MatchError(ContainSubstring("the process ended")))
}

func TestWaitReadyShowsTheLogOfAProcessThatEnds(t *testing.T) {
	g := NewWithT(t)
	keeper := newKeeper(t)
	_, err := keeper.Ensure(t.Context(), process.Spec{Name: "x", Command: []string{"/bin/sh", "-c", "sleep 0.1; echo port is taken; exit 1"}})
	g.Expect(err).NotTo(HaveOccurred())
	err = keeper.WaitReady(t.Context(), process.Spec{Name: "x"}, time.Minute, func(context.Context) error { return errors.New("refused") })
	g.Expect(err).To(MatchError(And(ContainSubstring("the process ended"), ContainSubstring("port is taken"))))
}

func TestWaitReadySaysWhatIsMissingAtTheTimeout(t *testing.T) {
	g := NewWithT(t)
	keeper := newKeeper(t)
	_, err := keeper.Ensure(t.Context(), process.Spec{Name: "x", Command: []string{sleeper, "60"}})
	g.Expect(err).NotTo(HaveOccurred())
	err = keeper.WaitReady(t.Context(), process.Spec{Name: "x"}, 50*time.Millisecond, func(context.Context) error { return errors.New("refused") })
	g.Expect(err).To(MatchError(ContainSubstring("not ready after 50ms: refused")))
}

// trapped starts process x, which runs until it is killed, and has set a trap.
func trapped(t *testing.T, keeper process.Keeper, trap string) {
	t.Helper()
	g := NewWithT(t)
	_, err := keeper.Ensure(t.Context(), process.Spec{Name: "x", Command: []string{"/bin/sh", "-c", trap + "; echo armed; while :; do sleep 0.05; done"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() string { return keeper.Tail("x", 1) }).Should(Equal("armed"), "the trap has to be set first")
}

func TestStopKillsWhatIgnoresTheSignal(t *testing.T) {
	g := NewWithT(t)
	keeper := newKeeper(t)
	trapped(t, keeper, "trap '' TERM")
	g.Expect(keeper.Stop(t.Context(), "x", 200*time.Millisecond)).To(Succeed())
	_, running, err := keeper.Find("x")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(running).To(BeFalse())
}

func TestStopThatIsInterruptedKillsNothing(t *testing.T) {
	g := NewWithT(t)
	keeper := newKeeper(t)
	trapped(t, keeper, "trap 'echo asked' TERM")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(keeper.Stop(ctx, "x", time.Minute)).To(MatchError(context.Canceled))
	g.Eventually(func() string { return keeper.Tail("x", 1) }).Should(Equal("asked"), "it may end in good order")
	_, running, err := keeper.Find("x")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(running).To(BeTrue())
	g.Expect(keeper.Stop(t.Context(), "x", 100*time.Millisecond)).To(Succeed())
}

func TestChildrenDoNotHoldOnToWhatTheirStarterWasGiven(t *testing.T) {
	g := NewWithT(t)
	reader, writer, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = reader.Close() }()
	// As a shell hands down a descriptor: without the flag that Go sets.
	inherited, err := syscall.Dup(int(writer.Fd()))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(writer.Close()).To(Succeed())

	keeper := newKeeper(t)
	_, err = keeper.Ensure(t.Context(), process.Spec{Name: "child", Command: []string{sleeper, "60"}})
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(syscall.Close(inherited)).To(Succeed())
	g.Expect(reader.SetReadDeadline(time.Now().Add(5 * time.Second))).To(Succeed())
	_, err = reader.Read(make([]byte, 1))
	g.Expect(err).To(MatchError(io.EOF), "nobody else has the other end open")
}
