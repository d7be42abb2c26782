// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// maxEvents is how many of the newest warnings of a namespace are written down.
const maxEvents = 15

// Before anything is cleaned up, what is not as it should be is written down.
var _ = JustAfterEach(func(ctx SpecContext) {
	if !CurrentSpecReport().Failed() || g == nil {
		return
	}
	said := state(ctx)
	name := artefact(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(CurrentSpecReport().FullText(), "-") + ".txt")
	if err := os.WriteFile(name, []byte(said), 0o600); err != nil {
		said += err.Error()
	}
	AddReportEntry("state, also in "+name, said, ReportEntryVisibilityFailureOrVerbose)
})

// state says of each Shoot with a problem what it is, and what is not ready of it in the seed.
func state(ctx context.Context) string {
	var out strings.Builder
	shoots := &gardencorev1beta1.ShootList{}
	if err := g.Client.List(ctx, shoots); err != nil {
		return "listing Shoots: " + err.Error()
	}
	for _, shoot := range shoots.Items {
		problem := landscape.Problem(&shoot)
		_, _ = fmt.Fprintf(&out, "Shoot %s: %s\n", client.ObjectKeyFromObject(&shoot), problem)
		if problem == "" {
			continue
		}
		for _, constraint := range shoot.Status.Constraints {
			_, _ = fmt.Fprintf(&out, "  constraint %s %s: %s\n", constraint.Type, constraint.Status, constraint.Message)
		}
		if shoot.Status.TechnicalID != "" {
			stateInSeed(ctx, &out, shoot.Status.TechnicalID)
		}
	}
	stateInSeed(ctx, &out, gardenNamespace)
	return out.String()
}

// stateInSeed says what is not ready in a namespace of the seed.
func stateInSeed(ctx context.Context, out *strings.Builder, namespace string) {
	_, _ = fmt.Fprintf(out, "namespace %s\n", namespace)
	each := func(list client.ObjectList, say func(client.Object) string) {
		if err := l.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			_, _ = fmt.Fprintf(out, "  listing %T: %v\n", list, err)
			return
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			obj := item.(client.Object)
			if said := say(obj); said != "" {
				_, _ = fmt.Fprintf(out, "  %T %s: %s\n", obj, obj.GetName(), said)
			}
			return nil
		})
	}
	for _, list := range extensionLists() {
		each(list, extensionState)
	}
	each(&resourcesv1alpha1.ManagedResourceList{}, func(obj client.Object) string {
		conditions := obj.(*resourcesv1alpha1.ManagedResource).Status.Conditions
		return landscape.ConditionsProblem(slices.DeleteFunc(slices.Clone(conditions), func(condition gardencorev1beta1.Condition) bool {
			return condition.Type == resourcesv1alpha1.ResourcesProgressing
		}))
	})
	each(&corev1.PodList{}, func(obj client.Object) string { return podState(obj.(*corev1.Pod)) })
	warnings(ctx, out, namespace)
}

// extensionState says why an object of an extension does not count as ready.
func extensionState(obj client.Object) string {
	object := obj.(extensionsv1alpha1.Object)
	ready, err := matchers.HaveSucceeded().Match(object)
	if ready && err == nil {
		return ""
	}
	status := object.GetExtensionStatus()
	said := describe(status.GetLastOperation())
	if lastError := status.GetLastError(); lastError != nil {
		said += " error: " + lastError.Description
	}
	return said + fmt.Sprintf(" (generation %d, observed %d, annotations %v)", obj.GetGeneration(), status.GetObservedGeneration(), obj.GetAnnotations())
}

// podState says why a pod is not ready. Those that are through are not meant to be.
func podState(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodSucceeded {
		return ""
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return ""
		}
	}
	said := []string{string(pod.Status.Phase), pod.Status.Message}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case status.Ready:
		case status.State.Waiting != nil:
			said = append(said, status.Name+" waits: "+status.State.Waiting.Reason+" "+status.State.Waiting.Message)
		case status.State.Terminated != nil && status.State.Terminated.ExitCode != 0:
			said = append(said, fmt.Sprintf("%s ended with %d: %s", status.Name, status.State.Terminated.ExitCode, status.State.Terminated.Message))
		case status.State.Running != nil:
			said = append(said, fmt.Sprintf("%s runs, restarted %d times", status.Name, status.RestartCount))
		}
	}
	return strings.Join(said, " ")
}

// warnings are the newest Events that are not normal.
func warnings(ctx context.Context, out *strings.Builder, namespace string) {
	events := &corev1.EventList{}
	if err := l.Client.List(ctx, events, client.InNamespace(namespace)); err != nil {
		_, _ = fmt.Fprintf(out, "  listing Events: %v\n", err)
		return
	}
	items := slices.DeleteFunc(events.Items, func(event corev1.Event) bool { return event.Type == corev1.EventTypeNormal })
	slices.SortFunc(items, func(a, b corev1.Event) int { return seen(a).Compare(seen(b)) })
	for _, event := range items[max(0, len(items)-maxEvents):] {
		_, _ = fmt.Fprintf(out, "  %s %s %s/%s: %s: %s\n", seen(event).Format(time.TimeOnly), event.Type,
			event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
	}
}

// seen is when an Event happened last: there are two APIs that write it down.
func seen(event corev1.Event) time.Time {
	at := event.EventTime.Time
	if event.Series != nil {
		at = event.Series.LastObservedTime.Time
	}
	if event.LastTimestamp.After(at) {
		at = event.LastTimestamp.Time
	}
	return at
}
