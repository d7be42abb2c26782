// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

var _ = Describe("Objects of type mock", Ordered, func() {
	var ofGarden, ofSeed, ofShoot, all []extensionsv1alpha1.Object

	It("of all kinds and classes succeed with two writes, and one for what they have", func(ctx SpecContext) {
		ofGarden = forAll(gardenNamespace, "of-garden", garden)
		ofSeed = forAll("of-seed", "of-seed", seed)
		Expect(env.CreateNamespaces(ctx, "of-seed")).To(Succeed())
		ofShoot = append(forAll(shootNamespace, "of-shoot", shoot), forShoot(shootNamespace, "of-shoot")...)
		all = append(append(append(all, ofGarden...), ofSeed...), ofShoot...)
		inGarden.requests.Reset()
		inSeed.requests.Reset()
		create(ctx, all...)
		eventuallySucceed(ctx, all...)

		for _, obj := range all {
			requests := inSeed.requests.List()
			if classOf(obj) == garden {
				requests = inGarden.requests.List()
			}
			var own []string
			for _, cost := range costs(requests, nameOf(obj)) {
				if strings.HasPrefix(strings.TrimPrefix(cost, "PATCH "), resourceOf(obj)) {
					own = append(own, cost)
				}
			}
			expected := []string{"PATCH " + resourceOf(obj), "PATCH " + resourceOf(obj) + "/status"}
			switch obj.(type) {
			case *extensionsv1alpha1.Bastion, *extensionsv1alpha1.ContainerRuntime: // Two failures that are the same; a delay.
				expected = append(expected, expected[1])
			}
			Expect(own).To(ConsistOf(expected), "%s", describe(obj))
		}
		Expect(refused(inSeed.requests.List())).To(BeEmpty())
		Expect(refused(inGarden.requests.List())).To(BeEmpty())
	})

	It("have what Gardener reads", func(ctx SpecContext) {
		for _, obj := range ofShoot {
			switch obj := obj.(type) {
			case *extensionsv1alpha1.Infrastructure:
				Expect(obj.Status.Networking.Nodes).To(HaveExactElements("10.5.0.0/16"))
				Expect(obj.Status.EgressCIDRs).To(HaveLen(1))
			case *extensionsv1alpha1.Worker:
				Expect(obj.Status.MachineDeployments).To(HaveLen(2))
				Expect(obj.Status.MachineDeploymentsLastUpdateTime).NotTo(BeNil())
			case *extensionsv1alpha1.OperatingSystemConfig:
				ref := obj.Status.CloudConfig.SecretRef
				secret := &corev1.Secret{}
				Expect(c.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, secret)).To(Succeed())
				Expect(metav1.IsControlledBy(secret, obj)).To(BeTrue())
			case *extensionsv1alpha1.Bastion:
				Expect(obj.Status.Ingress.IP).NotTo(BeEmpty())
			}
		}
		for _, namespace := range []string{gardenNamespace, "of-seed", shootNamespace} {
			secret := &corev1.Secret{}
			Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "etcd-backup"}, secret)).To(Succeed())
			Expect(secret.Data).To(HaveKeyWithValue("bucketName", []byte("bucket")))
		}
	})

	It("are reconciled again when Gardener asks for it", func(ctx SpecContext) {
		annotate(ctx, "reconcile", all...)
		eventuallySucceed(ctx, all...)
		for _, obj := range all {
			Expect(obj.GetExtensionStatus().GetLastOperation().Type).To(Equal(gardencorev1beta1.LastOperationTypeReconcile), describe(obj))
		}
	})

	It("cost nothing when an instance starts anew", func() {
		for _, i := range []*instance{inGarden, inSeed} {
			i.Stop()
			i.requests.Reset()
			i.start()
		}
		bucket := forAll("after-restart", "of-seed", seed)[0]
		create(context.Background(), bucket)
		eventuallySucceed(context.Background(), bucket)
		Expect(costs(inSeed.requests.Writes(), "of-seed")).To(ConsistOf("PATCH backupbuckets", "PATCH backupbuckets/status"), "only those for the new one")
		Expect(costs(inSeed.requests.Writes(), "of-shoot")).To(BeEmpty())
		remove(context.Background(), bucket)
	})

	It("of failed shoots and other types are left alone", func(ctx SpecContext) {
		failed := stopped(forShoot(failedNamespace, "failed"))
		local := forShoot(shootNamespace, "local")[3].(*extensionsv1alpha1.Infrastructure)
		local.Spec.Type = "local"
		create(ctx, append(failed, local)...)
		after := forAll(shootNamespace, "after-failed", shoot)
		create(ctx, after...)
		eventuallySucceed(ctx, after...)
		for _, obj := range append(failed, local) {
			Expect(get(ctx, obj)()).To(HaveField("Finalizers", BeEmpty()), describe(obj))
		}
		remove(ctx, append(append(failed, local), after...)...)
		eventuallyGone(ctx, append(append(failed, local), after...)...)
	})

	It("of a failed shoot are reconciled and deleted when it is repaired", func(ctx SpecContext) {
		// Buckets and entries have no shoot, and the deletion of the last but one is configured to fail.
		waiting := slices.Concat(forAll(failedNamespace, "repaired", shoot)[2:], forShoot(failedNamespace, "repaired")[:6])
		create(ctx, waiting...)
		after := forAll(shootNamespace, "before-repair", shoot)
		create(ctx, after...)
		eventuallySucceed(ctx, after...)
		for _, obj := range stopped(waiting) {
			Expect(get(ctx, obj)()).To(HaveField("Finalizers", BeEmpty()), describe(obj))
		}

		setShoot(ctx, failedNamespace, nil)
		eventuallySucceed(ctx, waiting...)
		setShoot(ctx, failedNamespace, hasFailed)
		again := forAll(shootNamespace, "failed-again", shoot)
		create(ctx, again...)
		eventuallySucceed(ctx, again...)
		remove(ctx, waiting...)
		setShoot(ctx, failedNamespace, nil)
		eventuallyGone(ctx, waiting...)

		setShoot(ctx, failedNamespace, hasFailed)
		remove(ctx, append(after, again...)...)
		eventuallyGone(ctx, append(after, again...)...)
	})

	It("are migrated, and restored in the next seed", func(ctx SpecContext) {
		moving := append(forAll(shootNamespace, "moving", shoot), forShoot(shootNamespace, "moving")...)
		create(ctx, moving...)
		eventuallySucceed(ctx, moving...)
		annotate(ctx, "migrate", moving...)
		for _, obj := range moving {
			Eventually(get(ctx, obj)).Should(And(
				HaveField("Status.LastOperation.Type", gardencorev1beta1.LastOperationTypeMigrate),
				HaveField("Status.LastOperation.State", gardencorev1beta1.LastOperationStateSucceeded),
				HaveField("Finalizers", BeEmpty()), HaveField("Annotations", Not(HaveKey("gardener.cloud/operation"))),
			), describe(obj))
		}
		remove(ctx, moving...)
		eventuallyGone(ctx, moving...)

		moved := append(forAll(shootNamespace, "moving", shoot), forShoot(shootNamespace, "moving")...)
		for _, obj := range moved {
			obj.SetAnnotations(map[string]string{"gardener.cloud/operation": "wait-for-state"})
			Expect(c.Create(ctx, obj)).To(Succeed())
		}
		annotate(ctx, "restore", moved...)
		eventuallySucceed(ctx, moved...)
		for _, obj := range moved {
			Expect(obj.GetExtensionStatus().GetLastOperation().Type).To(Equal(gardencorev1beta1.LastOperationTypeRestore), describe(obj))
		}
		var withoutExposure []extensionsv1alpha1.Object
		for _, obj := range moved {
			if _, ok := obj.(*extensionsv1alpha1.SelfHostedShootExposure); !ok {
				withoutExposure = append(withoutExposure, obj)
			}
		}
		remove(ctx, withoutExposure...)
		eventuallyGone(ctx, withoutExposure...)
	})

	It("fail as configured, with the error and its code", func(ctx SpecContext) {
		bastion := forShoot(shootNamespace, "failing")[0]
		create(ctx, bastion)
		Eventually(get(ctx, bastion)).WithPolling(5 * time.Millisecond).Should(HaveField("Status.LastError", HaveValue(And(
			HaveField("Description", "No machine left"), HaveField("Codes", HaveExactElements(gardencorev1beta1.ErrorInfraResourcesDepleted))))))
		eventuallySucceed(ctx, bastion)
		remove(ctx, bastion)
		eventuallyGone(ctx, bastion)
	})

	It("go on after a restart in the middle of a delay", func(ctx SpecContext) {
		runtime := forShoot(shootNamespace, "delayed")[1]
		create(ctx, runtime)
		Eventually(get(ctx, runtime)).Should(HaveField("Status.LastOperation", HaveValue(HaveField("State", gardencorev1beta1.LastOperationStateProcessing))))
		inSeed.Stop()
		Expect(get(ctx, runtime)()).To(HaveField("Status.LastOperation.State", gardencorev1beta1.LastOperationStateProcessing))
		inSeed.start()
		eventuallySucceed(ctx, runtime)
		Expect(time.Since(runtime.GetCreationTimestamp().Time)).To(BeNumerically(">", 2*time.Second))

		By("deleting one that is under way")
		other := forShoot(shootNamespace, "interrupted")[1]
		create(ctx, other)
		Eventually(get(ctx, other)).Should(HaveField("Status.LastOperation", HaveValue(HaveField("State", gardencorev1beta1.LastOperationStateProcessing))))
		remove(ctx, other, runtime)
		eventuallyGone(ctx, other, runtime)
	})

	It("whose deletion fails go when it is forced", func(ctx SpecContext) {
		exposure := forShoot(shootNamespace, "moving")[6]
		remove(ctx, exposure)
		Eventually(get(ctx, exposure)).Should(HaveField("Status.LastError", HaveValue(HaveField("Description", ContainSubstring("injected by the configuration")))))

		setShoot(ctx, shootNamespace, func(shoot *gardencorev1beta1.Shoot) {
			shoot.DeletionTimestamp = new(metav1.Now())
			shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
		})
		eventuallyGone(ctx, exposure)
	})

	It("are deleted with one write, and two requests for an etcd-backup Secret", func(ctx SpecContext) {
		inSeed.requests.Reset()
		inGarden.requests.Reset()
		remove(ctx, all...)
		eventuallyGone(ctx, all...)
		Expect(costs(inSeed.requests.List(), "of-shoot")).To(HaveLen(len(ofShoot)))
		Expect(costs(inGarden.requests.List(), "of-garden")).To(HaveLen(len(ofGarden)))
		Expect(refused(inSeed.requests.List())).To(BeEmpty())
		secrets := &corev1.SecretList{}
		Expect(c.List(ctx, secrets, client.MatchingFields{"metadata.name": "etcd-backup"})).To(Succeed())
		Expect(secrets.Items).To(BeEmpty())
	})

	It("are cheap by the thousand", func(ctx SpecContext) {
		const count = 1000
		inSeed.requests.Reset()
		objects := make([]extensionsv1alpha1.Object, count)
		for i := range objects {
			objects[i] = &extensionsv1alpha1.Extension{
				ObjectMeta: metav1.ObjectMeta{Namespace: "of-seed", Name: fmt.Sprintf("many-%d", i)}, Spec: extensionsv1alpha1.ExtensionSpec{DefaultSpec: spec(seed)},
			}
		}
		began := time.Now()
		inParallel(objects, func(obj extensionsv1alpha1.Object) { create(ctx, obj) })
		Eventually(func(g Gomega) {
			list := &extensionsv1alpha1.ExtensionList{}
			g.Expect(c.List(ctx, list, client.InNamespace("of-seed"))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(count))
			for _, item := range list.Items {
				g.Expect(item.Status.ObservedGeneration).To(Equal(item.Generation))
			}
		}).Should(Succeed())
		took := time.Since(began)
		AddReportEntry("1,000 objects created by 20 clients and made ready", fmt.Sprintf("%s, %.0f a second", took.Round(time.Millisecond), count/took.Seconds()))

		writes := 0
		for _, request := range inSeed.requests.List() {
			if strings.Contains(request.Path, "/extensions/many-") {
				writes++
			}
		}
		Expect(writes).To(Equal(2 * count))
		Expect(refused(inSeed.requests.List())).To(BeEmpty())

		Expect(c.DeleteAllOf(ctx, &extensionsv1alpha1.Extension{}, client.InNamespace("of-seed"))).To(Succeed())
		Eventually(func() (int, error) {
			list := &extensionsv1alpha1.ExtensionList{}
			err := c.List(ctx, list, client.InNamespace("of-seed"))
			return len(list.Items), err
		}).Should(BeZero())
	})

	It("are written by the instance of their class, which has the permissions for it", func() {
		events, err := env.AuditEvents(func(event environment.AuditEvent) bool {
			return event.User.Username == gardenUser || event.User.Username == seedUser
		})
		Expect(err).NotTo(HaveOccurred())
		seen := map[string]int{}
		for _, event := range events {
			Expect(event.Response.Code).NotTo(Equal(403), event.String())
			ref := event.ObjectRef
			if ref.Group != "extensions.gardener.cloud" || !event.IsWrite() {
				continue
			}
			user := seedUser
			if ref.Namespace == gardenNamespace || strings.HasPrefix(ref.Name, gardenNamespace+"-") {
				user = gardenUser
			}
			Expect(event.User.Username).To(Equal(user), event.String())
			seen[event.User.Username]++
		}
		Expect(seen).To(And(HaveKey(gardenUser), HaveKey(seedUser)))
	})
})

