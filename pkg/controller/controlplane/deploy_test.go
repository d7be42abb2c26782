// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

func (c *cluster) deployment(object client.Object) *appsv1.Deployment {
	c.t.Helper()
	out := &appsv1.Deployment{}
	NewWithT(c.t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, out)).To(Succeed())
	return out
}

// volumeSecret returns the name of the Secret in a volume of a Deployment.
func (c *cluster) volumeSecret(object client.Object, volume string) string {
	c.t.Helper()
	for _, candidate := range c.deployment(object).Spec.Template.Spec.Volumes {
		if candidate.Name == volume {
			return candidate.Secret.SecretName
		}
	}
	return ""
}

func (c *cluster) cloudController() *appsv1.Deployment {
	c.t.Helper()
	return c.deployment(c.objects(SeedName)["Deployment "+namespace+"/cloud-controller"])
}

func TestCloudControllerIsDeployedBesideTheControlPlane(t *testing.T) {
	g := NewWithT(t)
	c := newDeployedCluster(t)

	g.Expect(c.managedResource(SeedName).Spec.Class).To(HaveValue(Equal("seed")))
	g.Expect(c.managedResource(SeedName).Spec.InjectLabels).To(BeEmpty())
	for name, object := range c.objects(SeedName) {
		g.Expect(object.GetNamespace()).To(Equal(namespace), name)
	}
	g.Expect(c.objects(ShootName)).To(And(HaveKey("ClusterRole /provider-local:cloud-controller"), HaveKey("ClusterRoleBinding /provider-local:cloud-controller")))

	deployment := c.cloudController()
	g.Expect(deployment.Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
	volumes := deployment.Spec.Template.Spec.Volumes
	sources := volumes[len(volumes)-1].Projected.Sources
	g.Expect(sources[0].Secret.Name).To(Equal("generic-token-kubeconfig-1234"))
	g.Expect(sources[1].Secret.Name).To(Equal("shoot-access-cloud-controller"))

	token := &corev1.Secret{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "shoot-access-cloud-controller"}, token)).To(Succeed())
	g.Expect(token.Labels).To(HaveKeyWithValue("resources.gardener.cloud/purpose", "token-requestor"))
	g.Expect(token.Annotations).To(HaveKeyWithValue("serviceaccount.resources.gardener.cloud/name", "cloud-controller"))
}

func TestASelfHostedShootKeepsTheTwoApart(t *testing.T) {
	g := NewWithT(t)
	// There, the namespace of the control plane is kube-system.
	object := func(kind, namespace string) client.Object {
		out := &unstructured.Unstructured{}
		out.SetKind(kind)
		out.SetNamespace(namespace)
		return out
	}
	seed := resources.ManagedResource{Namespace: "kube-system"}
	shoot := resources.ManagedResource{Namespace: "kube-system", Objects: []client.Object{object("Deployment", "kube-system"), object("StorageClass", "")}}
	addCloudController(&seed, &shoot, []client.Object{object("Deployment", "kube-system"), object("ClusterRole", "")})
	g.Expect([]int{len(seed.Objects), len(shoot.Objects)}).To(Equal([]int{1, 3}))
}

func TestMachinesThatNobodyManagesHaveNoCloudController(t *testing.T) {
	for name, credentials := range map[string]*string{"managed": new("local"), "not managed": nil} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newServedCluster(t, func(shoot *gardencorev1beta1.Shoot) {
				shoot.Spec.Provider.Workers[0].ControlPlane = &gardencorev1beta1.WorkerControlPlane{}
				shoot.Spec.CredentialsBindingName = credentials
			})
			c.opts.DeployCloudController = true
			c.restart()
			c.mustReconcile()
			g.Expect(c.managedResource(ShootName)).NotTo(BeNil())
			g.Expect(c.managedResource(SeedName) != nil).To(Equal(credentials != nil))
		})
	}
}

func TestACloudControllerThatIsSwitchedOffIsRemoved(t *testing.T) {
	g := NewWithT(t)
	c := newDeployedCluster(t)
	c.opts.DeployCloudController = false
	c.restart()
	c.ask("reconcile")

	g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
	g.Expect(c.isDeleting(SeedName)).To(BeTrue())
	g.Expect(c.objects(ShootName)).NotTo(HaveKey("ClusterRole /provider-local:cloud-controller"))
	err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "shoot-access-cloud-controller"}, &corev1.Secret{})
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	g.Expect(err).To(HaveOccurred())

	c.serve(nil, SeedName)
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.requests).NotTo(ContainElement("delete ManagedResource"), "what is off costs nothing")
}

