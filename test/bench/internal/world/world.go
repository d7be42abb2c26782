// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package world is what the programs are measured in: an etcd and a kube-apiserver with Gardener's CRDs and an audit log,
// the programs as processes, the name servers that they write to, and stand-ins for gardener-resource-manager and
// machine-controller-manager that answer at once, so that the bench measures nobody else.
package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/measure"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

const (
	// GardenNamespace is where the objects of class garden are.
	GardenNamespace = "garden"
	// BackupSecret is the Secret with the credentials of buckets.
	BackupSecret = "backup"

	auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
`
	ipPools = "crd.projectcalico.org"
)

// Options are what a World is made of.
type Options struct {
	// Programs is the folder with the programs that are measured: operator-extension, gardenlet-extension, peer,
	// peer-uncapped.
	Programs string
	// Keep leaves the folder with logs and configuration behind, and says where it is.
	Keep bool
	// Say takes progress.
	Say func(format string, args ...any)
}

// World is one API server and what is around it.
type World struct {
	Options

	// Client is the administrator's. It does not cache, and has no limit.
	Client client.WithWatch
	// Log is the audit log.
	Log *measure.AuditLog
	// Config is the administrator's access.
	Config *rest.Config

	env     *environment.Environment
	dir     string
	stop    []func() error
	bind    *Bind
	running int

	coreDNSAddress string
}

// New starts etcd and kube-apiserver. Close it after use.
func New(ctx context.Context, opts Options) (_ *World, err error) {
	w := &World{Options: opts}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetesscheme.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme, machinev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	policy, log := filepath.Join(w.dir, "audit-policy.yaml"), filepath.Join(w.dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	w.env, err = environment.Start(scheme, environment.OffLoopback(),
		environment.WithAPIServerFlag("audit-policy-file", policy),
		environment.WithAPIServerFlag("audit-log-path", log),
		environment.WithAPIServerFlag("audit-log-mode", "blocking"),
		environment.WithAPIServerFlag("audit-log-maxsize", "16384"),
	)
	if err != nil {
		return nil, err
	}
	w.stop = append(w.stop, w.env.Stop)

	w.Config = rest.CopyConfig(w.env.Config)
	w.Config.QPS = -1
	if w.Client, err = client.NewWithWatch(w.Config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if w.Log, err = measure.OpenAuditLog(log, users()...); err != nil {
		return nil, err
	}
	w.stop = append(w.stop, w.Log.Close)
	return w, w.prepare(ctx)
}

// prepare creates what all programs need to find.
func (w *World) prepare(ctx context.Context) error {
	if _, err := envtest.InstallCRDs(w.Config, envtest.CRDInstallOptions{CRDs: otherCRDs()}); err != nil {
		return fmt.Errorf("installing the CRDs of %s: %w", ipPools, err)
	}
	// The in-tree extension does not start without this kind.
	if err := w.env.InstallSeedCRDs("10-crd-monitoring.coreos.com_prometheuses.yaml"); err != nil {
		return err
	}
	if err := w.env.CreateNamespaces(ctx, GardenNamespace); err != nil {
		return err
	}
	if err := w.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: GardenNamespace, Name: BackupSecret}}); err != nil {
		return err
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	helpers := []func(context.Context) error{
		func(ctx context.Context) error { return answerManagedResources(ctx, w.Client) },
		func(ctx context.Context) error { return answerNamespaces(ctx, w.Client) },
		func(ctx context.Context) error { return answerMachineDeployments(ctx, w.Client) },
	}
	done := make(chan error, len(helpers))
	for _, helper := range helpers {
		go func() { done <- helper(background) }()
	}
	w.stop = append(w.stop, func() error {
		cancel()
		for range helpers {
			if err := <-done; err != nil && background.Err() == nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// Close ends all that runs, the last first.
func (w *World) Close() error {
	var errs []error
	for i := len(w.stop) - 1; i >= 0; i-- {
		errs = append(errs, w.stop[i]())
	}
	w.stop = nil
	if w.dir == "" {
		return errors.Join(errs...)
	}
	if w.Keep {
		w.Say("logs and configuration are in %s", w.dir)
	} else {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

// folder makes a folder of a name.
func (w *World) folder(name string) (string, error) {
	dir := filepath.Join(w.dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// Settle waits until a program has sent nothing for a while, at most for a minute and a half.
func (w *World) Settle(ctx context.Context, user string, quiet time.Duration) error {
	begin := time.Now()
	for {
		last, err := w.Log.Last(user)
		if err != nil {
			return err
		}
		if time.Since(last) > quiet && time.Since(begin) > quiet {
			return nil
		}
		if time.Since(begin) > 90*time.Second {
			w.Say("%s does not come to rest", user)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
