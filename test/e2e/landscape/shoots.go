// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
)

// Progress is one line on the last operation of a Shoot and on its errors.
func Progress(shoot *gardencorev1beta1.Shoot) string {
	operation := shoot.Status.LastOperation
	if operation == nil {
		return "no operation yet"
	}
	line := fmt.Sprintf("%s %s %d %%: %s", operation.Type, operation.State, operation.Progress, operation.Description)
	for _, lastError := range shoot.Status.LastErrors {
		line += fmt.Sprintf(" [error %v: %s]", lastError.Codes, lastError.Description)
	}
	return line
}

// Problem tells why a Shoot is not what its specification asks for, or not healthy. It is empty once the last operation is
// through with the newest generation, and all conditions are True.
func Problem(shoot *gardencorev1beta1.Shoot) string {
	if asked := shoot.Annotations[v1beta1constants.GardenerOperation]; asked != "" {
		return fmt.Sprintf("operation %s is still asked for; %s", asked, Progress(shoot))
	}
	if shoot.Generation != shoot.Status.ObservedGeneration {
		return fmt.Sprintf("generation %d is observed, not %d; %s", shoot.Status.ObservedGeneration, shoot.Generation, Progress(shoot))
	}
	operation := shoot.Status.LastOperation
	if operation == nil || operation.Type == gardencorev1beta1.LastOperationTypeMigrate || operation.State != gardencorev1beta1.LastOperationStateSucceeded {
		return Progress(shoot)
	}
	return ConditionsProblem(shoot.Status.Conditions)
}

// ConditionsProblem names the conditions that are not True, and why; it is empty if all are. To have none is a problem.
func ConditionsProblem(conditions []gardencorev1beta1.Condition) string {
	if len(conditions) == 0 {
		return "no conditions yet"
	}
	var problems []string
	for _, condition := range conditions {
		if condition.Status != gardencorev1beta1.ConditionTrue {
			problems = append(problems, fmt.Sprintf("%s is %s, %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
		}
	}
	return strings.Join(problems, "; ")
}

// Refresh reads a Shoot.
func (g *Garden) Refresh(ctx context.Context, shoot *gardencorev1beta1.Shoot) error {
	// A new one, as decoding leaves in an old one what there is no more.
	fresh := &gardencorev1beta1.Shoot{}
	if err := g.Client.Get(ctx, client.ObjectKeyFromObject(shoot), fresh); err != nil {
		return err
	}
	fresh.DeepCopyInto(shoot)
	return nil
}

// Change reads a Shoot and patches it.
func (g *Garden) Change(ctx context.Context, shoot *gardencorev1beta1.Shoot, edit func()) {
	GinkgoHelper()
	Eventually(func() error {
		if err := g.Refresh(ctx, shoot); err != nil {
			return err
		}
		patch := client.MergeFrom(shoot.DeepCopy())
		edit()
		return g.Client.Patch(ctx, shoot, patch)
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed(), "Shoot %s is changed", shoot.Name)
}

// Operate asks for an operation by the annotation.
func (g *Garden) Operate(ctx context.Context, shoot *gardencorev1beta1.Shoot, operation string) {
	GinkgoHelper()
	g.Change(ctx, shoot, func() { metav1.SetMetaDataAnnotation(&shoot.ObjectMeta, v1beta1constants.GardenerOperation, operation) })
}

// Delete confirms and asks for the deletion of a Shoot, and returns at once. One that is gone is fine.
func (g *Garden) Delete(ctx context.Context, shoot *gardencorev1beta1.Shoot) {
	GinkgoHelper()
	if err := g.Refresh(ctx, shoot); apierrors.IsNotFound(err) {
		return
	}
	g.Change(ctx, shoot, func() { metav1.SetMetaDataAnnotation(&shoot.ObjectMeta, v1beta1constants.ConfirmationDeletion, "true") })
	Expect(client.IgnoreNotFound(g.Client.Delete(ctx, shoot))).To(Succeed())
}

// EventuallyHealthy waits until Problem says nothing, and writes down the progress. It ends early if Gardener gave up.
func (g *Garden) EventuallyHealthy(ctx context.Context, shoot *gardencorev1beta1.Shoot, timeout time.Duration) {
	GinkgoHelper()
	told := tell(shoot.Name)
	Eventually(func() (string, error) {
		if err := g.Refresh(ctx, shoot); err != nil {
			return "", err
		}
		problem := Problem(shoot)
		told(problem)
		if hasFailed(shoot) {
			return problem, StopTrying("Gardener gave up: " + problem)
		}
		return problem, nil
	}).WithContext(ctx).WithTimeout(timeout).Should(BeEmpty(), "Shoot %s is reconciled and healthy", shoot.Name)
}

// EventuallyDeleted waits until a Shoot is gone, and writes down the progress. It ends early if Gardener gave up.
func (g *Garden) EventuallyDeleted(ctx context.Context, shoot *gardencorev1beta1.Shoot, timeout time.Duration) {
	GinkgoHelper()
	told := tell(shoot.Name)
	Eventually(func() (string, error) {
		err := g.Refresh(ctx, shoot)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		progress := Progress(shoot)
		told(progress)
		if hasFailed(shoot) {
			return progress, StopTrying("Gardener gave up: " + progress)
		}
		return progress, nil
	}).WithContext(ctx).WithTimeout(timeout).Should(BeEmpty(), "Shoot %s is deleted", shoot.Name)
}

func hasFailed(shoot *gardencorev1beta1.Shoot) bool {
	operation := shoot.Status.LastOperation
	return operation != nil && operation.State == gardencorev1beta1.LastOperationStateFailed && shoot.Generation == shoot.Status.ObservedGeneration
}

// tell returns what writes down a line, with the seconds since the start, unless it is the one before.
func tell(name string) func(line string) {
	begin, before := time.Now(), ""
	return func(line string) {
		if line != before && line != "" {
			GinkgoWriter.Printf("%5.0f s  %s: %s\n", time.Since(begin).Seconds(), name, line)
		}
		before = line
	}
}
