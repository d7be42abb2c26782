// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/measure"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

// Program is what is measured.
type Program string

const (
	// Ours is this extension.
	Ours Program = "ours"
	// Peer is Gardener's in-tree extension as it is shipped.
	Peer Program = "peer"
	// Kwok is sigs.k8s.io/kwok, which makes Nodes ready that others have made.
	Kwok Program = "kwok"
	// PeerUncapped is the same without its limit of requests per second.
	PeerUncapped Program = "peer_uncapped"
)

// Place is where an instance runs, which tells the classes of the objects that it serves.
type Place string

const (
	// Garden is the garden runtime cluster: class garden.
	Garden Place = "garden"
	// Seed is a seed: classes seed and shoot.
	Seed Place = "seed"
)

const (
	// startTimeout is more than the 15 seconds for which a lease may be held that nobody released.
	startTimeout = time.Minute
	stopTimeout  = 40 * time.Second
	heartbeat    = "gardener-extension-heartbeat"
)

// StartOptions are how an instance is run.
type StartOptions struct {
	Program Program
	Place   Place
	// DNSProvider is "coredns" or "rfc2136"; it counts for Ours, as the peer has one only. Empty means no DNSRecords.
	DNSProvider string
	// HealthChecks lets the health check controllers run, which ask the API servers of shoots: see PrepareHealth.
	HealthChecks bool
	// Mock switches on the mock provider of Ours.
	Mock bool
	// KeepLease leaves a Lease that is there from before, as a restart finds it.
	KeepLease bool
}

// Process is an instance that runs and leads.
type Process struct {
	// User is as whom it sends its requests.
	User string
	// Leads is how long after its start it began to.
	Leads time.Duration
	// Sampler has its memory.
	Sampler *measure.Sampler

	pid    int
	cmd    *exec.Cmd
	done   chan struct{}
	logs   *os.File
	binary string
}

// launch is the command line of a process.
type launch struct {
	binary string
	args   []string
	env    []string
	health int
	// ready is the path that reports whether it is ready, /readyz if empty.
	ready string
	// hosts is a file to have for /etc/hosts, empty for none of its own.
	hosts string
}

func namespaceOf(program Program, place Place) string {
	return fmt.Sprintf("bench-%s-%s", map[Program]string{Ours: "ours", Peer: "capped", PeerUncapped: "peer", Kwok: "kwok"}[program], place)
}

func account(program Program, place Place) string {
	if program == Ours {
		return map[Place]string{Garden: "gardener-extension-provider-local-garden", Seed: "gardener-extension-provider-local-seed"}[place]
	}
	return "peer"
}

// UserOf returns as whom an instance sends its requests.
func UserOf(program Program, place Place) string {
	return "system:serviceaccount:" + namespaceOf(program, place) + ":" + account(program, place)
}

func users() []string {
	var out []string
	for _, program := range []Program{Ours, Peer, PeerUncapped, Kwok} {
		for _, place := range []Place{Garden, Seed} {
			out = append(out, UserOf(program, place))
		}
	}
	return append(out, ShootUser)
}

// Kubeconfig returns the access of a program.
func (w *World) Kubeconfig(program Program, place Place) ([]byte, error) {
	path, err := w.kubeconfig(program, place)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func (w *World) kubeconfig(program Program, place Place) (string, error) {
	namespace := namespaceOf(program, place)
	dir, err := w.folder(namespace)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, account(program, place)+".kubeconfig")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return w.env.ServiceAccountKubeconfig(dir, namespace, account(program, place))
}

// Start starts an instance with a fresh copy of its program, and returns when it leads and has come to rest.
func (w *World) Start(ctx context.Context, opts StartOptions) (_ *Process, err error) {
	namespace := namespaceOf(opts.Program, opts.Place)
	if err := w.access(ctx, opts, namespace); err != nil {
		return nil, err
	}
	var l *launch
	switch opts.Program {
	case Ours:
		l, err = w.launchOurs(ctx, opts, namespace)
	case Kwok:
		l, err = w.launchKwok(ctx, opts)
	default:
		l, err = w.launchPeer(ctx, opts, namespace)
	}
	if err != nil {
		return nil, err
	}
	var before time.Time
	if lease, err := w.leaderLease(ctx, namespace); err != nil {
		return nil, err
	} else if lease != nil && opts.KeepLease && lease.Spec.AcquireTime != nil {
		before = lease.Spec.AcquireTime.Time
	}

	w.running++
	p := &Process{User: UserOf(opts.Program, opts.Place), done: make(chan struct{}), binary: filepath.Join(w.dir, fmt.Sprintf("%d-%s", w.running, filepath.Base(l.binary)))}
	if err := copyFile(l.binary, p.binary); err != nil {
		return nil, err
	}
	if p.logs, err = os.Create(filepath.Join(w.dir, fmt.Sprintf("%d-%s-%s.log", w.running, opts.Program, opts.Place))); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := p.start(l); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	w.stop = append(w.stop, p.kill)
	if opts.Program != Kwok {
		p.Leads, err = w.awaitLeader(ctx, p, namespace, begin, before)
	}
	if err == nil {
		err = p.awaitReady(ctx, l)
	}
	if err == nil {
		err = w.Settle(ctx, p.User, time.Second)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s (%s), see %s: %w\n%s", opts.Program, opts.Place, p.logs.Name(), err, p.lastLogs()), p.kill())
	}
	return p, nil
}

