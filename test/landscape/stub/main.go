// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command stub is the stand-in for components that can't be had from the Go module proxy and don't matter for what the
// landscape shows (internal/images/images.yaml names each, with the reason). It pretends nothing: "run" does nothing until it
// is told to stop, "init" ends at once, as an init container or a Job should. It is the pause container of pods as well.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	mode := "run"
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	fmt.Println("this is a stand-in of the local landscape, mode", mode)
	if mode == "init" {
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
