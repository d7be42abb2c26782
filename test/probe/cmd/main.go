// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command cmd is the program of package probe, for pods:
//
//	probe serve -name NAME -http :8080 -tls :8443 -udp :5000
//	probe agent -http :8080
//	probe allocate -bytes 1073741824
//	probe write -file PATH -text TEXT
//	probe read -file PATH
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

// commands are what it can do.
const commands = "serve, agent, allocate, write or read"

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
		return errors.New("expected " + commands)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	server := probe.Server{}
	var bytes int
	var file, text string
	switch args[0] {
	case "allocate":
		flags.IntVar(&bytes, "bytes", 0, "memory to take and keep")
	case "write":
		flags.StringVar(&text, "text", "", "what to write")
		fallthrough
	case "read":
		flags.StringVar(&file, "file", "", "file to write or read")
	case "serve":
		flags.StringVar(&server.Name, "name", "", "name that it tells whoever asks")
		flags.StringVar(&server.TLS, "tls", "", "address to serve HTTP over TLS on")
		flags.StringVar(&server.UDP, "udp", "", "address to answer datagrams on")
		fallthrough
	default:
		flags.StringVar(&server.HTTP, "http", "", "address to serve HTTP on")
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
		_, _ = fmt.Println("serving as", server.Name)
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
	case "write":
		return os.WriteFile(file, []byte(text), 0o600)
	case "read":
		content, err := os.ReadFile(file) // #nosec G304 -- what it is told to read
		_, _ = os.Stdout.Write(content)
		return err
	default:
		return fmt.Errorf("%q: expected %s", args[0], commands)
	}
}
