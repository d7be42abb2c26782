// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/extension"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// changing is the number of objects of each kind that change their class.
const changing = 10

var _ = Describe("Class isolation", Ordered, func() {
	var (
		book = &ledger{classes: map[object][]extensionsv1alpha1.ExtensionClass{}}
		all  []extensionsv1alpha1.Object
	)

	It("has every object of every class reconciled", func(ctx SpecContext) {
		all = population()
		classes := map[extensionsv1alpha1.ExtensionClass]int{}
		for _, obj := range all {
			classes[classOf(obj)]++
		}
		Expect(classes[garden]).To(Equal(300))
		Expect(classes[seed]).To(Equal(300))
		Expect(classes[shoot] + classes[none]).To(Equal(300))

		inParallel(all, func(obj extensionsv1alpha1.Object) { create(ctx, book, obj, classOf(obj)) })
		inParallel(all, func(obj extensionsv1alpha1.Object) { eventuallySucceeds(ctx, obj) })
	})

	It("has objects reconciled that are made anew in another class under the same name", func(ctx SpecContext) {
		theExtension := newExtension(gardenNamespace, extension.TypeShoot, garden)
		for _, class := range []extensionsv1alpha1.ExtensionClass{none, garden} {
			Expect(c.Delete(ctx, theExtension)).To(Succeed())
			create(ctx, book, theExtension, class)
			eventuallySucceeds(ctx, theExtension)
		}

		inParallel(changingObjects("anew"), func(obj extensionsv1alpha1.Object) {
			for i, class := range []extensionsv1alpha1.ExtensionClass{garden, none, seed, garden, shoot, garden} {
				create(ctx, book, obj, class)
				// One half of them is deleted whatever the instance is doing just then.
				if obj.GetName()[len(obj.GetName())-1]%2 == 0 || i == 5 {
					eventuallySucceeds(ctx, obj)
				}
				remove(ctx, obj)
			}
		})
	})

	It("has objects reconciled whose class is taken away and set again", func(ctx SpecContext) {
		theExtension := newExtension(gardenNamespace, extension.TypeShoot, garden)
		for _, class := range []extensionsv1alpha1.ExtensionClass{none, garden, none} {
			changeClass(ctx, book, theExtension, class)
			eventuallySucceeds(ctx, theExtension)
		}

		objects := changingObjects("changed")
		inParallel(objects, func(obj extensionsv1alpha1.Object) {
			create(ctx, book, obj, garden)
			eventuallySucceeds(ctx, obj)
			for _, class := range []extensionsv1alpha1.ExtensionClass{none, garden, none, seed} {
				changeClass(ctx, book, obj, class)
				eventuallySucceeds(ctx, obj)
			}
		})
		all = append(all, objects...)
	})

	It("has all objects deleted", func(ctx SpecContext) {
		inParallel(all, func(obj extensionsv1alpha1.Object) { Expect(c.Delete(ctx, obj)).To(Succeed()) })
		inParallel(all, func(obj extensionsv1alpha1.Object) { eventuallyGone(ctx, obj) })
	})

	It("has each object written by its own instance only", func() {
		events, err := env.AuditEvents(nil)
		Expect(err).NotTo(HaveOccurred())
		terms, err := book.terms(events)
		Expect(err).NotTo(HaveOccurred())

		var violations []string
		written := map[object]int{}
		for _, event := range events {
			if !isOfInstance(event) || !event.IsWrite() || !event.Succeeded() {
				continue
			}
			if problem := verdict(event, terms); problem != "" {
				violations = append(violations, event.String()+": "+problem+"\n"+history(events, event.ObjectRef))
			}
			if ref := event.ObjectRef; ref.Subresource == "status" {
				written[object{resource: ref.Resource, namespace: ref.Namespace, name: ref.Name}]++
			}
		}
		Expect(violations).To(BeEmpty(), strings.Join(violations, "\n"))
		for obj := range book.classes {
			Expect(written[obj]).To(BeNumerically(">", 0), "somebody must have written the status of %v", obj)
		}
		AddReportEntry("audit log", fmt.Sprintf("%d requests, %d objects", len(events), len(book.classes)))
	})

	It("has no request of an instance forbidden", func() {
		forbidden, err := env.AuditEvents(func(event environment.AuditEvent) bool {
			// What they may do in CoreDNS' namespace comes with CoreDNS, which they deploy when they start.
			return isOfInstance(event) && event.Response.Code == 403 && event.ObjectRef.Namespace != coreDNSNamespace
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(forbidden).To(BeEmpty())
	})
})

// changingObjects are of no class yet. What is made for them is in namespace garden, as the garden instance may write
// nowhere else. Therefore of the Extensions only the one there can change.
func changingObjects(prefix string) []extensionsv1alpha1.Object {
	var out []extensionsv1alpha1.Object
	for i := range changing {
		name := fmt.Sprintf("%s-%d", prefix, i)
		out = append(out, newBucket(name, "backup-bucket-"+name, none), newEntry("garden", name, "of-garden-0", "backup-entry-"+name, none), newRecord(gardenNamespace, name, none))
	}
	return out
}

func classOf(obj extensionsv1alpha1.Object) extensionsv1alpha1.ExtensionClass {
	if class := obj.GetExtensionSpec().GetExtensionClass(); class != nil {
		return *class
	}
	return none
}

// create creates an object of a class, as soon as a former one of that name is gone.
func create(ctx context.Context, book *ledger, obj extensionsv1alpha1.Object, class extensionsv1alpha1.ExtensionClass) {
	GinkgoHelper()
	setClass(obj, class)
	Eventually(func() error {
		fresh := obj.DeepCopyObject().(client.Object)
		fresh.SetResourceVersion("")
		fresh.SetUID("")
		fresh.SetFinalizers(nil)
		fresh.SetAnnotations(nil)
		err := c.Create(ctx, fresh)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return StopTrying("creating an object").Wrap(err)
		}
		return err
	}).Should(Succeed())
	book.note(obj, class)
}

// changeClass changes the class of an object and asks for a reconcile.
func changeClass(ctx context.Context, book *ledger, obj extensionsv1alpha1.Object, class extensionsv1alpha1.ExtensionClass) {
	GinkgoHelper()
	var value any
	if class != none {
		value = class
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"gardener.cloud/operation": "reconcile"}},
		"spec":     map[string]any{"class": value},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	book.note(obj, class)
}

