// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsbastion "github.com/gardener/gardener/extensions/pkg/bastion"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// namePrefix begins the names of all objects of a Bastion. The name of the Bastion follows.
const namePrefix = "bastion-"

// host is what a Bastion asks for.
type host struct {
	// bastion is the name of the Bastion.
	bastion  string
	userData []byte
	image    image
	// ingress has the ranges of those who may connect, in their canonical form.
	ingress []networkingv1.IPBlock
}

// newHost validates a Bastion. What a user has to put right is a configuration problem.
func newHost(bastion *extensionsv1alpha1.Bastion, cluster *extensioncluster.Cluster) (*host, error) {
	if messages := validation.IsDNS1123Label(namePrefix + bastion.Name); len(messages) > 0 {
		return nil, reconciler.ConfigurationProblem(
			fmt.Errorf("the name %q does not do for a bastion, whose pod is named %s%s (%s): create a Bastion of another name", bastion.Name, namePrefix, bastion.Name, strings.Join(messages, "; ")),
			reconciler.RetryMistake,
		)
	}
	if len(bastion.Spec.UserData) == 0 {
		return nil, reconciler.ConfigurationProblem(errors.New("spec.userData is empty: set the script that lets people in"), reconciler.RetryMistake)
	}
	ingress, errs := parseIngress(bastion.Spec.Ingress)
	if len(errs) > 0 {
		return nil, reconciler.ConfigurationProblem(errs.ToAggregate(), reconciler.RetryMistake)
	}

	profile := cluster.CloudProfile()
	if profile == nil {
		return nil, reconciler.NoCluster(bastion.Namespace, "a CloudProfile")
	}
	image, err := findImage(profile)
	if err != nil {
		return nil, err
	}
	return &host{bastion: bastion.Name, userData: bastion.Spec.UserData, image: image, ingress: ingress}, nil
}

// keyOf returns the key of each object of a Bastion, given the namespace of the machines.
func keyOf(namespace, bastion string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: namePrefix + bastion}
}

// image is what a bastion runs.
type image struct {
	// reference is that of a container image.
	reference string
	// version is that of the machine image.
	version string
}

// findImage returns the image for bastions of a CloudProfile: of the machine image in its spec.bastion or else of one that
// suits its smallest machine type. If there is none, that is a configuration problem.
func findImage(profile *gardencorev1beta1.CloudProfile) (image, error) {
	mistake := func(format string, args ...any) (image, error) {
		return image{}, reconciler.ConfigurationProblem(fmt.Errorf("CloudProfile %s: %w", profile.Name, fmt.Errorf(format, args...)), reconciler.RetryMissing)
	}

	spec, err := extensionsbastion.GetMachineSpecFromCloudProfile(profile)
	if err != nil {
		return mistake("no machine type and machine image for bastions: %w; name them in spec.bastion", err)
	}
	config, problem := localv1alpha1.CloudProfileConfigAt(profile.Spec.ProviderConfig, field.NewPath("spec", "providerConfig"))
	if problem != nil {
		return mistake("%w", problem)
	}
	version := findVersion(config, spec.ImageBaseName, spec.ImageVersion)
	if version == nil {
		return mistake("there is no container image for version %s of the machine image %s: add it to spec.providerConfig.machineImages", spec.ImageVersion, spec.ImageBaseName)
	}

	found := image{reference: version.Image, version: version.Version}
	if len(version.CapabilityFlavors) > 0 {
		best, err := worker.FindBestImageFlavor(version.CapabilityFlavors, spec.MachineTypeCapabilities, profile.Spec.MachineCapabilities)
		if err != nil {
			return mistake("none of the capabilityFlavors of version %s of the machine image %s in spec.providerConfig.machineImages suits the machine type %s: %w",
				version.Version, spec.ImageBaseName, spec.MachineTypeName, err)
		}
		found.reference = best.Image
	}
	if found.reference == "" {
		return mistake("version %s of the machine image %s has no image in spec.providerConfig.machineImages: set it", version.Version, spec.ImageBaseName)
	}
	return found, nil
}

// findVersion returns a version of a machine image, or nil. Gardener's library writes a version that it has chosen with
// three numbers, whatever it is in the CloudProfile.
func findVersion(config *localv1alpha1.CloudProfileConfig, name, wanted string) *localv1alpha1.MachineImageVersion {
	var versions []localv1alpha1.MachineImageVersion
	for _, image := range config.MachineImages {
		if image.Name == name {
			versions = append(versions, image.Versions...)
		}
	}
	i := slices.IndexFunc(versions, func(version localv1alpha1.MachineImageVersion) bool { return version.Version == wanted })
	if i < 0 {
		i = slices.IndexFunc(versions, func(version localv1alpha1.MachineImageVersion) bool { return isSameVersion(version.Version, wanted) })
	}
	if i < 0 {
		return nil
	}
	return &versions[i]
}

func isSameVersion(a, b string) bool {
	first, errA := semver.NewVersion(a)
	second, errB := semver.NewVersion(b)
	return errA == nil && errB == nil && first.String() == second.String()
}

// maxRanges is how many ranges a Bastion may have, with those that are excepted. Each costs something on each node.
const maxRanges = 256

// parseIngress validates spec.ingress of a Bastion and returns the ranges in their canonical form, each once.
func parseIngress(policies []extensionsv1alpha1.BastionIngressPolicy) ([]networkingv1.IPBlock, field.ErrorList) {
	var (
		blocks []networkingv1.IPBlock
		errs   field.ErrorList
	)
	count := len(policies)
	for _, policy := range policies {
		count += len(policy.IPBlock.Except)
	}
	if count > maxRanges {
		return nil, field.ErrorList{field.TooMany(field.NewPath("spec", "ingress"), count, maxRanges)}
	}
	for i, policy := range policies {
		path := field.NewPath("spec", "ingress").Index(i).Child("ipBlock")
		prefix, err := parseRange(path.Child("cidr"), policy.IPBlock.CIDR)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		block := networkingv1.IPBlock{CIDR: prefix.String()}
		for j, value := range policy.IPBlock.Except {
			path := path.Child("except").Index(j)
			except, err := parseRange(path, value)
			switch {
			case err != nil:
				errs = append(errs, err)
			case !prefix.Contains(except.Addr()) || except.Bits() <= prefix.Bits():
				errs = append(errs, field.Invalid(path, value, "must be a range within, and smaller than, "+block.CIDR))
			default:
				block.Except = append(block.Except, except.String())
			}
		}
		if !slices.ContainsFunc(blocks, func(other networkingv1.IPBlock) bool {
			return other.CIDR == block.CIDR && slices.Equal(other.Except, block.Except)
		}) {
			blocks = append(blocks, block)
		}
	}
	return blocks, errs
}

func parseRange(path *field.Path, value string) (netip.Prefix, *field.Error) {
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		return netip.Prefix{}, field.Invalid(path, value, "must be a range of IP addresses such as 192.0.2.0/24 or 2001:db8::/64")
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, field.Invalid(path, value, fmt.Sprintf("must be written as a range of IPv4 addresses, such as %s/32", prefix.Addr().Unmap()))
	}
	return prefix.Masked(), nil
}

// sourceRanges returns the ranges for the Service. They can't say what is excepted, which the NetworkPolicy does.
func sourceRanges(blocks []networkingv1.IPBlock) []string {
	var ranges []string
	for _, block := range blocks {
		if !slices.Contains(ranges, block.CIDR) {
			ranges = append(ranges, block.CIDR)
		}
	}
	return loadbalancer.CloseFamilies(ranges, corev1.IPv4Protocol, corev1.IPv6Protocol)
}
