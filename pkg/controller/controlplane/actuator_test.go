// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

func TestAControlPlaneIsDeployedOnceTheShootHasTheWebhooks(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)

	for range 2 {
		g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait), "no worker is held")
		g.Expect(c.managedResources()).To(ConsistOf("extension-controlplane-shoot-webhooks"))
		g.Expect(c.secrets()).To(BeEmpty())
		cp := c.controlPlane()
		g.Expect(cp.Finalizers).To(ConsistOf("extensions.gardener.cloud/controlplane"), "what is there has to be deleted some day")
		g.Expect(cp.Status.LastError.Description).To(ContainSubstring("waiting for the webhooks of the shoot"))
		g.Expect(cp.Status.LastError.Codes).To(BeEmpty())
		c.restart()
	}
	g.Expect(c.requests).NotTo(ContainElement("status ControlPlane"), "waiting is written once")

	c.healthy()
	g.Expect(c.mustReconcile().RequeueAfter).To(BeZero(), "there is nothing to poll")
	g.Expect(c.managedResources()).To(ConsistOf("extension-controlplane-shoot-webhooks", "extension-controlplane-shoot"))
	cp := c.controlPlane()
	g.Expect(cp.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(cp.Status.LastError).To(BeNil())
	g.Expect(cp.Status.ObservedGeneration).To(Equal(cp.Generation))
}

func TestTheShootGetsLocalPathProvisionerAndADefaultStorageClass(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()

	mr := c.managedResource(ShootName)
	g.Expect(mr.Spec.Class).To(BeNil(), "the GRM of the shoot applies it")
	g.Expect(mr.Spec.InjectLabels).To(Equal(map[string]string{"shoot.gardener.cloud/no-cleanup": "true"}))
	g.Expect(*mr.Spec.KeepObjects).To(BeFalse())
	deployment := c.objects(ShootName)["Deployment kube-system/local-path-provisioner"]
	containers, _, err := unstructured.NestedSlice(deployment.(*unstructured.Unstructured).Object, "spec", "template", "spec", "containers")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(containers[0]).To(HaveKeyWithValue("image", "local-path-provisioner:1"))
	g.Expect(c.objects(ShootName)).NotTo(HaveKey(HavePrefix("VerticalPodAutoscaler")))

	storageClass := c.objects(ShootName)["StorageClass /default"]
	g.Expect(storageClass.GetAnnotations()).To(Equal(map[string]string{
		"storageclass.kubernetes.io/is-default-class": "true", "defaultVolumeType": "local",
	}), "kubelet measures no volume of type hostPath")
	g.Expect(storageClass.(*unstructured.Unstructured).Object).To(And(
		HaveKeyWithValue("volumeBindingMode", "WaitForFirstConsumer"), HaveKeyWithValue("reclaimPolicy", "Delete")))

	c.setShoot(func(shoot *gardencorev1beta1.Shoot) {
		shoot.Spec.Kubernetes.VerticalPodAutoscaler = &gardencorev1beta1.VerticalPodAutoscaler{Enabled: true}
	})
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.objects(ShootName)).To(HaveKey("VerticalPodAutoscaler kube-system/local-path-provisioner"))
}

func TestACacheThatLagsBehindIsNotBelieved(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.served = c.managedResource(WebhooksName)
	mr := c.managedResource(WebhooksName)
	mr.Status.Conditions = nil
	g.Expect(c.Status().Update(t.Context(), mr)).To(Succeed())

	c.change = "another version has other webhooks"
	c.restart()
	g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
	g.Expect(c.requests).To(ContainElements("patch ManagedResource", "live ManagedResource"))
	g.Expect(c.managedResource(ShootName)).To(BeNil())
}

func TestWhatHasNoUseForWebhooksDoesNotWaitForThem(t *testing.T) {
	t.Run("a hibernated shoot gets them when it wakes up", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t, hibernate)
		g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
		g.Expect(c.managedResource(ShootName)).NotTo(BeNil())
		g.Expect(c.managedResource(WebhooksName)).NotTo(BeNil())
	})

	t.Run("an instance without webhooks", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		actuator := c.newActuator()
		g.Expect(actuator.deployWebhooks(t.Context(), c.operation())).To(Succeed())
		g.Expect(actuator.removeResource(t.Context(), c.operation(), emptyShoot, WebhooksName, actuator.deleteWebhooks)).To(Succeed())

		former := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: WebhooksName}}
		g.Expect(c.Create(t.Context(), former)).To(Succeed())
		g.Expect(actuator.deployWebhooks(t.Context(), c.operation())).To(Succeed())
		g.Expect(c.managedResource(WebhooksName)).To(BeNil(), "those from before they were switched off go")
	})
}

