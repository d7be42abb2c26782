// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command check asserts, on a machine with a landscape that is up to step dns at least, that its network works: between pods,
// to Services, from the machine to load balancers, for names, and for a machine of a Shoot with its own kubelet. It prints a
// line of JSON per check (Result), and exits 1 if one failed.
//
// test/machines copies it into virtual machines, where one program is quicker than a hundred calls of kubectl. It runs on any
// machine with a landscape, as root:
//
//	check -kubeconfig .landscape/kubeconfig -probe PATH-OF-PROBE
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Result is what a check found.
type Result struct {
	Name string `json:"name"`
	// Detail is what answered.
	Detail string `json:"detail,omitempty"`
	// Error is empty if the check succeeded.
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
	}
	if err != nil || failed {
		os.Exit(1)
	}
}

func run(ctx context.Context) (failed bool, err error) {
	kubeconfig := flag.String("kubeconfig", ".landscape/kubeconfig", "kubeconfig of the runtime cluster")
	network := flag.String("network", "172.18.0.0/16", "the landscape's network, as NETWORK says it")
	program := flag.String("probe", "", "path of the program test/probe/cmd, built without cgo")
	timeout := flag.Duration("timeout", 10*time.Minute, "how long all of it may take")
	flag.Parse()
	prefix, err := netip.ParsePrefix(*network)
	if err != nil {
		return false, fmt.Errorf("reading -network: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return false, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	l := &landscape{config: config, client: clientset, addresses: addressesOf(prefix)}
	defer func() {
		// Interrupted or not: nothing stays in the cluster.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
		defer cancel()
		if cleanErr := l.clean(ctx); err == nil {
			err = cleanErr
		}
	}()
	if err := l.prepare(ctx, *program); err != nil {
		return false, err
	}

	out := json.NewEncoder(os.Stdout)
	// Machines take longest to boot, so that all others are checked meanwhile.
	var wait sync.WaitGroup
	var mutex sync.Mutex
	for _, checks := range [][]check{l.networkChecks(), l.machineChecks()} {
		wait.Go(func() {
			for _, c := range checks {
				result := c.execute(ctx)
				mutex.Lock()
				failed = failed || result.Error != ""
				_ = out.Encode(result)
				mutex.Unlock()
			}
		})
	}
	wait.Wait()
	return failed, nil
}

// check is one assertion.
type check struct {
	name string
	// patience is how long it is repeated until it succeeds.
	patience time.Duration
	// execute returns what answered.
	do func(ctx context.Context) (string, error)
}

func (c check) execute(ctx context.Context) Result {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	result := Result{Name: c.name}
	for {
		detail, err := c.do(ctx)
		result.Seconds = time.Since(begin).Seconds()
		if err == nil {
			result.Detail, result.Error = detail, ""
			return result
		}
		// The attempt that is cut off knows less than the one before it.
		if result.Error == "" || ctx.Err() == nil {
			result.Error = err.Error()
		}
		select {
		case <-ctx.Done():
			return result
		case <-ticker.C:
		}
	}
}
