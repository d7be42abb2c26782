// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
)

func TestAMessageFitsIntoTheStatusOfAMachine(t *testing.T) {
	g := NewWithT(t)
	known := (*status.Status)(nil)
	g.Expect(errors.As(newStatus(codes.ResourceExhausted, "no room: %s", strings.Repeat("€", 1<<20)), &known)).To(BeTrue())
	g.Expect(known.Code()).To(Equal(codes.ResourceExhausted))
	g.Expect(len(known.Message())).To(BeNumerically("~", messageMax, 3))
	g.Expect(utf8.ValidString(known.Message())).To(BeTrue())
}

func TestErrorsHaveCodes(t *testing.T) {
	pods := corev1.Resource("pods")
	terminating := apierrors.NewForbidden(pods, "a", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}

	for name, test := range map[string]struct {
		err  error
		code codes.Code
	}{
		"not found":             {apierrors.NewNotFound(pods, "a"), codes.NotFound},
		"there already":         {apierrors.NewAlreadyExists(pods, "a"), codes.AlreadyExists},
		"conflict":              {apierrors.NewConflict(pods, "a", nil), codes.Aborted},
		"invalid":               {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", nil), codes.InvalidArgument},
		"bad request":           {apierrors.NewBadRequest("a"), codes.InvalidArgument},
		"too large":             {apierrors.NewRequestEntityTooLargeError("a"), codes.InvalidArgument},
		"unauthorized":          {apierrors.NewUnauthorized("a"), codes.Unauthenticated},
		"forbidden":             {apierrors.NewForbidden(pods, "a", errors.New("no RBAC policy matched")), codes.PermissionDenied},
		"quota":                 {apierrors.NewForbidden(pods, "a", errors.New("exceeded quota: machines, requested: pods=1, used: pods=3, limited: pods=3")), codes.ResourceExhausted},
		"terminating namespace": {terminating, codes.FailedPrecondition},
		"too many requests":     {apierrors.NewTooManyRequests("a", 1), codes.Unavailable},
		"internal":              {apierrors.NewInternalError(errors.New("failed calling webhook")), codes.Unavailable},
		"unavailable":           {apierrors.NewServiceUnavailable("a"), codes.Unavailable},
		"server timeout":        {apierrors.NewServerTimeout(pods, "get", 1), codes.Unavailable},
		"expired":               {apierrors.NewResourceExpired("a"), codes.Unknown},
		"no connection":         {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, codes.Unavailable},
		"wrong credentials":     {fmt.Errorf("b: %w", v1beta1helper.NewErrorWithCodes(errors.New("a"), gardencorev1beta1.ErrorConfigurationProblem)), codes.InvalidArgument},
		"deadline":              {fmt.Errorf("b: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		"canceled":              {context.Canceled, codes.Canceled},
		"has one":               {fmt.Errorf("b: %w", newStatus(codes.Internal, "a")), codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := asStatus(t.Context(), test.err, "creating machine %s", "a")
			g.Expect(err).To(BeAssignableToTypeOf(&status.Status{}), "wrapped in nothing")
			g.Expect(err).To(haveCode(test.code))
		})
	}

	t.Run("nothing", func(t *testing.T) {
		NewWithT(t).Expect(asStatus(t.Context(), nil, "")).To(Succeed())
	})

	t.Run("the reason why a context ended counts", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(newStatus(codes.Aborted, "a"))
		NewWithT(t).Expect(asStatus(ctx, context.Canceled, "b")).To(haveCode(codes.Aborted))
	})

	t.Run("brackets in messages do not hide the code", func(t *testing.T) {
		for _, message := range []string{"a [b] c", "a ] b", "[[", "spec.containers[0].image: Invalid value: [\"x\"]"} {
			g := NewWithT(t)
			decoded, ok := status.FromError(newStatus(codes.ResourceExhausted, "%s", message))
			g.Expect(ok).To(BeTrue())
			g.Expect(decoded.Code()).To(Equal(codes.ResourceExhausted))
			g.Expect(decoded.Message()).To(Equal(brackets.Replace(message)))
		}
	})
}

func TestCreateMachineReportsWhatTheAPIServerSays(t *testing.T) {
	for name, fails := range map[string]struct {
		on   func(client.Object) bool
		err  error
		code codes.Code
		left int
	}{
		"quota for Secrets":     {func(obj client.Object) bool { _, ok := obj.(*corev1.Secret); return ok }, apierrors.NewForbidden(corev1.Resource("secrets"), "a", errors.New("exceeded quota: a")), codes.ResourceExhausted, 1},
		"quota for pods":        {func(obj client.Object) bool { _, ok := obj.(*corev1.Pod); return ok }, apierrors.NewForbidden(corev1.Resource("pods"), "a", errors.New("exceeded quota: a")), codes.ResourceExhausted, 0},
		"no right for Services": {func(obj client.Object) bool { _, ok := obj.(*corev1.Service); return ok }, apierrors.NewForbidden(corev1.Resource("services"), "a", nil), codes.PermissionDenied, 2},
		"no API server":         {func(client.Object) bool { return true }, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, codes.Unavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			healthy := newClient(run)
			c := interceptor.NewClient(healthy, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if fails.on(obj) {
					return fails.err
				}
				return c.Create(ctx, obj, opts...)
			}})
			_, err := newDriver(c).CreateMachine(t.Context(), createRequest(newClass()))
			g.Expect(err).To(haveCode(fails.code))
			g.Expect(left(t, healthy)).To(HaveLen(fails.left))

			_, err = newDriver(healthy).CreateMachine(t.Context(), createRequest(newClass()))
			g.Expect(err).NotTo(HaveOccurred(), "it goes on with what is there")
		})
	}
}