// nameOf returns the part of an object's name that its requests are found by.
func nameOf(obj extensionsv1alpha1.Object) string {
	return "of-" + string(classOf(obj))
}

func resourceOf(obj extensionsv1alpha1.Object) string {
	mapping, err := c.GroupVersionKindFor(obj)
	Expect(err).NotTo(HaveOccurred())
	rest, err := c.RESTMapper().RESTMapping(mapping.GroupKind(), mapping.Version)
	Expect(err).NotTo(HaveOccurred())
	return rest.Resource.Resource
}

// inParallel does something with many objects, 20 at a time.
func inParallel(objects []extensionsv1alpha1.Object, do func(extensionsv1alpha1.Object)) {
	GinkgoHelper()
	var (
		group sync.WaitGroup
		slots = make(chan struct{}, 20)
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

// stopped returns the objects that wait for the repair of a failed shoot: all but Bastions and SelfHostedShootExposures.
func stopped(objects []extensionsv1alpha1.Object) []extensionsv1alpha1.Object {
	return slices.DeleteFunc(slices.Clone(objects), func(obj extensionsv1alpha1.Object) bool {
		switch obj.(type) {
		case *extensionsv1alpha1.Bastion, *extensionsv1alpha1.SelfHostedShootExposure:
			return true
		}
		return false
	})
}