func TestCloudControllerWorksUntilKubeAPIServerIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		shoot     func(*gardencorev1beta1.Shoot)
		apiServer *int32
		requeue   time.Duration
		replicas  int32
	}{
		"an awake shoot": {func(*gardencorev1beta1.Shoot) {}, new(int32(2)), 0, 1},
		"an awake shoot whose kube-apiserver is down":   {func(*gardencorev1beta1.Shoot) {}, new(int32(0)), 0, 1},
		"a shoot that is being hibernated":              {hibernate, new(int32(2)), 2 * time.Second, 1},
		"a hibernated shoot":                            {hibernate, new(int32(0)), 0, 0},
		"a hibernated shoot that has no kube-apiserver": {hibernate, nil, 0, 0},
		"a hibernated shoot that is migrated": {func(shoot *gardencorev1beta1.Shoot) {
			hibernate(shoot)
			shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: gardencorev1beta1.LastOperationTypeMigrate}
		}, new(int32(0)), 0, 1},
		"a hibernated shoot that is deleted": {func(shoot *gardencorev1beta1.Shoot) {
			hibernate(shoot)
			shoot.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}, new(int32(0)), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newServedCluster(t)
			if test.apiServer != nil {
				g.Expect(c.Create(t.Context(), &appsv1.Deployment{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-apiserver"},
					Spec:       appsv1.DeploymentSpec{Replicas: test.apiServer},
				})).To(Succeed())
			}
			c.setShoot(test.shoot)
			c.opts.DeployCloudController = true
			c.restart()

			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(test.requeue))
			g.Expect(c.cloudController().Spec.Replicas).To(HaveValue(Equal(test.replicas)))
			g.Expect(c.controlPlane().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded), "else Gardener would not go on to scale it down")
		})
	}

	t.Run("it is looked at again until it sleeps, too", func(t *testing.T) {
		g := NewWithT(t)
		c := newServedCluster(t, hibernate)
		apiServer := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-apiserver"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
		g.Expect(c.Create(t.Context(), apiServer)).To(Succeed())
		c.opts.DeployCloudController = true
		c.restart()
		c.ask("reconcile")
		g.Expect(c.mustReconcile().RequeueAfter).To(Equal(hibernatedWait))

		for range 2 {
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(hibernatedWait))
			g.Expect(c.requests).To(ConsistOf("live Deployment"))
		}
		c.setShoot(hibernate, func(shoot *gardencorev1beta1.Shoot) {
			shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
		})
		g.Expect(c.mustReconcile().RequeueAfter).To(BeZero(), "the Cluster tells when the shoot is repaired")
		c.setShoot(hibernate)
		apiServer.Spec.Replicas = new(int32(0))
		g.Expect(c.Update(t.Context(), apiServer)).To(Succeed())
		g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
		g.Expect(c.cloudController().Spec.Replicas).To(HaveValue(BeZero()))
		g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
		g.Expect(c.requests).To(BeEmpty())
	})

	for name, test := range map[string]struct {
		// meanwhile happens while no instance runs.
		meanwhile func(*cluster, *appsv1.Deployment)
		wakes     bool
		replicas  int32
	}{
		"kube-apiserver is still there": {func(*cluster, *appsv1.Deployment) {}, true, 1},
		"kube-apiserver is gone": {func(c *cluster, apiServer *appsv1.Deployment) {
			apiServer.Spec.Replicas = new(int32(0))
			NewWithT(t).Expect(c.Update(t.Context(), apiServer)).To(Succeed())
		}, true, 0},
		"somebody has changed his mind": {func(c *cluster, _ *appsv1.Deployment) { c.setShoot() }, false, 1},
	} {
		t.Run("the next instance goes on if "+name, func(t *testing.T) {
			g := NewWithT(t)
			c := newServedCluster(t, hibernate)
			apiServer := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-apiserver"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
			g.Expect(c.Create(t.Context(), apiServer)).To(Succeed())
			c.opts.DeployCloudController = true
			c.restart()
			c.ask("reconcile")
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(hibernatedWait))

			c.restart()
			test.meanwhile(c, apiServer)
			c.requests = nil
			g.Expect(c.isQueuedAtStart()).To(Equal(test.wakes))
			g.Expect(c.requests).To(BeEmpty(), "there are many ControlPlanes at the start")
			isDue := BeZero()
			if test.replicas == 1 && test.wakes {
				isDue = BeNumerically(">", 0)
			}
			g.Expect(c.mustReconcile().RequeueAfter).To(isDue, "it is looked at again")
			g.Expect(c.cloudController().Spec.Replicas).To(HaveValue(Equal(test.replicas)))

			apiServer.Spec.Replicas = new(int32(0))
			g.Expect(c.Update(t.Context(), apiServer)).To(Succeed())
			c.mustReconcile()
			if test.wakes {
				g.Expect(c.cloudController().Spec.Replicas).To(HaveValue(BeZero()))
			}
			c.restart()
			g.Expect(c.isQueuedAtStart()).To(BeFalse(), "there is nothing left to do")
		})
	}

	t.Run("without a cloud-controller nobody asks", func(t *testing.T) {
		g := NewWithT(t)
		c := newServedCluster(t, hibernate)
		g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
		g.Expect(c.requests).NotTo(ContainElement("live Deployment"))
	})

	t.Run("an API server that does not answer is not taken for one that is gone", func(t *testing.T) {
		g := NewWithT(t)
		c := newServedCluster(t, hibernate)
		c.opts.DeployCloudController = true
		c.restart()
		c.ask("reconcile")
		c.fail = func(verb string, obj client.Object) error {
			if _, ok := obj.(*appsv1.Deployment); ok && verb == "live" {
				return errors.New("no answer")
			}
			return nil
		}
		_, err := c.reconcile()
		g.Expect(err).To(MatchError(ContainSubstring("no answer")))
		g.Expect(c.managedResource(SeedName)).To(BeNil())
	})
}