func TestAConfigurationIsRefusedSinceThereIsNone(t *testing.T) {
	for name, test := range map[string]struct {
		raw     string
		refused bool
	}{
		"nothing":                 {"", false},
		"null":                    {"null", false},
		"an empty object":         {" {} ", false},
		"a kind that is not ours": {`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"ControlPlaneConfig"}`, true},
		"a field":                 {`{"replicas":3}`, true},
		"no JSON":                 {"{", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t, hibernate)
			cp := c.controlPlane()
			cp.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(test.raw)}
			err := checkProviderConfig(cp)
			if !test.refused {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}

			g.Expect(err).To(MatchError(ContainSubstring("remove it")))
			if test.raw == "{" {
				return // The API server would not take it.
			}
			g.Expect(c.Update(t.Context(), cp)).To(Succeed())
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(10*time.Minute), "a mistake is not retried hot")
			g.Expect(c.controlPlane().Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
			g.Expect(c.managedResources()).To(BeEmpty())

			c.delete()
			c.mustReconcile()
			g.Expect(c.isGone()).To(BeTrue(), "a mistake does not keep it from being deleted")
		})
	}
}

func TestAClusterThatIsMissingOrHasNoShootIsReported(t *testing.T) {
	takeAway := map[string]func(g Gomega, c *cluster){
		"no Cluster": func(g Gomega, c *cluster) {
			g.Expect(c.Delete(c.t.Context(), &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		},
		"a Cluster without shoot": func(g Gomega, c *cluster) {
			cluster := &extensionsv1alpha1.Cluster{}
			g.Expect(c.Get(c.t.Context(), client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
			cluster.Spec.Shoot = runtime.RawExtension{}
			g.Expect(c.Update(c.t.Context(), cluster)).To(Succeed())
		},
	}
	for name, takeAway := range takeAway {
		for _, operation := range []string{"", "reconcile", "restore"} {
			t.Run(name+" "+operation, func(t *testing.T) {
				g := NewWithT(t)
				c := newCluster(t)
				takeAway(g, c)
				if operation != "" {
					c.ask(operation)
				}
				g.Expect(c.mustReconcile().RequeueAfter).To(Equal(reconciler.RetryCluster))
				g.Expect(c.controlPlane().Status.LastError.Description).To(ContainSubstring("there is no Cluster shoot--local--foo with a shoot"))
				g.Expect(c.managedResources()).To(BeEmpty())
			})
		}
	}

	t.Run("a migration and a deletion need no shoot, only the Cluster", func(t *testing.T) {
		for _, operation := range []string{"migrate", "delete"} {
			g := NewWithT(t)
			c := newServedCluster(t)
			c.mustReconcile()
			takeAway["a Cluster without shoot"](g, c)
			if operation == "migrate" {
				c.ask(operation)
			} else {
				c.delete()
			}
			for range 4 {
				c.mustReconcile()
			}
			g.Expect(c.managedResources()).To(BeEmpty())
		}
	})

	t.Run("the actuator does not panic", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		op := c.operation()
		op.Cluster = nil
		g.Expect(c.newActuator().Reconcile(t.Context(), op)).To(MatchError(ContainSubstring("there is no Cluster")))
	})
}

func TestAFailedShootIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t, func(shoot *gardencorev1beta1.Shoot) {
		shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
	})
	c.mustReconcile()
	g.Expect(c.managedResources()).To(BeEmpty())
	g.Expect(c.controlPlane().Finalizers).To(BeEmpty())
}

func TestAReconcileHealsWhatWasDeletedByHand(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()
	g.Expect(c.Delete(t.Context(), c.managedResource(ShootName))).To(Succeed())
	g.Expect(c.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(namespace), client.MatchingLabels{"manager-identity": "provider-local-controlplane"})).To(Succeed())

	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.objects(ShootName)).To(HaveKey("Deployment kube-system/local-path-provisioner"))
	g.Expect(c.secrets()).To(HaveLen(5))
}

