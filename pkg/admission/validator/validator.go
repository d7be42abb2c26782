// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package validator holds the validators of the admission webhooks: what of type local a CloudProfile, NamespacedCloudProfile,
// Shoot, Seed, binding, Secret or WorkloadIdentity of the virtual garden may say. Package admission serves them; the rules
// for what is in a providerConfig are in pkg/apis/local/validation.
//
// Objects that are being deleted are let through, and so are those of other types and those whose spec does not change:
// nothing must be stuck because a rule is younger than an object. What cannot be decided for want of an answer from the API
// server is refused, and can be tried again.
package validator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
)

// maxErrors is how many mistakes a user is told of at once. The text of an aggregate takes the square of their number.
const maxErrors = 50

// rules are a validator for objects of one kind.
type rules[T client.Object] struct {
	// check returns what is wrong with an object. old is the object as it was, nil if it is being created. An error means
	// that it could not be found out.
	check func(ctx context.Context, obj, old T) (field.ErrorList, error)
}

var _ extensionswebhook.Validator = &rules[*corev1.Secret]{}

// Validate implements extensionswebhook.Validator.
func (r *rules[T]) Validate(ctx context.Context, newObj, oldObj client.Object) error {
	obj, ok := newObj.(T)
	if !ok {
		return fmt.Errorf("%T is not what this webhook is for", newObj)
	}
	if obj.GetDeletionTimestamp() != nil {
		return nil
	}
	var old T
	if oldObj != nil {
		if old, ok = oldObj.(T); !ok {
			return fmt.Errorf("%T is not what this webhook is for", oldObj)
		}
	}
	errs, err := r.check(ctx, obj, old)
	if err != nil {
		return err
	}
	if len(errs) > maxErrors {
		return fmt.Errorf("%w, and %d more", errs[:maxErrors].ToAggregate(), len(errs)-maxErrors)
	}
	return errs.ToAggregate()
}

// get reads an object. One that does not exist is an error at the path of the reference to it.
func get(ctx context.Context, reader client.Reader, key client.ObjectKey, obj client.Object, kind string, path *field.Path) (*field.Error, error) {
	switch err := reader.Get(ctx, key, obj); {
	case apierrors.IsNotFound(err):
		return field.Invalid(path, key.String(), fmt.Sprintf("there is no such %s: create it first", kind)), nil
	case err != nil:
		return nil, fmt.Errorf("%s: reading %s %s: %w", path, kind, key, err)
	}
	return nil, nil
}