// benchmarked returns a step that renders, compresses and applies what one ControlPlane needs.
func benchmarked(b *testing.B) (*cluster, func()) {
	b.Helper()
	c := newServedCluster(b)
	actuator, op := c.newActuator(), c.operation()
	return c, func() {
		actuator.LocalPathProvisioner.Image = c.opts.LocalPathProvisioner.Image
		if err := actuator.deploy(b.Context(), op, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReconcileUnchanged is a ControlPlane like the last time: nothing is rendered or compressed.
func BenchmarkReconcileUnchanged(b *testing.B) {
	_, deploy := benchmarked(b)
	deploy()
	b.ReportAllocs()
	for b.Loop() {
		deploy()
	}
}

// BenchmarkReconcileChanged is a ControlPlane with a new image each time: the chart is rendered, and the ManagedResource is
// compressed and written.
func BenchmarkReconcileChanged(b *testing.B) {
	c, deploy := benchmarked(b)
	deploy()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.opts.LocalPathProvisioner.Image = "local-path-provisioner:" + time.Duration(i).String()
		deploy()
	}
}

func TestANewImageReachesTheShoot(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()
	before := c.managedResource(ShootName).Spec.SecretRefs[0]
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.managedResource(ShootName).Spec.SecretRefs[0]).To(Equal(before))

	c.opts.LocalPathProvisioner.Image = "local-path-provisioner:2"
	c.restart()
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.managedResource(ShootName).Spec.SecretRefs[0]).NotTo(Equal(before))
	g.Expect(c.requests).To(ContainElement("patch ManagedResource"))
}

// addFormerStorageClasses has the StorageClass in a ManagedResource of its own, as the provider-local of Gardener has it.
func (c *cluster) addFormerStorageClasses() {
	c.t.Helper()
	NewWithT(c.t).Expect(c.Create(c.t.Context(), &resourcesv1alpha1.ManagedResource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: FormerStorageClassesName, Finalizers: []string{grmFinalizer}},
		Spec:       resourcesv1alpha1.ManagedResourceSpec{KeepObjects: new(false)},
	})).To(Succeed())
}

func TestTheStorageClassMovesWithoutBeingDeleted(t *testing.T) {
	t.Run("once the other ManagedResource has it", func(t *testing.T) {
		g := NewWithT(t)
		c := newServedCluster(t)
		c.addFormerStorageClasses()
		c.fail = func(verb string, obj client.Object) error {
			if verb == "create" && obj.GetName() == ShootName {
				return errors.New("no answer")
			}
			return nil
		}
		_, err := c.reconcile()
		g.Expect(err).To(HaveOccurred())
		g.Expect(c.isDeleting(FormerStorageClassesName)).To(BeFalse())

		c.fail = nil
		g.Expect(c.mustReconcile().RequeueAfter).To(BeZero(), "it is not waited for")
		g.Expect(c.objects(ShootName)).To(HaveKey("StorageClass /default"))
		g.Expect(c.isDeleting(FormerStorageClassesName)).To(BeTrue())
		g.Expect(*c.managedResource(FormerStorageClassesName).Spec.KeepObjects).To(BeTrue())

		for range 2 {
			c.ask("reconcile")
			c.mustReconcile()
			g.Expect(c.requests).NotTo(ContainElement(HaveSuffix("ManagedResource")), "GRM is at it, or it is gone")
			c.serve(nil, c.managedResources()...)
		}
		g.Expect(c.managedResource(FormerStorageClassesName)).To(BeNil())
	})

	t.Run("but not while there is nobody to let go of it", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t, hibernate)
		c.addFormerStorageClasses()
		c.mustReconcile()
		g.Expect(c.isDeleting(FormerStorageClassesName)).To(BeFalse())
	})

	for name, kept := range map[string]bool{"delete": false, "migrate": true} {
		t.Run("or with the shoot's other objects: "+name, func(t *testing.T) {
			g := NewWithT(t)
			c := newDeployedCluster(t)
			c.addFormerStorageClasses()
			if kept {
				c.ask(name)
			} else {
				c.delete()
			}
			c.mustReconcile()
			g.Expect(c.isDeleting(FormerStorageClassesName)).To(BeTrue())
			g.Expect(c.isDeleting(ShootName)).To(BeFalse())
			g.Expect(*c.managedResource(FormerStorageClassesName).Spec.KeepObjects).To(Equal(kept))
			c.serve(nil, FormerStorageClassesName)
			c.mustReconcile()
			g.Expect(c.isDeleting(ShootName)).To(BeTrue())
		})
	}
}
