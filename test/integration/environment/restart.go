// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Restartable keeps what etcd has, and the certificates of the API server, while both are stopped, for Restart.
func Restartable() Option {
	return func(o *options) { o.restartable = true }
}

// makeRestartable gives etcd and the API server folders that outlive them.
func (e *Environment) makeRestartable() error {
	apiServer := e.envs.ControlPlane.GetAPIServer()
	// It waits that long for connections that are open when it stops, instead of a minute.
	apiServer.Configure().Set("request-timeout", "15s")
	apiServer.CertDir = filepath.Join(e.dir, "certificates")
	if err := os.MkdirAll(apiServer.CertDir, 0o700); err != nil {
		return err
	}
	e.envs.ControlPlane.Etcd = &envtest.Etcd{DataDir: filepath.Join(e.dir, "etcd")}
	return os.MkdirAll(e.envs.ControlPlane.Etcd.DataDir, 0o700)
}

// Restart stops the API server and etcd, calls meanwhile with etcd's folder, and starts both again, under the same addresses.
// It needs Restartable.
func (e *Environment) Restart(meanwhile func(folder string) error) error {
	apiServer, etcd := e.envs.ControlPlane.GetAPIServer(), e.envs.ControlPlane.Etcd
	if err := errors.Join(apiServer.Stop(), etcd.Stop()); err != nil {
		return err
	}
	if err := meanwhile(etcd.DataDir); err != nil {
		return err
	}
	if err := etcd.Start(); err != nil {
		return err
	}
	return apiServer.Start()
}
