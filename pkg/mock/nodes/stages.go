// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	_ "embed"
	"text/template"

	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/stage"
)

//go:embed stages.yaml
var stagesFile []byte

// loadStages reads the stages that are built in, or those of the options.
func loadStages(file []byte) (*stage.Set, error) {
	if len(file) == 0 {
		file = stagesFile
	}
	return stage.Load(file, template.FuncMap{"since": since, "started": started, "restarts": restarts, "list": list})
}

func list(items ...string) []string { return items }

// elements returns the objects of a list in an object.
func elements(object map[string]any, fields ...string) []map[string]any {
	var value any = object
	for _, field := range fields {
		inner, _ := value.(map[string]any)
		value = inner[field]
	}
	items, _ := value.([]any)
	out := make([]map[string]any, 0, len(items))
	for _, item := range items {
		if element, ok := item.(map[string]any); ok {
			out = append(out, element)
		}
	}
	return out
}

func now(object map[string]any) any {
	facts, _ := object["facts"].(map[string]any)
	return facts["now"]
}

// since returns since when a condition has a status, which is now if it has another one.
func since(object map[string]any, condition, status string) any {
	for _, c := range elements(object, "status", "conditions") {
		if c["type"] == condition && c["status"] == status && c["lastTransitionTime"] != nil {
			return c["lastTransitionTime"]
		}
	}
	return now(object)
}

// containerStatus returns the status of a container, or nil.
func containerStatus(object map[string]any, name string) map[string]any {
	for _, field := range []string{"containerStatuses", "initContainerStatuses"} {
		for _, status := range elements(object, "status", field) {
			if status["name"] == name {
				return status
			}
		}
	}
	return nil
}

// imageChanged reports whether a container has run with another image than it is to run with.
func imageChanged(object map[string]any, status map[string]any) bool {
	for _, field := range []string{"containers", "initContainers"} {
		for _, container := range elements(object, "spec", field) {
			if container["name"] == status["name"] {
				return container["image"] != status["image"]
			}
		}
	}
	return false
}

// started returns when a container started, which is now if it does not run yet, or with another image.
func started(object map[string]any, name string) any {
	if status := containerStatus(object, name); status != nil && !imageChanged(object, status) {
		state, _ := status["state"].(map[string]any)
		for _, field := range []string{"running", "terminated"} {
			if inner, ok := state[field].(map[string]any); ok && inner["startedAt"] != nil {
				return inner["startedAt"]
			}
		}
	}
	return now(object)
}

// restarts returns how often a container was started again: once for each new image.
func restarts(object map[string]any, name string) int64 {
	status := containerStatus(object, name)
	if status == nil {
		return 0
	}
	count, _ := status["restartCount"].(int64)
	if imageChanged(object, status) {
		count++
	}
	return count
}
