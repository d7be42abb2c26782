// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build release

package source

import _ "embed"

//go:embed source.zip
var archive []byte