func TestAReconcileThatFailsIsFinishedByTheNextProcess(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "thing", errors.New("changed"))
	for name, fails := range map[string]func(verb string, obj client.Object) bool{
		"listing Secrets": func(verb string, _ client.Object) bool { return verb == "list" },
		"creating a Secret": func(verb string, obj client.Object) bool {
			return verb == "create" && hasPrefix(obj, "ca-provider-local")
		},
		"creating the bundle": func(verb string, obj client.Object) bool {
			return verb == "create" && hasPrefix(obj, "ca-provider-local-controlplane-bundle")
		},
		"creating the data": func(verb string, obj client.Object) bool {
			return verb == "create" && hasPrefix(obj, "managedresource-")
		},
		"creating a ManagedResource": func(verb string, obj client.Object) bool { return verb == "create" && obj.GetName() == ShootName },
		"reading the webhooks": func(verb string, obj client.Object) bool {
			_, ok := obj.(*resourcesv1alpha1.ManagedResource)
			return verb == "get" && ok
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newServedCluster(t)
			c.fail = func(verb string, obj client.Object) error {
				if fails(verb, obj) {
					return conflict
				}
				return nil
			}
			_, err := c.reconcile()
			g.Expect(err).To(MatchError(conflict))
			g.Expect(c.controlPlane().Status.LastError.Description).To(ContainSubstring("changed"))

			c.fail = nil
			c.restart()
			c.mustReconcile()
			g.Expect(c.controlPlane().Status.LastError).To(BeNil())
			g.Expect(c.managedResources()).To(HaveLen(2))
			g.Expect(c.secrets()).To(HaveLen(5))
			g.Expect(c.secrets()).To(HaveEach(HaveLen(1)), "what the first one made is taken over")
		})
	}
}

func hasPrefix(obj client.Object, prefix string) bool {
	return len(obj.GetName()) >= len(prefix) && obj.GetName()[:len(prefix)] == prefix
}

func TestAReconcileWaitsForADeletionThatIsStillUnderWay(t *testing.T) {
	for _, name := range []string{WebhooksName, ShootName} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newServedCluster(t)
			c.mustReconcile()
			c.serve([]string{grmFinalizer}, name)
			g.Expect(c.Delete(t.Context(), c.managedResource(name))).To(Succeed())

			c.ask("reconcile")
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(retryWait))
			g.Expect(c.controlPlane().Status.LastError.Description).To(ContainSubstring(resources.ErrDeleting.Error()))

			c.serve(nil, name)
			c.mustReconcile()
			if name == WebhooksName {
				c.healthy()
				c.mustReconcile()
			}
			g.Expect(c.managedResource(name)).NotTo(BeNil())
			g.Expect(c.controlPlane().Status.LastError).To(BeNil())
		})
	}
}

func TestAChartThatRefusesTheValuesIsNoMistakeOfTheOwner(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.opts.LocalPathProvisioner.Image = "not an image"
	c.restart()
	g.Expect(c.mustReconcile().RequeueAfter).To(Equal(10 * time.Minute))
	g.Expect(c.controlPlane().Status.LastError.Description).To(ContainSubstring("refuses the values"))
	g.Expect(c.controlPlane().Status.LastError.Codes).To(BeEmpty(), "gardenlet would give up")
}

func TestARestoreDeploysAgainAndKeepsTheSecrets(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()
	authority := c.secrets()[authorityName][0]
	g.Expect(authority.Labels).To(HaveKeyWithValue("persist", "true"), "Gardener takes it along")

	c.ask("migrate")
	for range 4 {
		c.mustReconcile()
	}
	g.Expect(c.managedResources()).To(BeEmpty())

	c.ask("restore")
	c.mustReconcile()
	c.healthy()
	c.mustReconcile()
	g.Expect(c.secrets()[authorityName]).To(HaveLen(1))
	g.Expect(c.secrets()[authorityName][0].Data).To(Equal(authority.Data))
	cp := c.controlPlane()
	g.Expect(cp.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeRestore))
	g.Expect(cp.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(cp.Finalizers).To(HaveLen(1))
	g.Expect(cp.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
	g.Expect(*c.managedResource(ShootName).Spec.KeepObjects).To(BeFalse())
}
