// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// maxNameservers is how many nameservers Kubernetes allows a pod.
const maxNameservers = 3

// admitter answers for Pods and Deployments. It is no Mutator of the extension library, as these can't give warnings.
type admitter struct {
	log           logr.Logger
	decoder       admission.Decoder
	services      client.Reader
	service       client.ObjectKey
	clusterDomain string
}

// Handle implements admission.Handler.
func (h *admitter) Handle(ctx context.Context, request admission.Request) admission.Response {
	obj, target, err := h.decode(request)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if target == nil || obj.GetDeletionTimestamp() != nil {
		return admission.Allowed("")
	}

	servers, err := h.nameservers(ctx)
	if err != nil {
		h.log.Info("Leaving the DNS configuration of a pod as it is", "kind", request.Kind.Kind, "namespace", request.Namespace, "name", request.Name, "reason", err.Error())
		return admission.Allowed("").WithWarnings(fmt.Sprintf("provider-local left the DNS configuration as it is: %v", err))
	}

	before, err := json.Marshal(obj)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	target.ask(servers, h.clusterDomain)
	after, err := json.Marshal(obj)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(before, after)
}

// decode returns the object and the pod in it; no pod if the object is to be left alone.
func (h *admitter) decode(request admission.Request) (client.Object, *target, error) {
	switch request.Kind.Kind {
	case "Pod":
		pod := &corev1.Pod{}
		// What could be changed is immutable once the Pod exists.
		if request.Operation != admissionv1.Create {
			return pod, nil, nil
		}
		if err := h.decoder.Decode(request, pod); err != nil {
			return nil, nil, err
		}
		return pod, &target{meta: &pod.ObjectMeta, spec: &pod.Spec}, nil

	case "Deployment":
		deployment := &appsv1.Deployment{}
		if !slices.Contains(gardenDeployments(), request.Name) {
			return deployment, nil, nil
		}
		if err := h.decoder.Decode(request, deployment); err != nil {
			return nil, nil, err
		}
		template := &deployment.Spec.Template
		return deployment, &target{meta: &template.ObjectMeta, spec: &template.Spec, namespace: request.Namespace}, nil
	}
	return nil, nil, fmt.Errorf("unexpected kind %s", request.Kind.String())
}

// nameservers returns the addresses of CoreDNS' Service, of both families where it has them.
func (h *admitter) nameservers(ctx context.Context) ([]string, error) {
	service := &corev1.Service{}
	if err := h.services.Get(ctx, h.service, service); err != nil {
		return nil, fmt.Errorf("reading the Service of CoreDNS: %w", err)
	}
	servers := addresses(service)
	if len(servers) == 0 {
		return nil, errors.New("the Service " + h.service.String() + " of CoreDNS has no address yet")
	}
	return servers, nil
}

func addresses(service *corev1.Service) []string {
	addresses := slices.DeleteFunc(slices.Clone(service.Spec.ClusterIPs), func(ip string) bool {
		return ip == "" || ip == corev1.ClusterIPNone
	})
	return addresses[:min(len(addresses), maxNameservers)]
}
