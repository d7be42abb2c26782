// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// traces are what a shoot leaves in the landscape as long as it lives.
type traces struct {
	// namespace and name are those of the Shoot.
	namespace, name string
	// technicalID is its namespace in the seed, and part of the names of all that belongs to it elsewhere.
	technicalID string
	// names are its names in DNS, but for those that the seed answers for all shoots.
	names []string
}

// trace looks at a shoot that is there. It is an error of the test if there is nothing that could be left.
func trace(ctx context.Context, shoot *gardencorev1beta1.Shoot) traces {
	GinkgoHelper()
	Expect(g.Refresh(ctx, shoot)).To(Succeed())
	t := traces{namespace: shoot.Namespace, name: shoot.Name, technicalID: shoot.Status.TechnicalID}
	Expect(t.technicalID).NotTo(BeEmpty())
	seed := landscape.Named[*gardencorev1beta1.Seed]("", *shoot.Spec.SeedName)
	Expect(g.Client.Get(ctx, client.ObjectKeyFromObject(seed), seed)).To(Succeed())
	t.names = slices.DeleteFunc(recordNames(ctx, t.technicalID), func(name string) bool {
		return strings.HasSuffix(name, "."+seed.Spec.Ingress.Domain)
	})
	Expect(t.names).NotTo(BeEmpty())
	for _, name := range t.names {
		Expect(matchers.Resolve(ctx, "tcp", landscape.HostDNS(), name, dns.TypeA)).NotTo(Or(BeEmpty(), ContainElement("NXDOMAIN")), name)
	}
	Expect(t.inSeed(ctx)).NotTo(BeEmpty())
	Expect(t.onDisk()).NotTo(BeEmpty(), "a shoot has backups")
	return t
}

// expectNothingLeft waits until there is nothing left of a deleted shoot: in the virtual garden, the seed, DNS and on disk.
func (t traces) expectNothingLeft(ctx context.Context) {
	GinkgoHelper()
	By("looking for what is left of " + t.name)
	Eventually(func(g Gomega) {
		g.Expect(t.inGarden(ctx)).To(BeEmpty(), "in the virtual garden")
		g.Expect(t.inSeed(ctx)).To(BeEmpty(), "in the seed")
		g.Expect(t.inDNS(ctx)).To(BeEmpty(), "in DNS")
		g.Expect(t.onDisk()).To(BeEmpty(), "on disk")
	}).WithContext(ctx).Should(Succeed())
}

// inGarden are the objects of the virtual garden that belong to the shoot, itself among them.
func (t traces) inGarden(ctx context.Context) ([]string, error) {
	return find(ctx, g.Client, func(obj client.Object) bool {
		return obj.GetNamespace() == t.namespace && (obj.GetName() == t.name || strings.HasPrefix(obj.GetName(), t.name+".")) ||
			strings.HasPrefix(obj.GetName(), t.technicalID+"--")
	},
		&gardencorev1beta1.ShootList{}, &gardencorev1beta1.ShootStateList{}, &gardencorev1beta1.BackupEntryList{},
		&gardencorev1beta1.InternalSecretList{}, &corev1.SecretList{}, &corev1.ConfigMapList{},
	)
}

// inSeed are the objects of the seed that belong to the shoot, wherever they are.
func (t traces) inSeed(ctx context.Context) ([]string, error) {
	found, err := find(ctx, l.Client, func(obj client.Object) bool {
		if volume, ok := obj.(*corev1.PersistentVolume); ok {
			return volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == t.technicalID
		}
		return strings.Contains(obj.GetNamespace()+"/"+obj.GetName(), t.technicalID)
	}, append(extensionLists(), &extensionsv1alpha1.ClusterList{}, &corev1.NamespaceList{}, &corev1.PodList{},
		&corev1.PersistentVolumeList{}, &resourcesv1alpha1.ManagedResourceList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{},
		&admissionregistrationv1.MutatingWebhookConfigurationList{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{})...)
	return found, err
}

// inDNS are the names that still answer, with what they say.
func (t traces) inDNS(ctx context.Context) ([]string, error) {
	var found []string
	for _, name := range t.names {
		answer, err := matchers.Resolve(ctx, "tcp", landscape.HostDNS(), name, dns.TypeA)
		if err != nil {
			return nil, err
		}
		if len(answer) > 0 && !slices.Equal(answer, []string{"NXDOMAIN"}) {
			found = append(found, fmt.Sprintf("%s: %v", name, answer))
		}
	}
	return found, nil
}

// onDisk are the folders of backups and volumes.
func (t traces) onDisk() ([]string, error) {
	if landscape.OnKind() {
		// Volumes are those of the stand-ins, and those of kind's provisioner.
		return landscape.OnKindNode("/etc/gardener/local-backupbuckets/*/"+t.technicalID+"--*", "/var/volumes/"+t.technicalID+"_*",
			"/var/local-path-provisioner/*_"+t.technicalID+"_*")
	}
	backups, err := filepath.Glob(landscape.State("backupbuckets", "*", t.technicalID+"--*"))
	if err != nil {
		return nil, err
	}
	volumes, err := filepath.Glob(landscape.State("volumes", t.technicalID+"_*"))
	return append(backups, volumes...), err
}

// find lists objects and names those that belong to something.
func find(ctx context.Context, c client.Client, belongs func(client.Object) bool, lists ...client.ObjectList) ([]string, error) {
	var found []string
	for _, list := range lists {
		if err := c.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			if obj := item.(client.Object); belongs(obj) {
				found = append(found, fmt.Sprintf("%T %s", obj, client.ObjectKeyFromObject(obj)))
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// extensionLists are lists of all kinds of objects that extensions serve.
func extensionLists() []client.ObjectList {
	return []client.ObjectList{
		&extensionsv1alpha1.BackupEntryList{}, &extensionsv1alpha1.BastionList{}, &extensionsv1alpha1.ContainerRuntimeList{},
		&extensionsv1alpha1.ControlPlaneList{}, &extensionsv1alpha1.DNSRecordList{}, &extensionsv1alpha1.ExtensionList{},
		&extensionsv1alpha1.InfrastructureList{}, &extensionsv1alpha1.NetworkList{},
		&extensionsv1alpha1.OperatingSystemConfigList{}, &extensionsv1alpha1.WorkerList{},
	}
}

// recordNames are the names of the DNSRecords of a shoot. Those that stand for all below them are asked for by one of these.
func recordNames(ctx context.Context, technicalID string) []string {
	GinkgoHelper()
	records := &extensionsv1alpha1.DNSRecordList{}
	Expect(l.Client.List(ctx, records, client.InNamespace(technicalID))).To(Succeed())
	var names []string
	for _, record := range records.Items {
		names = append(names, strings.Replace(record.Spec.Name, "*", "any", 1))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ingressNames are the hosts of the Ingresses of a shoot's control plane.
func ingressNames(ctx context.Context, technicalID string) []string {
	GinkgoHelper()
	ingresses := &networkingv1.IngressList{}
	Expect(l.Client.List(ctx, ingresses, client.InNamespace(technicalID))).To(Succeed())
	var names []string
	for _, ingress := range ingresses.Items {
		for _, rule := range ingress.Spec.Rules {
			names = append(names, rule.Host)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
