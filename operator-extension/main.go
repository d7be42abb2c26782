// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Program operator-extension is the instance of this extension in the garden runtime cluster: it serves the extension
// objects of class garden that gardener-operator makes for a Garden. gardener-operator deploys it by the chart
// charts/provider-local.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gardener/gardener-extension-provider-local/operator-extension/app"
)

func main() {
	if err := app.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "operator-extension:", err)
		os.Exit(1)
	}
}
