// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package audit_test proves from the audit log of the landscape's API server that each instance of the extension wrote only
// to the objects of its classes, over the whole life of the landscape. So it is best run when the other suites are through.
package audit_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/test/audit"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

func TestAudit(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Classes of the instances, from the audit log")
}

var (
	l *landscape.Landscape
	// log is the path of the audit log.
	log string

	garden = audit.Instance{Name: "garden", Classes: []string{"garden"}, In: func(namespace string) bool {
		return namespace == landscape.GardenInstanceNamespace
	}}
	// Names of ControllerInstallations are generated from that of the registration.
	seed = audit.Instance{Name: "seed", Classes: []string{"seed", "shoot"}, In: func(namespace string) bool {
		return namespace == "extension-provider-local" || strings.HasPrefix(namespace, "extension-provider-local-")
	}}
)

var _ = BeforeSuite(func() {
	l = landscape.Connect()
	folder := filepath.Dir(os.Getenv("KUBECONFIG"))
	log = filepath.Join(folder, "audit", "audit.log")
	if _, err := os.Stat(log); err != nil && filepath.Base(folder) != ".landscape" {
		// A user's kind cluster keeps none. test/kind has its cluster keep one.
		Skip("this cluster keeps no audit log: " + err.Error())
	}
})

// events are all that the log has. It is read for each spec, as the log grows.
func events() []audit.Event {
	GinkgoHelper()
	all, err := audit.ReadFolder(log, nil)
	Expect(err).NotTo(HaveOccurred())
	return all
}

var _ = Describe("The audit log", Label("audit", "garden", "seed", "shoot"), func() {
	It("reaches back to the creation of every extension object that there is", func(ctx SpecContext) {
		// Read before the log, which therefore has whatever is in here.
		uids := map[string]string{}
		resources, err := l.Clientset.Discovery().ServerResourcesForGroupVersion(audit.ExtensionsGroup + "/v1alpha1")
		Expect(err).NotTo(HaveOccurred())
		for _, resource := range resources.APIResources {
			if strings.Contains(resource.Name, "/") || resource.Kind == "Cluster" {
				continue
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: audit.ExtensionsGroup, Version: "v1alpha1", Kind: resource.Kind + "List"})
			Expect(l.Client.List(ctx, list)).To(Succeed())
			for _, object := range list.Items {
				uids[string(object.GetUID())] = object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
			}
		}
		Expect(uids).NotTo(BeEmpty())

		for uid := range audit.Created(events()) {
			delete(uids, uid)
		}
		Expect(uids).To(BeEmpty(), "a log with a beginning that is lost proves nothing")
	}, SpecTimeout(time.Minute))

	It("has no write of an instance to an object of another class", func() {
		judgement := audit.Judge(events(), garden, seed)
		AddReportEntry("writes by instance and class", judgement.Writes)
		Expect(judgement.Violations).To(BeEmpty(), strings.Join(judgement.Violations, "\n"))
	})

	It("has no object of another kind that both instances wrote to, but for the CoreDNS that they share and the Services that they hand over", func() {
		Expect(slices.DeleteFunc(audit.Shared(events(), garden, seed), isShared)).To(BeEmpty())
	})
})

// Without these, a log in which the instances do not show up would prove that they keep to their classes.
var _ = Describe("The audit log", Label("audit"), func() {
	for _, instance := range []audit.Instance{garden, seed} {
		for _, class := range instance.Classes {
			It("has writes of the "+instance.Name+" instance to objects of class "+class, Label(class), func() {
				Expect(audit.Judge(events(), garden, seed).Writes[instance.Name]).To(HaveKeyWithValue(class, BeNumerically(">", 0)))
			})
		}
	}
})

// isShared reports whether an object is the ManagedResource of the shared CoreDNS, or its Secret, whose name ends in a hash, or a
// Service of type LoadBalancer that a garden needs, which one instance serves at a time.
func isShared(object audit.Object) bool {
	switch object.Resource {
	case "managedresources":
		return object.Name == coredns.ManagedResourceName
	case "services":
		return slices.ContainsFunc(configv1alpha1.GardenServices(configv1alpha1.DefaultCoreDNSNamespace), func(service configv1alpha1.LoadBalancerService) bool {
			return service.Namespace == object.Namespace && service.Name == object.Name
		})
	}
	hash, found := strings.CutPrefix(object.Name, "managedresource-"+coredns.ManagedResourceName+"-")
	return object.Resource == "secrets" && found && !strings.Contains(hash, "-")
}
