// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command local-path-helper makes and removes the folder of one volume on a node. local-path-provisioner runs it in a pod
// of its own on that node, as setupCommand and as teardownCommand, so that the image needs no shell.
//
//	local-path-helper -p PATH -s BYTES -m Filesystem -a create|delete
//
// local-path-provisioner (v0.0.30, createHelperPod) mounts the parent of PATH from the node under the same name, and takes
// the pod's success for an answer; anything else it waits for until cmdTimeoutSeconds, and then tries again. It leaves the
// user to the template of the pod, helperPod.yaml: that has to be root, because kubelet makes the parent for root, and
// with two capabilities, because a volume holds what other users made: DAC_OVERRIDE for their folders, FOWNER for what is
// in a folder with the sticky bit. It needs neither more capabilities nor to be privileged. The user of the image, 65532,
// is meant for local-path-provisioner alone.
//
// Environment:
//
//	VOLUMES_ROOT  the folder below which every PATH must be; optional. It guards the node from PersistentVolumes and path
//	              patterns that name some other folder.
//
// It exits with 0 when the folder is as asked, with 1 when that could not be done, with 2 when it was called wrongly.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const (
	exitOK = iota
	exitFailed
	exitUsage
)

func main() {
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run does what the arguments ask for and returns the exit code. What it prints, local-path-provisioner logs.
func run(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	request, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err == nil {
		err = request.checkBelow(getenv("VOLUMES_ROOT"))
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "Error:", err)
		return exitUsage
	}

	if err := request.do(); err != nil {
		_, _ = fmt.Fprintf(stderr, "Error: %s of volume %s: %v\n", request.action, request.path, err)
		return exitFailed
	}
	_, _ = fmt.Fprintf(stdout, "%s of volume %s is done\n", request.action, request.path)
	return exitOK
}