// remove deletes an object as it was read just before. Without that, the API server may overlook a finalizer that is added
// while it deletes: the object is gone then, and whoever held it by the finalizer does not know.
func remove(ctx context.Context, obj extensionsv1alpha1.Object) {
	GinkgoHelper()
	Eventually(func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return StopTrying("reading an object").Wrap(err)
		}
		return c.Delete(ctx, obj, client.Preconditions{UID: new(obj.GetUID()), ResourceVersion: new(obj.GetResourceVersion())})
	}).WithPolling(time.Millisecond).Should(Succeed())
}

func setClass(obj extensionsv1alpha1.Object, class extensionsv1alpha1.ExtensionClass) {
	var spec *extensionsv1alpha1.DefaultSpec
	switch obj := obj.(type) {
	case *extensionsv1alpha1.BackupBucket:
		spec = &obj.Spec.DefaultSpec
	case *extensionsv1alpha1.BackupEntry:
		spec = &obj.Spec.DefaultSpec
	case *extensionsv1alpha1.DNSRecord:
		spec = &obj.Spec.DefaultSpec
	case *extensionsv1alpha1.Extension:
		spec = &obj.Spec.DefaultSpec
	}
	*spec = defaultSpec(spec.Type, class)
}

func eventuallySucceeds(ctx context.Context, obj extensionsv1alpha1.Object) {
	GinkgoHelper()
	Eventually(func() (extensionsv1alpha1.Object, error) {
		return obj, c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}).Should(matchers.HaveSucceeded(), "%v", objectOf(obj))
}

func eventuallyGone(ctx context.Context, obj extensionsv1alpha1.Object) {
	GinkgoHelper()
	Eventually(func() bool {
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(obj), obj))
	}).Should(BeTrue(), "%v", objectOf(obj))
}

// inParallel does something with many objects, 30 at a time.
func inParallel(objects []extensionsv1alpha1.Object, do func(extensionsv1alpha1.Object)) {
	GinkgoHelper()
	var (
		group sync.WaitGroup
		slots = make(chan struct{}, 30)
	)
	for _, obj := range objects {
		slots <- struct{}{}
		group.Go(func() {
			defer GinkgoRecover()
			defer func() { <-slots }()
			do(obj)
		})
	}
	group.Wait()
}