// access creates the namespace and the account of an instance.
func (w *World) access(ctx context.Context, opts StartOptions, namespace string) error {
	if err := w.env.CreateNamespaces(ctx, namespace); err != nil {
		return err
	}
	if !opts.KeepLease {
		if err := w.Client.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(namespace)); err != nil {
			return err
		}
	}
	// What the instance before has registered is not served any more.
	if err := w.Client.DeleteAllOf(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{}); err != nil {
		return err
	}
	// All have the same permissions, so that the API server takes the same time to find out.
	return client.IgnoreAlreadyExists(w.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account(opts.Program, opts.Place)}},
	}))
}

func (p *Process) start(l *launch) error {
	if l.hosts == "" {
		p.cmd = exec.Command(p.binary, l.args...)
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	} else {
		// In a mount namespace of its own, the peer finds its name server, whose name it does not let anybody set.
		p.cmd = exec.Command("/bin/sh", append([]string{"-c", `mount --bind "$0" /etc/hosts && exec "$@"`, l.hosts, p.binary}, l.args...)...)
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	}
	p.cmd.Env = append(os.Environ(), l.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.logs, p.logs
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.pid = p.cmd.Process.Pid
	p.Sampler = measure.Sample(p.pid)
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return nil
}

func (w *World) leaderLease(ctx context.Context, namespace string) (*coordinationv1.Lease, error) {
	leases := &coordinationv1.LeaseList{}
	if err := w.Client.List(ctx, leases, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for _, lease := range leases.Items {
		if lease.Name != heartbeat {
			return &lease, nil
		}
	}
	return nil, nil
}

// awaitLeader waits until a lease was acquired after before, and returns how long that took since begin.
func (w *World) awaitLeader(ctx context.Context, p *Process, namespace string, begin, before time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		lease, err := w.leaderLease(ctx, namespace)
		if err != nil {
			return 0, err
		}
		if lease != nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && lease.Spec.AcquireTime != nil && lease.Spec.AcquireTime.After(before) {
			return time.Since(begin), nil
		}
		if err := p.pause(ctx, 20*time.Millisecond); err != nil {
			return 0, fmt.Errorf("waiting for it to lead: %w", err)
		}
	}
}

func (p *Process) awaitReady(ctx context.Context, l *launch) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+strconv.Itoa(l.health)+cmp.Or(l.ready, "/readyz"), nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := p.pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for it to be ready: %w", err)
		}
	}
}

func (p *Process) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.done:
		return errors.New("it has ended")
	case <-time.After(d):
		return nil
	}
}

// CPU is the time that it has been running on CPUs so far.
func (p *Process) CPU() (time.Duration, error) { return measure.CPU(p.pid) }

// Memory is what it has now.
func (p *Process) Memory() (measure.Memory, error) { return measure.MemoryOf(p.pid) }

// Stop ends the process as a kubelet does, and waits until it has ended.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
	}
	return p.kill()
}

// kill ends the process if it has not ended yet, and removes its program.
func (p *Process) kill() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	p.Sampler.Stop()
	return p.remove()
}

func (p *Process) remove() error {
	err := os.Remove(p.binary)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if closed := p.logs.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// lastLogs are for messages.
func (p *Process) lastLogs() string {
	data, err := os.ReadFile(p.logs.Name())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-3000):])
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// ports returns free ports.
func ports(n int) ([]int, error) {
	out := make([]int, n)
	for i := range out {
		var err error
		if out[i], err = environment.FreePort(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// localService is the Service before an instance's webhooks, which leads to the loopback.
func localService(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
}
