// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build !release

package source

// archive is empty in a program that runs in a clone.
var archive []byte
