// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxNameLength is the longest name of a bucket or an entry in bytes. A file name has at most 255; the difference leaves
// room for what a folder is called while it is being removed.
const MaxNameLength = 200

// ErrBadName is what errors about names wrap: no folder can have the name, and trying again does not help.
var ErrBadName = errors.New("bad name")

// CheckBucketName returns an error that wraps ErrBadName unless name is a DNS-1123 subdomain of at most MaxNameLength
// bytes. Object stores of other providers demand that as well, and it excludes slashes, "..", and hidden folders.
func CheckBucketName(name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("bucket %q: %w", name, err)
	}
	return nil
}

// CheckEntryName returns an error that wraps ErrBadName unless name is the name of a BackupEntry as Gardener forms it
// without the prefix "source-": TECHNICAL_ID--UID, for example shoot--foo--bar--UID or garden--UID. Requiring the UID
// keeps an entry off folders that no BackupEntry owns, such as the one of the virtual garden's etcd.
func CheckEntryName(name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("backup entry %q: %w", name, err)
	}
	if i := strings.LastIndex(name, "--"); i <= 0 || i+len("--") == len(name) {
		return fmt.Errorf("backup entry %q: %w: it must be a technical id, two hyphens, and a uid", name, ErrBadName)
	}
	return nil
}

func checkName(name string) error {
	if len(name) > MaxNameLength {
		return fmt.Errorf("%w: it is %d bytes long, at most %d fit", ErrBadName, len(name), MaxNameLength)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%w: %s", ErrBadName, strings.Join(problems, ", "))
	}
	return nil
}
