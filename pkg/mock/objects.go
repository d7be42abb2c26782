// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry/genericactuator"
	"github.com/gardener/gardener/extensions/pkg/controller/operatingsystemconfig"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// LabelGenerated is the label of the Secrets that are made here.
	LabelGenerated = "mock.provider.extensions.gardener.cloud/generated"

	// userData is the cloud config of machines that never start.
	userData = "#!/bin/sh\n# The Nodes of the mock provider are not machines: there is nothing to do.\n"

	// retryCluster is the time until the next look for a missing Cluster. As gardenlet writes that first, it is most likely on its
	// way to the cache.
	retryCluster = time.Second

	ipv4, ipv6 = gardencorev1beta1.IPFamilyIPv4, gardencorev1beta1.IPFamilyIPv6
	// Addresses of things that do not exist are from the ranges for documentation (RFC 5737, RFC 3849): nobody is reached by mistake.
	bastions, exposures = "198.51.100.0", "203.0.113.0"
)

// byFamily is a range or an address for each family.
type byFamily map[gardencorev1beta1.IPFamily]string

// Gardener's default ranges for IPv4, and unique local ones for IPv6.
var (
	defaultNodes    = byFamily{ipv4: "10.250.0.0/16", ipv6: "fd00:10:250::/64"}
	defaultPods     = byFamily{ipv4: "100.96.0.0/11", ipv6: "fd00:100:96::/56"}
	defaultServices = byFamily{ipv4: "100.64.0.0/13", ipv6: "fd00:100:64::/108"}
	egress          = byFamily{ipv4: "192.0.2.0", ipv6: "2001:db8::"}
)

// applyInfrastructure reports the ranges of the shoot, one of each family, which gardenlet puts into the Shoot's status. Ranges
// that the shoot's spec lacks come from its status or are the defaults.
func applyInfrastructure(_ context.Context, _ *kindReconciler, o *operation, infra *extensionsv1alpha1.Infrastructure) error {
	if err := checkCluster(o); err != nil {
		return err
	}
	spec, status := gardencorev1beta1.Networking{}, gardencorev1beta1.NetworkingStatus{}
	if shoot := o.Cluster.Shoot(); shoot != nil {
		spec, status = ptr.Deref(shoot.Spec.Networking, spec), ptr.Deref(shoot.Status.Networking, status)
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []gardencorev1beta1.IPFamily{ipv4}
	}

	var errs [3]error
	networking := &extensionsv1alpha1.InfrastructureStatusNetworking{}
	networking.Nodes, errs[0] = defaultNodes.override("nodes", spec.IPFamilies, spec.Nodes, status.Nodes)
	networking.Pods, errs[1] = defaultPods.override("pods", spec.IPFamilies, spec.Pods, status.Pods)
	networking.Services, errs[2] = defaultServices.override("services", spec.IPFamilies, spec.Services, status.Services)
	if err := errors.Join(errs[:]...); err != nil {
		return v1beta1helper.NewErrorWithCodes(fmt.Errorf("networking of the shoot: %w", err), gardencorev1beta1.ErrorConfigurationProblem)
	}

	infra.Status.Networking, infra.Status.EgressCIDRs = networking, nil
	for _, family := range spec.IPFamilies {
		address := addressFor(egress[family], infra.Namespace)
		infra.Status.EgressCIDRs = append(infra.Status.EgressCIDRs, netip.PrefixFrom(address, address.BitLen()).String())
	}
	return nil
}

// override returns a range for each family: the first one of the spec and the status, or the default.
func (defaults byFamily) override(name string, families []gardencorev1beta1.IPFamily, spec *string, status []string) (out []string, err error) {
	if ptr.Deref(spec, "") != "" {
		status = append([]string{*spec}, status...)
	}
	known, err := configv1alpha1.ParseCIDRs(status)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, family := range families {
		cidr := defaults[family]
		if i := slices.IndexFunc(known, func(p netip.Prefix) bool { return p.Addr().Is4() == (family == ipv4) }); i >= 0 {
			cidr = known[i].String()
		}
		out = append(out, cidr)
	}
	return out, nil
}

// applyNetwork reports that the network has the families of the spec. gardenlet waits for that when a shoot gets a second one.
func applyNetwork(_ context.Context, _ *kindReconciler, _ *operation, network *extensionsv1alpha1.Network) error {
	network.Status.IPFamilies = slices.Clone(network.Spec.IPFamilies)
	if len(network.Status.IPFamilies) == 0 {
		network.Status.IPFamilies = []extensionsv1alpha1.IPFamily{extensionsv1alpha1.IPFamilyIPv4}
	}
	return nil
}

// applyDNSRecord reports the zone: that of the spec, or all but the first label of the name.
func applyDNSRecord(_ context.Context, _ *kindReconciler, _ *operation, record *extensionsv1alpha1.DNSRecord) error {
	_, parent, _ := strings.Cut(record.Spec.Name, ".")
	record.Status.Zone = new(cmp.Or(ptr.Deref(record.Spec.Zone, ""), parent))
	return nil
}

