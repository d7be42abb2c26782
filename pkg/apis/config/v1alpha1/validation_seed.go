// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

func validateWebhooks(webhooks *WebhooksConfiguration, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for _, msg := range validation.IsValidPortNum(*webhooks.ServicePort) {
		allErrs = append(allErrs, field.Invalid(path.Child("servicePort"), *webhooks.ServicePort, msg))
	}
	return allErrs
}

// componentCharts are the charts in charts/components.
var componentCharts = []string{"cloud-controller", "coredns", "local-path-provisioner"}

func validateCharts(charts *ChartsConfiguration, path *field.Path) field.ErrorList {
	allErrs := validatePath(charts.Cache.Directory, path.Child("cache", "directory"))
	if charts.Cache.MaxBytes.Sign() <= 0 {
		allErrs = append(allErrs, field.Invalid(path.Child("cache", "maxBytes"), charts.Cache.MaxBytes.String(), "must be greater than 0"))
	}
	for name, source := range charts.Sources {
		path := path.Child("sources").Key(name)
		if !slices.Contains(componentCharts, name) {
			allErrs = append(allErrs, field.NotSupported(path, name, componentCharts))
		}
		allErrs = append(allErrs, validateOCIChart(source, path)...)
	}
	return allErrs
}

func validateOCIChart(source OCIChart, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	if ref, err := name.ParseReference(source.Ref, name.StrictValidation); err != nil {
		allErrs = append(allErrs, field.Invalid(path.Child("ref"), source.Ref, err.Error()))
	} else if !isHost(ref.Context().RegistryStr()) {
		allErrs = append(allErrs, field.Invalid(path.Child("ref"), source.Ref, "must begin with HOST[:PORT]"))
	}
	for key, secret := range map[string]*corev1.LocalObjectReference{"pullSecretRef": source.PullSecretRef, "caBundleSecretRef": source.CABundleSecretRef} {
		if secret == nil {
			continue
		}
		for _, msg := range validation.IsDNS1123Subdomain(secret.Name) {
			allErrs = append(allErrs, field.Invalid(path.Child(key, "name"), secret.Name, msg))
		}
	}
	for i, mirror := range source.Mirrors {
		host, _, _ := strings.Cut(mirror, "/")
		if _, err := name.NewRepository(mirror+"/chart", name.StrictValidation); err != nil || !isHost(host) {
			allErrs = append(allErrs, field.Invalid(path.Child("mirrors").Index(i), mirror, "must be HOST[:PORT][/PREFIX]"))
		}
	}
	return allErrs
}

func validateControlPlane(controlPlane *ControlPlaneConfiguration, path *field.Path) field.ErrorList {
	if *controlPlane.CloudController.Deploy && controlPlane.CloudController.Image == "" {
		return field.ErrorList{field.Required(path.Child("cloudController", "image"), "needed as long as deploy is true")}
	}
	return nil
}

func validateMachines(machines *MachinesConfiguration, path *field.Path) field.ErrorList {
	allErrs := localv1alpha1.ValidateMachineSizing(machines.Sizing, path.Child("sizing"))
	for i, sizing := range machines.AllowedSizings {
		allErrs = append(allErrs, localv1alpha1.ValidateMachineSizing(sizing, path.Child("allowedSizings").Index(i))...)
	}
	if !slices.Contains(machines.AllowedSizings, machines.Sizing) {
		allErrs = append(allErrs, field.Invalid(path.Child("sizing"), machines.Sizing, "must be one of allowedSizings"))
	}
	if name := string(machines.GPUResourceName); !strings.Contains(name, "/") || len(validation.IsQualifiedName(name)) > 0 {
		allErrs = append(allErrs, field.Invalid(path.Child("gpuResourceName"), machines.GPUResourceName, "must be the name of an extended resource, such as nvidia.com/gpu"))
	}
	allErrs = append(allErrs, validateCIDRs(machines.EgressCIDRs, path.Child("egressCIDRs"))...)
	allErrs = append(allErrs, validateCIDRs(machines.NodeCIDRs, path.Child("nodeCIDRs"))...)
	allErrs = append(allErrs, validateCIDRs(machines.Remote.AllowedCIDRs, path.Child("remote", "allowedCIDRs"))...)
	for i, mirror := range machines.RegistryMirrors {
		path := path.Child("registryMirrors").Index(i)
		if !isHost(mirror.Upstream) {
			allErrs = append(allErrs, field.Invalid(path.Child("upstream"), mirror.Upstream, "must be HOST[:PORT]"))
		}
		allErrs = append(allErrs, validateURL(mirror.Server, path.Child("server"))...)
		if len(mirror.Hosts) == 0 {
			allErrs = append(allErrs, field.Required(path.Child("hosts"), "name at least one mirror"))
		}
		for j, host := range mirror.Hosts {
			allErrs = append(allErrs, validateURL(host, path.Child("hosts").Index(j))...)
		}
	}
	return allErrs
}

func validateNodes(nodes *NodesConfiguration, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for name, quantity := range map[string]*resource.Quantity{"cpu": nodes.Capacity.CPU, "memory": nodes.Capacity.Memory} {
		if quantity.Sign() <= 0 {
			allErrs = append(allErrs, field.Invalid(path.Child("capacity", name), quantity.String(), "must be greater than 0"))
		}
	}
	return allErrs
}

// isHost reports whether value is HOST[:PORT], where HOST is a domain or an IP address, an IPv6 address in brackets.
func isHost(value string) bool {
	host := value
	if name, port, err := net.SplitHostPort(value); err == nil {
		number, err := strconv.Atoi(port)
		if err != nil || len(validation.IsValidPortNum(number)) > 0 {
			return false
		}
		host = name
	} else if inner, ok := strings.CutPrefix(value, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && strings.Contains(inner, ":") && net.ParseIP(inner) != nil
	}
	return net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0
}

func validateURL(value string, path *field.Path) field.ErrorList {
	if parsed, err := url.Parse(value); err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return field.ErrorList{field.Invalid(path, value, "must be a URL with http or https")}
	}
	return nil
}

func validatePath(dir string, path *field.Path) field.ErrorList {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" {
		return field.ErrorList{field.Invalid(path, dir, "must be an absolute, clean path other than /")}
	}
	return nil
}
