// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package invoker is the user for whom the landscape is brought up. Kubernetes needs root, but what is built and the kubeconfigs
// belong to whoever typed `sudo make up`, so that everything else works without sudo afterwards.
package invoker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Invoker is a user other than root; the zero value is root itself.
type Invoker struct {
	uid, gid uint32
	groups   []uint32
	name     string
	home     string
}

// Current returns the user who called sudo, as the environment says.
func Current() (Invoker, error) {
	id := os.Getenv("SUDO_UID")
	if os.Geteuid() != 0 || id == "" || id == "0" {
		return Invoker{}, nil
	}
	account, err := user.LookupId(id)
	if err != nil {
		return Invoker{}, fmt.Errorf("looking up the user of SUDO_UID: %w", err)
	}
	ids, err := account.GroupIds()
	if err != nil {
		return Invoker{}, fmt.Errorf("looking up the groups of %s: %w", account.Username, err)
	}
	var numbers []uint32
	for _, text := range append([]string{account.Uid, account.Gid}, ids...) {
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return Invoker{}, fmt.Errorf("looking up the user %s: %w", account.Username, err)
		}
		numbers = append(numbers, uint32(number))
	}
	return Invoker{uid: numbers[0], gid: numbers[1], groups: numbers[2:], name: account.Username, home: account.HomeDir}, nil
}

// UseDockerLogin has registries asked with the credentials that the invoker has given to docker login.
func (i Invoker) UseDockerLogin() error {
	if i.home == "" || os.Getenv("DOCKER_CONFIG") != "" {
		return nil
	}
	return os.Setenv("DOCKER_CONFIG", filepath.Join(i.home, ".docker"))
}

// Run has a command run as the invoker, with the invoker's home and so with their caches.
func (i Invoker) Run(cmd *exec.Cmd) *exec.Cmd {
	if i.uid == 0 {
		return cmd
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "HOME="+i.home, "USER="+i.name, "LOGNAME="+i.name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: i.uid, Gid: i.gid, Groups: i.groups}}
	return cmd
}

// Own gives the invoker what is root's at the paths and below. A path that is not there is no error.
func (i Invoker) Own(paths ...string) error {
	if i.uid == 0 {
		return nil
	}
	var errs []error
	for _, root := range paths {
		errs = append(errs, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return i.OwnOnly(path)
		}))
	}
	return errors.Join(errs...)
}

// OwnOnly gives the invoker what is root's at the paths, and nothing below. A path that is not there is no error.
func (i Invoker) OwnOnly(paths ...string) error {
	if i.uid == 0 {
		return nil
	}
	var errs []error
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 {
			errs = append(errs, os.Lchown(path, int(i.uid), int(i.gid)))
		}
	}
	return errors.Join(errs...)
}

// SearchPath adds the folders of programs that sudo and su leave out of PATH: those of administration, and Go's own.
func SearchPath(path string) string {
	folders := strings.Split(path, ":")
	for _, folder := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"} {
		if !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return strings.Join(folders, ":")
}
