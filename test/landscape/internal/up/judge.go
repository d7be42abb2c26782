// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
)

// judge reads last operation and conditions, in the shape that all of Gardener's kinds share, of an object that reports them.
func judge(o *unstructured.Unstructured) (mark, string) {
	operation, described := text(o, "lastOperation", "state"), operationOf(o)
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	observed, hasObserved, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	verdict, wrong := judgeConditions(conditions, o.GetKind() == "Etcd")
	detail := strings.TrimPrefix(described+"; "+strings.Join(wrong, ", "), "; ")
	switch {
	case operation == "Error" || operation == "Failed" || operation == "Aborted":
		return bad, detail
	case operation == "Processing" || operation == "Pending":
		return busy, detail
	case o.GetDeletionTimestamp() != nil:
		return busy, "is being deleted; " + detail
	case operation == "" && len(conditions) == 0:
		return busy, "nothing is reported yet"
	case hasObserved && observed < o.GetGeneration():
		return busy, "the newest generation isn't seen yet; " + detail
	}
	return verdict, detail
}

// text reads a string of the status.
func text(o *unstructured.Unstructured, fields ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, append([]string{"status"}, fields...)...)
	return value
}

// operationOf is the last operation with what went wrong in it.
func operationOf(o *unstructured.Unstructured) string {
	state := text(o, "lastOperation", "state")
	if state == "" {
		return ""
	}
	described := text(o, "lastOperation", "type") + " " + state
	if state == "Succeeded" {
		return described
	}
	if progress, found, _ := unstructured.NestedInt64(o.Object, "status", "lastOperation", "progress"); found {
		described += fmt.Sprintf(" %d%%", progress)
	}
	why := text(o, "lastError", "description")
	if all, _, _ := unstructured.NestedSlice(o.Object, "status", "lastErrors"); len(all) > 0 {
		last, _ := all[0].(map[string]any)
		why = fmt.Sprint(last["description"])
	}
	if why == "" {
		why = text(o, "lastOperation", "description")
	}
	return strings.TrimSuffix(described+": "+why, ": ")
}

// judgeConditions names the conditions that are not as they should be, or how many there are. fresh is for kinds whose
// conditions are Unknown for minutes after their creation.
func judgeConditions(conditions []any, fresh bool) (mark, []string) {
	verdict, count := good, 0
	var wrong []string
	for _, condition := range conditions {
		c, _ := condition.(map[string]any)
		kind, status := fmt.Sprint(c["type"]), fmt.Sprint(c["status"])
		want, otherwise := "True", bad
		switch kind {
		case "Required", "RequiredRuntime", "RequiredVirtual":
			continue // either is fine
		case "Progressing", "ResourcesProgressing":
			want, otherwise = "False", busy
		case "ClusterIDMismatch", "EmergencyStopShootReconciliations":
			want = "False"
		}
		count++
		if status == want {
			continue
		}
		if status == "Progressing" || (fresh && status == "Unknown") {
			otherwise = busy
		}
		if verdict != bad {
			verdict = otherwise
		}
		wrong = append(wrong, fmt.Sprintf("%s is %s: %v", kind, status, c["message"]))
	}
	if len(wrong) == 0 && count > 0 {
		wrong = []string{fmt.Sprintf("%d conditions as they should be", count)}
	}
	return verdict, wrong
}

// activity is what is on its way: what belongs to it may be unhealthy for a while.
type activity struct {
	// landscape says that the Garden or a Seed is on its way.
	landscape bool
	// shoots says it of the shoots, by the name of their namespace in the seed. It includes hibernated ones, which have no nodes.
	shoots map[string]bool
}

// of reports whether what has that namespace, or that name without a namespace, belongs to something on its way.
func (a activity) of(namespace, name string) bool {
	for shoot, active := range a.shoots {
		if namespace == shoot || (namespace == "" && strings.HasPrefix(name, shoot+"--")) {
			return active
		}
	}
	return a.landscape
}

// mark is the one for what isn't healthy.
func (a activity) mark(namespace, name string) mark {
	if a.of(namespace, name) {
		return busy
	}
	return bad
}

// markExtension is the one for an extension object. One that nobody works on for somebody is as bad as a failed one.
func (a activity) markExtension(o cluster.ExtensionObject) mark {
	switch {
	case o.Succeeded():
		return good
	case slices.Contains([]string{"Error", "Failed", "Aborted"}, o.State):
		return bad
	}
	return a.mark(o.Namespace, o.Name)
}
