// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command cmd is the program of package probe, for pods:
//
//	probe serve -name NAME -http :8080 -tls :8443 -udp :5000
//	probe agent -http :8080
//	probe allocate -bytes 1073741824
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to do
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("expected serve, agent or allocate")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	server := probe.Server{}
	var bytes int
	if args[0] == "allocate" {
		flags.IntVar(&bytes, "bytes", 0, "memory to take and keep")
	} else {
		flags.StringVar(&server.HTTP, "http", "", "address to serve HTTP on")
	}
	if args[0] == "serve" {
		flags.StringVar(&server.Name, "name", "", "name that it tells whoever asks")
		flags.StringVar(&server.TLS, "tls", "", "address to serve HTTP over TLS on")
		flags.StringVar(&server.UDP, "udp", "", "address to answer datagrams on")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}

	switch args[0] {
	case "serve":
		listening, err := server.Listen(ctx)
		if err != nil {
			return err
		}
		return listening.Serve(ctx)
	case "agent":
		agent := &http.Server{Addr: server.HTTP, Handler: probe.Agent(), ReadHeaderTimeout: 10 * time.Second}
		defer context.AfterFunc(ctx, func() { _ = agent.Close() })()
		if err := agent.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	case "allocate":
		probe.Allocate(ctx, bytes)
		return nil
	default:
		return fmt.Errorf("%q: expected serve, agent or allocate", args[0])
	}
}
