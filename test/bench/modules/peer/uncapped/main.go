// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Program uncapped is Gardener's in-tree extension with one change: its client has no limit of requests per second. As it
// is shipped, client-go's default of 5 holds for it, and no flag changes that; so a comparison of times would compare this
// limit and nothing else.
package main

import (
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/gardener/gardener/cmd/gardener-extension-provider-local/app"
	"github.com/gardener/gardener/extensions/pkg/controller/cmd"
	"github.com/gardener/gardener/pkg/logger"
)

func main() {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatJSON))
	cmd.BuildConfigFromFlags = func(master, kubeconfig string) (*rest.Config, error) {
		config, err := clientcmd.BuildConfigFromFlags(master, kubeconfig)
		if err == nil {
			config.QPS = -1
		}
		return config, err
	}
	if err := app.NewControllerManagerCommand(signals.SetupSignalHandler()).Execute(); err != nil {
		os.Exit(1)
	}
}
