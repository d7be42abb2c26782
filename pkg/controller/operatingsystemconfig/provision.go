// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

//go:embed templates/provision.sh.tpl
var provisionTemplate string

var provision = template.Must(template.New("provision.sh").Funcs(template.FuncMap{"quote": quote}).Option("missingkey=error").Parse(provisionTemplate))

const defaultMode = 0o644

// places are the folders and files of a machine that the script uses on its own account.
type places struct {
	// Units is where systemd looks for units of the administrator.
	Units string
	// Applied is a file that is there once the script has succeeded. Gardener's tests know it by this name.
	Applied string
}

var defaultPlaces = places{Units: "/etc/systemd/system", Applied: "/var/lib/osc/provision-osc-applied"}

// writtenFile is a file for the template. All strings are still to be quoted.
type writtenFile struct {
	Path, Host, Mode, Encoding, Content string
}

// activatedUnit is a unit for the template: what systemctl does with it. One that is Off need not be there.
type activatedUnit struct {
	Name, Enable, Command string
	Off                   bool
}

// readContents returns the contents of files, in their order. A Secret that is missing is a configuration problem.
func readContents(ctx context.Context, reader client.Reader, namespace string, files []extensionsv1alpha1.File) ([][]byte, error) {
	secrets := map[string]*corev1.Secret{}
	contents := make([][]byte, 0, len(files))
	for i, file := range files {
		at := field.NewPath("spec", "files").Index(i).Child("content")
		content, err := readContent(ctx, reader, namespace, &file.Content, at, secrets)
		if err != nil {
			return nil, err
		}
		if ptr.Deref(file.Content.TransmitUnencoded, false) && bytes.IndexByte(content, 0) >= 0 {
			err := field.Forbidden(at.Child("transmitUnencoded"), "the content has a zero byte, which no script can have")
			return nil, reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
		}
		contents = append(contents, content)
	}
	return contents, nil
}

func readContent(ctx context.Context, reader client.Reader, namespace string, content *extensionsv1alpha1.FileContent, at *field.Path, secrets map[string]*corev1.Secret) ([]byte, error) {
	if inline := content.Inline; inline != nil {
		decoded, err := extensionsv1alpha1helper.Decode(inline.Encoding, []byte(inline.Data))
		if err != nil {
			// The error of the decoder may repeat a part of the content.
			return nil, reconciler.ConfigurationProblem(fmt.Errorf("%s: the data is not in the encoding %q", at, inline.Encoding), reconciler.RetryMistake)
		}
		return decoded, nil
	}

	ref := content.SecretRef
	secret, found := secrets[ref.Name]
	if !found {
		secret = &corev1.Secret{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, secret)
		if apierrors.IsNotFound(err) {
			return nil, reconciler.ConfigurationProblem(fmt.Errorf("%s: the Secret %s/%s does not exist: create it", at, namespace, ref.Name), reconciler.RetryMissing)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: reading the Secret %s/%s: %w", at, namespace, ref.Name, err)
		}
		secrets[ref.Name] = secret
	}
	value, found := secret.Data[ref.DataKey]
	if !found {
		return nil, reconciler.ConfigurationProblem(fmt.Errorf("%s: the Secret %s/%s has no key %s: add it", at, namespace, ref.Name, ref.DataKey), reconciler.RetryMissing)
	}
	return value, nil
}

// render makes the script of files, whose contents are given in the same order, and units.
func render(places places, files []extensionsv1alpha1.File, contents [][]byte, units []extensionsv1alpha1.Unit) []byte {
	var written []writtenFile
	for i, file := range files {
		written = append(written, writeFile(file.Path, ptr.Deref(file.Permissions, defaultMode), contents[i], ptr.Deref(file.Content.TransmitUnencoded, false)))
		written[i].Host = ptr.Deref(file.HostName, "")
	}
	for _, unit := range units {
		target := path.Join(places.Units, unit.Name)
		if unit.Content != nil {
			written = append(written, writeFile(target, defaultMode, []byte(*unit.Content), false))
		}
		for _, dropIn := range unit.DropIns {
			written = append(written, writeFile(path.Join(target+".d", dropIn.Name), defaultMode, []byte(dropIn.Content), false))
		}
	}

	var out bytes.Buffer
	_ = provision.Execute(&out, map[string]any{"Places": places, "Files": written, "Units": activated(units)}) // It can't fail.
	return out.Bytes()
}

// writeFile has a file in base64, but in the clear if it is asked for: machine-controller-manager puts the bootstrap token
// and the machine's name in the place of words that it looks for in the user data.
func writeFile(path string, mode uint32, content []byte, clear bool) writtenFile {
	file := writtenFile{Path: path, Mode: fmt.Sprintf("%04o", mode), Encoding: "base64", Content: base64.StdEncoding.EncodeToString(content)}
	if clear {
		file.Encoding, file.Content = "text", string(content)
	}
	return file
}

// activated says what happens to units, as gardener-node-agent does it: a unit is enabled and started unless it is said
// to be otherwise.
func activated(units []extensionsv1alpha1.Unit) []activatedUnit {
	out := make([]activatedUnit, 0, len(units))
	for _, unit := range units {
		one := activatedUnit{Name: unit.Name, Enable: "enable", Command: "restart"}
		if !ptr.Deref(unit.Enable, true) {
			one.Enable, one.Command, one.Off = "disable", "stop", true
		}
		if ptr.Deref(unit.Command, "") == extensionsv1alpha1.CommandStop {
			one.Command = "stop"
		}
		out = append(out, one)
	}
	return out
}

// quote makes one word of the shell of a string, whatever is in it but zero bytes.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

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
