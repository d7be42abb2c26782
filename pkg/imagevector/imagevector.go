// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package imagevector puts the images of an image vector in place of those in the configuration of an instance, as
// Gardener's components do with theirs: the environment variable IMAGEVECTOR_OVERWRITE names a file, which the chart writes
// of its value imageVectorOverwrite. It is what landscapes with a registry of their own have, one file for all components.
// The programs' command applies it before anything else looks at the configuration.
package imagevector

import (
	"fmt"
	"maps"
	"runtime"

	"github.com/gardener/gardener/pkg/utils/imagevector"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// Apply puts the images of the file that IMAGEVECTOR_OVERWRITE names in place of those in the configuration. Images that
// the file does not name stay; images of others in it are left alone. Without the variable it does nothing. An error is one
// of the file, which says what is wrong.
func Apply(config *configv1alpha1.ExtensionConfiguration) error {
	images := map[string]*string{
		"coredns":                &config.DNS.CoreDNS.Image,
		"local-path-provisioner": &config.ControlPlane.LocalPathProvisioner.Image,
		"cloud-controller":       &config.ControlPlane.CloudController.Image,
		"machine-controller":     &config.Machines.ControllerImage,
	}
	// What this instance does not deploy needs no image.
	maps.DeleteFunc(images, func(_ string, ref *string) bool { return *ref == "" })
	var vector imagevector.ImageVector
	for name, ref := range images {
		vector = append(vector, &imagevector.ImageSource{Name: name, Ref: ref})
	}
	vector, _, err := imagevector.WithEnvOverride(vector, nil, imagevector.OverrideEnv)
	if err != nil {
		return fmt.Errorf("reading the images of $%s: %w", imagevector.OverrideEnv, err)
	}
	for name, ref := range images {
		image, err := vector.FindImage(name, imagevector.Architecture(runtime.GOARCH))
		if err != nil {
			return fmt.Errorf("finding image %s: %w", name, err)
		}
		if image.Ref == nil && image.Tag == nil {
			return fmt.Errorf("image %s of $%s has no tag", name, imagevector.OverrideEnv)
		}
		*ref = image.String()
	}
	return nil
}
