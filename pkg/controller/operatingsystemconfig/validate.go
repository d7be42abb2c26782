// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

const (
	maxVersion = 64
	// maxName and maxPath are limits of Linux, less what a file is called while it is being written.
	maxName = 250
	maxPath = 4000
	maxMode = 0o7777
)

var (
	// versionPattern is that of the program os-version in the machine image.
	versionPattern = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*([-+][0-9A-Za-z.+-]+)?$`)
	pathPattern    = regexp.MustCompile(`^/[A-Za-z0-9/._@:+,=%~-]+$`)
	// unitPattern has the characters and the types of systemd.unit(5).
	unitPattern   = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$`)
	dropInPattern = regexp.MustCompile(`^[A-Za-z0-9_.@-]+\.conf$`)
)

// validate returns what can't become user data. Contents are not repeated, as they may be secret.
func validate(spec *extensionsv1alpha1.OperatingSystemConfigSpec) field.ErrorList {
	var errs field.ErrorList
	for i := range spec.Files {
		errs = append(errs, validateFile(&spec.Files[i], field.NewPath("spec", "files").Index(i))...)
	}
	for i := range spec.Units {
		errs = append(errs, validateUnit(&spec.Units[i], field.NewPath("spec", "units").Index(i))...)
	}
	return errs
}

func validateFile(file *extensionsv1alpha1.File, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !pathPattern.MatchString(file.Path) || path.Clean(file.Path) != file.Path || len(file.Path) > maxPath || len(path.Base(file.Path)) > maxName {
		errs = append(errs, field.Invalid(at.Child("path"), file.Path, "use an absolute path without . and .., of letters, digits and ._@:+,=%~-"))
	}
	if file.Permissions != nil && *file.Permissions > maxMode {
		errs = append(errs, field.Invalid(at.Child("permissions"), *file.Permissions, "use at most 07777"))
	}
	if file.HostName != nil && len(validation.IsDNS1123Subdomain(*file.HostName)) > 0 {
		errs = append(errs, field.Invalid(at.Child("hostName"), *file.HostName, "use the name of a host"))
	}
	content, at := file.Content, at.Child("content")
	switch {
	case content.ImageRef != nil:
		errs = append(errs, field.Forbidden(at.Child("imageRef"), "user data can hold no files of images"))
	case content.Inline == nil && content.SecretRef == nil:
		errs = append(errs, field.Required(at, "give either inline or secretRef"))
	case content.Inline == nil && (content.SecretRef.Name == "" || content.SecretRef.DataKey == ""):
		errs = append(errs, field.Required(at.Child("secretRef"), "give both name and dataKey"))
	}
	return errs
}

func validateUnit(unit *extensionsv1alpha1.Unit, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !unitPattern.MatchString(unit.Name) || strings.HasPrefix(unit.Name, "-") || len(unit.Name) > maxName {
		errs = append(errs, field.Invalid(at.Child("name"), unit.Name, `use the name of a systemd unit with its type, such as a.service, of letters, digits and :_.\@-`))
	}
	known := []extensionsv1alpha1.UnitCommand{extensionsv1alpha1.CommandStart, extensionsv1alpha1.CommandRestart, extensionsv1alpha1.CommandStop}
	if unit.Command != nil && !slices.Contains(known, *unit.Command) {
		errs = append(errs, field.NotSupported(at.Child("command"), *unit.Command, known))
	}
	for i, dropIn := range unit.DropIns {
		if !dropInPattern.MatchString(dropIn.Name) || len(dropIn.Name) > maxName {
			errs = append(errs, field.Invalid(at.Child("dropIns").Index(i).Child("name"), dropIn.Name, "use a name that ends in .conf, of letters, digits and _.@-"))
		}
	}
	return errs
}
