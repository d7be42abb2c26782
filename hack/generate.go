// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build generate

// Package hack holds what `make generate` runs.
package hack

//go:generate go tool deepcopy-gen --go-header-file boilerplate.go.txt --output-file zz_generated.deepcopy.go ../pkg/apis/config/v1alpha1
//go:generate go tool deepcopy-gen --go-header-file boilerplate.go.txt --output-file zz_generated.deepcopy.go ../pkg/apis/local/v1alpha1
//go:generate go run ../skaffold/publish examples
//go:generate go run ./permissions
//go:generate crd-ref-docs --log-level=ERROR --config=api-reference/config.yaml --templates-dir=api-reference/templates --renderer=markdown --source-path=../pkg/apis/config/v1alpha1 --output-path=../docs/reference/config.md
//go:generate crd-ref-docs --log-level=ERROR --config=api-reference/config.yaml --templates-dir=api-reference/templates --renderer=markdown --source-path=../pkg/apis/local/v1alpha1 --output-path=../docs/reference/local.md
