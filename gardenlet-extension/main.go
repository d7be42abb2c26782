// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Program gardenlet-extension is the instance of this extension in a seed: it serves the extension objects of the classes
// seed and shoot, and the webhooks of the seed and its shoots. gardenlet deploys it by the chart charts/provider-local.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gardener/gardener-extension-provider-local/gardenlet-extension/app"
)

func main() {
	if err := app.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "gardenlet-extension:", err)
		os.Exit(1)
	}
}