// applyBastion reports an address, without which gardenlet does not hand the Bastion on to the user.
func applyBastion(_ context.Context, _ *kindReconciler, _ *operation, bastion *extensionsv1alpha1.Bastion) error {
	bastion.Status.Ingress = &corev1.LoadBalancerIngress{IP: addressFor(bastions, bastion.Namespace+"/"+bastion.Name).String()}
	return nil
}

// applyExposure reports an address, to which gardenlet points the DNSRecord of the control plane.
func applyExposure(_ context.Context, _ *kindReconciler, _ *operation, exposure *extensionsv1alpha1.SelfHostedShootExposure) error {
	exposure.Status.Ingress = []corev1.LoadBalancerIngress{{IP: addressFor(exposures, exposure.Namespace+"/"+exposure.Name).String()}}
	return nil
}

// addressFor returns an address that is always the same for a name: one of the 254 hosts that follow base.
func addressFor(base, name string) netip.Addr {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	raw := netip.MustParseAddr(base).AsSlice()
	raw[len(raw)-1] = byte(1 + hash.Sum32()%254)
	address, _ := netip.AddrFromSlice(raw)
	return address
}

// checkCluster returns an error until an object of a shoot has a Cluster with that shoot.
func checkCluster(o *operation) error {
	if o.Cluster.Shoot() != nil || !reconciler.IsOfShoot(o.Object) {
		return nil
	}
	return reconciler.Waiting(fmt.Errorf("waiting for the Cluster %s with a shoot, which gardenlet writes", o.Object.GetNamespace()), retryCluster)
}

// applyOperatingSystemConfig creates the Secret that gardenlet waits for where a machine is to be provisioned.
func applyOperatingSystemConfig(ctx context.Context, r *kindReconciler, o *operation, osc *extensionsv1alpha1.OperatingSystemConfig) error {
	if osc.Spec.Purpose != extensionsv1alpha1.OperatingSystemConfigPurposeProvision {
		osc.Status.InPlaceUpdates = nil
		if updates := osc.Spec.InPlaceUpdates; updates != nil {
			osc.Status.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdatesStatus{OSUpdate: &extensionsv1alpha1.OSUpdate{Command: "true", Args: []string{updates.OperatingSystemVersion}}}
		}
		return nil
	}

	secret := &corev1.Secret{
		ObjectMeta: operatingsystemconfig.SecretObjectMetaForConfig(osc),
		Data:       map[string][]byte{extensionsv1alpha1.OperatingSystemConfigSecretDataKey: []byte(userData)},
	}
	metav1.SetMetaDataLabel(&secret.ObjectMeta, LabelGenerated, "true")
	// It goes with its owner.
	if err := controllerutil.SetControllerReference(osc, secret, r.Client.Scheme()); err != nil {
		return err
	}
	if err := o.Apply(ctx, reconciler.Target{Client: r.Client, Unread: true}, secret); err != nil {
		return err
	}
	osc.Status.CloudConfig = &extensionsv1alpha1.CloudConfig{SecretRef: corev1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}}
	return nil
}

// applyBackupEntry creates the Secret that etcd-druid mounts, as for a store of type local, in the namespace of the shoot or of
// the garden, if that exists and stays. There may be another entry for the same namespace: the Secret of another mock stays, and
// that of a real one must not be lost to a mock.
func applyBackupEntry(ctx context.Context, r *kindReconciler, o *operation, entry *extensionsv1alpha1.BackupEntry) error {
	secret := backup.EtcdSecret(entry.Name)
	err := o.Ensure(ctx, reconciler.Target{Client: r.Client, Live: r.Client}, secret, entry.Status.ObservedGeneration > 0, func() error {
		creator := secret.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry]
		switch {
		case secret.ResourceVersion == "", creator == entry.Name:
		case secret.Labels[LabelGenerated] != "":
			return nil
		default:
			err := fmt.Errorf("the Secret %s/%s is not of the mock provider, but of %q: delete one of the two BackupEntries", secret.Namespace, secret.Name, creator)
			return v1beta1helper.NewErrorWithCodes(err, gardencorev1beta1.ErrorConfigurationProblem)
		}
		metav1.SetMetaDataLabel(&secret.ObjectMeta, LabelGenerated, "true")
		backup.FillEtcdSecret(secret, entry, r.opts.HostPath)
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// removeBackupEntry deletes the Secret unless it is of another entry.
func removeBackupEntry(ctx context.Context, r *kindReconciler, _ *operation, entry *extensionsv1alpha1.BackupEntry) error {
	key := client.ObjectKeyFromObject(backup.EtcdSecret(entry.Name))
	secret, err := reconciler.Find[corev1.Secret](ctx, r.Client, key)
	if err != nil {
		return fmt.Errorf("reading the Secret %s: %w", key, err)
	}
	if secret == nil || secret.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry] != entry.Name {
		return nil
	}
	asItIs := client.Preconditions{UID: new(secret.UID), ResourceVersion: new(secret.ResourceVersion)}
	if err := r.Client.Delete(ctx, secret, asItIs); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the Secret %s: %w", key, err)
	}
	return nil
}
