// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const succeeded = gardencorev1beta1.LastOperationStateSucceeded

func TestABastionIsReadyOncePeopleCanConnect(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile()))

	g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: 30 * time.Second}), "no more than a safety net")
	g.Expect(e.written).To(ContainElements("apply NetworkPolicy", "apply Secret", "create Pod", "apply Service"))
	g.Expect(e.written[1]).To(Equal("apply NetworkPolicy"), "after the finalizer, and before the Pod")
	g.Expect(e.waitsFor()).To(And(
		ContainSubstring("Pod shoot--local--foo/bastion-cli-0: it does not run yet"),
		ContainSubstring("Service shoot--local--foo/bastion-cli-0: it has no address yet"),
	))
	g.Expect(e.bastion().Status.Ingress).To(BeNil())
	g.Expect(e.pod().Spec.Containers[0].Image).To(Equal("node:2"))

	e.setAddress("172.18.255.130")
	g.Expect(e.waitsFor()).To(Equal("waiting for Pod shoot--local--foo/bastion-cli-0: it does not run yet"))
	g.Expect(e.bastion().Status.Ingress).To(BeNil(), "nobody could connect")

	e.run()
	g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{}))
	g.Expect(e.state()).To(Equal(succeeded))
	g.Expect(e.bastion().Status.LastError).To(BeNil())
	g.Expect(e.bastion().Status.Ingress).To(Equal(&corev1.LoadBalancerIngress{IP: "172.18.255.130"}))
}

func TestAnUnchangedBastionIsNotWritten(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile())).ready()
	e.restart(Options{})
	e.mustReconcile()
	g.Expect(e.sent).To(BeEmpty(), "nobody asks for anything")
}

func TestSpendsFewRequests(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile()))
	e.quietly()
	e.mustReconcile()
	g.Expect(e.sent).To(Equal([]string{
		"get Secret", // Of the credentials: it has to be known where the machines are before there is a finalizer.
		"patch Bastion", "get Secret",
		"apply NetworkPolicy", "apply Secret", "apply Service", "create Pod",
		"get Bastion", "patch status of Bastion",
	}), "a creation")

	e.run()
	e.setAddress("172.18.255.130")
	e.mustReconcile()
	g.Expect(e.sent).To(Equal([]string{"get Secret", "patch status of Bastion"}), "when the pod is ready")
	e.change(func(*extensionsv1alpha1.Bastion) {})
	e.mustReconcile()
	g.Expect(e.sent).To(Equal([]string{
		"patch Bastion", "get Secret", "apply NetworkPolicy", "apply Secret", "apply Service", "patch status of Bastion",
	}), "a reconcile that changes nothing")

	e.hold()
	g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
	e.mustReconcile()
	g.Expect(e.sent).To(Equal([]string{"get Secret", "delete Service", "get Service", "delete Pod"}), "a deletion")
	e.release()
	e.mustReconcile()
	g.Expect(e.sent).To(Equal([]string{"get Secret", "get Pod", "delete NetworkPolicy", "delete Secret", "patch Bastion"}), "its end")
	g.Expect(e.isGone()).To(BeTrue())
}

func TestChangesAreFollowed(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile())).ready()
	before := e.pod().UID

	e.change(func(b *extensionsv1alpha1.Bastion) {
		b.Spec.Ingress = []extensionsv1alpha1.BastionIngressPolicy{from("198.51.100.0/24")}
	})
	e.mustReconcile()
	g.Expect(e.written).To(ConsistOf("apply NetworkPolicy", "apply Secret", "apply Service", "patch Bastion"))
	g.Expect(e.service().Spec.LoadBalancerSourceRanges).To(Equal([]string{"198.51.100.0/24", loadbalancer.NobodyV6}))
	g.Expect(get(e, &networkingv1.NetworkPolicy{}).Spec.Ingress[0].From[0].IPBlock.CIDR).To(Equal("198.51.100.0/24"))
	g.Expect(e.pod().UID).To(Equal(before))
	g.Expect(e.state()).To(Equal(succeeded))

	e.change(func(b *extensionsv1alpha1.Bastion) { b.Spec.Ingress = nil })
	e.mustReconcile()
	g.Expect(get(e, &networkingv1.NetworkPolicy{}).Spec.Ingress).To(BeEmpty(), "nobody")

	e.setAddress("172.18.255.131")
	e.mustReconcile()
	g.Expect(e.bastion().Status.Ingress.IP).To(Equal("172.18.255.131"))
}

func TestAnAddressThatIsLostIsNotToldAnyMore(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile())).ready()
	pod := e.pod()
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	g.Expect(e.Status().Update(t.Context(), pod)).To(Succeed())
	e.waitsFor()
	g.Expect(e.bastion().Status.Ingress).NotTo(BeNil(), "it is still the Service's")

	g.Expect(e.machines.Delete(t.Context(), e.service())).To(Succeed())
	g.Expect(e.waitsFor()).To(ContainSubstring("it has no address yet"))
	g.Expect(e.bastion().Status.Ingress).To(BeNil(), "it may be somebody else's")
}

func TestOtherUserDataTakesAnotherPod(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile())).ready()
	e.hold()
	before := e.pod()
	e.change(func(b *extensionsv1alpha1.Bastion) { b.Spec.UserData = []byte("#!/bin/sh\n") })

	g.Expect(e.waitsFor()).To(ContainSubstring("waiting until Pod shoot--local--foo/bastion-cli-0 is gone, another one takes its place"))
	g.Expect(get(e, &corev1.Secret{}).Data).To(HaveKeyWithValue("userdata", []byte("#!/bin/sh\n")))
	g.Expect(e.waitsFor()).To(ContainSubstring("it is still being deleted"))
	g.Expect(e.written).To(BeEmpty())

	e.release()
	g.Expect(e.waitsFor()).To(ContainSubstring("it does not run yet"))
	g.Expect(e.pod().Annotations[AnnotationUserData]).NotTo(Equal(before.Annotations[AnnotationUserData]))
	e.run()
	e.mustReconcile()
	g.Expect(e.state()).To(Equal(succeeded))
}

func TestAPodIsReplacedWhen(t *testing.T) {
	for name, tt := range map[string]struct {
		status   corev1.PodStatus
		image    string
		replaced bool
	}{
		"it was evicted": {corev1.PodStatus{Phase: corev1.PodFailed}, "node:2", true},
		"it does not get ready with the former image of the CloudProfile": {corev1.PodStatus{Phase: corev1.PodPending}, "mistyped:2", true},
		"not when it is ready, though the CloudProfile has another image": {
			corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}, "node:1", false,
		},
		"not when it has not got ready yet": {corev1.PodStatus{Phase: corev1.PodPending}, "node:2", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newBastion(), newCluster(t, testProfile())).ready()
			pod := e.pod()
			pod.Spec.Containers[0].Image, pod.Annotations[AnnotationImage] = tt.image, tt.image
			g.Expect(e.Update(t.Context(), pod)).To(Succeed())
			pod.Status = tt.status
			g.Expect(e.Status().Update(t.Context(), pod)).To(Succeed())

			e.mustReconcile()
			if tt.replaced {
				g.Expect(e.written).To(ContainElements("delete Pod", "create Pod"))
			} else {
				g.Expect(e.written).NotTo(ContainElement(HaveSuffix("Pod")))
			}
		})
	}
}

func TestMistakesAreConfigurationProblems(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*extensionsv1alpha1.Bastion)
		err    string
	}{
		"a range that is none": {func(b *extensionsv1alpha1.Bastion) {
			b.Spec.Ingress = []extensionsv1alpha1.BastionIngressPolicy{from("everybody")}
		}, `spec.ingress[0].ipBlock.cidr: Invalid value: "everybody"`},
		"no user data": {func(b *extensionsv1alpha1.Bastion) { b.Spec.UserData = nil }, "spec.userData is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newBastion(tt.change), newCluster(t, testProfile()))
			lastError := e.lastError()
			g.Expect(lastError.Description).To(ContainSubstring(tt.err))
			g.Expect(lastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
			g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: reconciler.RetryMistake}), "it is left alone")
			g.Expect(e.left()).To(BeEmpty())
		})
	}
}

func TestNamesThatAreNoLabels(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "cli-x7k2a": true, "with.dot": false, strings.Repeat("a", 55): true, strings.Repeat("a", 56): false,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := newHost(newBastion(func(b *extensionsv1alpha1.Bastion) { b.Name = name }), nil)
			g.Expect(err).To(HaveOccurred(), "there is no Cluster")
			if ok {
				g.Expect(err).NotTo(MatchError(ContainSubstring("name")))
			} else {
				g.Expect(err).To(MatchError(ContainSubstring("create a Bastion of another name")))
			}
		})
	}
}

func TestABastionWaitsForItsShoot(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"without a Cluster":      nil,
		"without a CloudProfile": {newCluster(t, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, append(objects, newBastion())...)
			g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: reconciler.RetryCluster}))
			g.Expect(e.bastion().Status.LastError.Description).To(ContainSubstring("there is no Cluster shoot--local--foo with a CloudProfile"))
		})
	}
}

func TestTheClusterOfTheMachinesIsNotKnown(t *testing.T) {
	g := NewWithT(t)
	missing := reconciler.ConfigurationProblem(errors.New("the Secret is missing"), time.Minute)
	e := newEnv(t, newBastion(), newCluster(t, testProfile()))
	e.notFound = missing
	g.Expect(e.lastError().Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
	g.Expect(e.left()).To(BeEmpty())
	g.Expect(e.bastion().Finalizers).To(BeEmpty(), "there is nothing to delete")

	e.notFound = nil
	e.ready()
	e.notFound = missing
	g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
	g.Expect(e.lastError().Description).To(ContainSubstring("the Secret is missing"), "nothing is forgotten in another cluster")
	e.change(forceDelete)
	e.mustReconcile()
	g.Expect(e.left()).To(BeEmpty(), "if it is the seed")
	g.Expect(e.isGone()).To(BeTrue())
}

func forceDelete(b *extensionsv1alpha1.Bastion) {
	b.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
}

func TestWhatTheAPIServerRefusesIsTriedAgain(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile()))
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "services"}, objectName, errors.New("changed"))
	e.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*corev1.Service); ok && verb == "apply" {
			return conflict
		}
		return nil
	}
	_, err := e.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("applying Service shoot--local--foo/bastion-cli-0: ")))
	g.Expect(apierrors.IsConflict(err)).To(BeTrue())
	g.Expect(e.left()).To(ConsistOf("NetworkPolicy", "Secret"))

	// A restart half-way.
	e.fail = nil
	e.restart(Options{})
	e.ready()
}

func TestDeletionWaitsForThePod(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile())).ready()
	e.hold()
	g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())

	g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: 30 * time.Second}))
	g.Expect(e.waitsFor()).To(Equal("waiting until these are gone: Pod shoot--local--foo/bastion-cli-0"))
	g.Expect(e.left()).To(ConsistOf("Pod", "NetworkPolicy", "Secret"), "a Pod is never without its NetworkPolicy")

	e.release()
	e.mustReconcile()
	g.Expect(e.left()).To(BeEmpty())
	g.Expect(e.isGone()).To(BeTrue())
}

func TestDeletionBeforeTheCreationHasEnded(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile()))
	g.Expect(e.waitsFor()).To(ContainSubstring("it does not run yet"))
	g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
	e.mustReconcile()
	g.Expect(e.left()).To(BeEmpty())
	g.Expect(e.isGone()).To(BeTrue())
}

func TestADeletionThatBeganBeforeThereWasAFinalizer(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile()))
	e.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*corev1.Pod); !ok || verb != "create" {
			return nil
		}
		b := e.bastion()
		g.Expect(b.Finalizers).NotTo(BeEmpty())
		b.Finalizers = nil
		g.Expect(e.Update(t.Context(), b)).To(Succeed())
		return e.Delete(t.Context(), b)
	}
	e.mustReconcile()
	g.Expect(e.isGone()).To(BeTrue())
	g.Expect(e.left()).To(BeEmpty())
}

func TestDeletionByForceWaitsForNothing(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(forceDelete), newCluster(t, testProfile())).ready()
	e.hold()
	g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
	e.mustReconcile()
	g.Expect(e.left()).To(ConsistOf("Pod"))
	g.Expect(e.isGone()).To(BeTrue())
}

func TestAMigrationLeavesNothingAndARestoreMakesItAgain(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile())).ready()
	ask := func(operation string) {
		b := e.bastion()
		b.Annotations = map[string]string{"gardener.cloud/operation": operation}
		g.Expect(e.Update(t.Context(), b)).To(Succeed())
	}
	e.hold()
	ask("migrate")
	g.Expect(e.waitsFor()).To(ContainSubstring("until these are gone: Pod"))
	g.Expect(e.left()).To(ConsistOf("Pod", "NetworkPolicy", "Secret"))
	e.release()
	e.mustReconcile()
	g.Expect(e.state()).To(Equal(succeeded))
	g.Expect(e.left()).To(BeEmpty())
	g.Expect(e.bastion().Finalizers).To(BeEmpty())

	ask("restore")
	g.Expect(e.waitsFor()).To(ContainSubstring("it does not run yet"))
	e.setAddress("172.18.255.130")
	e.run()
	e.mustReconcile()
	g.Expect(e.state()).To(Equal(succeeded))
	g.Expect(e.bastion().Annotations).NotTo(HaveKey("gardener.cloud/operation"))
}

func TestDeletionOfABastionThatIsMigrated(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		left        []string
	}{
		"in order": {nil, []string{"Pod", "NetworkPolicy", "Secret"}},
		"by force": {map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}, []string{"Pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newBastion(), newCluster(t, testProfile())).ready()
			e.hold()
			b := e.bastion()
			b.Annotations = map[string]string{"gardener.cloud/operation": "migrate"}
			maps.Copy(b.Annotations, tt.annotations)
			g.Expect(e.Update(t.Context(), b)).To(Succeed())
			g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
			e.mustReconcile()
			g.Expect(e.left()).To(ConsistOf(tt.left))
			e.release()
			e.mustReconcile()
			g.Expect(e.isGone()).To(BeTrue())
		})
	}
}

func TestDeletionByForceIsTriedAgainIfTheSeedDoesNotAnswer(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(forceDelete), newCluster(t, testProfile())).ready()
	g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
	e.notFound = errors.New("connection refused")
	_, err := e.reconcile()
	g.Expect(err).To(MatchError(e.notFound))
	g.Expect(e.isGone()).To(BeFalse())
}

func TestDeletionAfterTheCluster(t *testing.T) {
	for name, change := range map[string]func(*extensionsv1alpha1.Bastion){
		"in order": func(*extensionsv1alpha1.Bastion) {},
		"by force": forceDelete,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := newCluster(t, testProfile())
			e := newEnv(t, newBastion(change), cluster).ready()
			g.Expect(e.Delete(t.Context(), cluster)).To(Succeed())
			g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
			e.mustReconcile()
			g.Expect(e.left()).To(BeEmpty())
			g.Expect(e.isGone()).To(BeTrue())
		})
	}
}

func TestMachinesInAnotherCluster(t *testing.T) {
	g := NewWithT(t)
	e := newRemoteEnv(t, newBastion(), newCluster(t, testProfile()))
	e.restart(Options{})

	g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}), "there is no watch")
	g.Expect(e.pod().Namespace).To(Equal("infra-shoot--local--foo"))
	g.Expect(*e.service().Spec.AllocateLoadBalancerNodePorts).To(BeTrue(), "who knows what that cluster's load balancers need")
	e.ready()
	g.Expect(e.bastion().Status.Ingress.IP).To(Equal("172.18.255.130"))

	g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
	e.mustReconcile()
	g.Expect(e.left()).To(BeEmpty())
	g.Expect(e.isGone()).To(BeTrue())
}

func TestAnotherClusterWithoutTheNamespace(t *testing.T) {
	g := NewWithT(t)
	e := newRemoteEnv(t, newBastion(), newCluster(t, testProfile()))
	e.fail = func(verb string, _ client.Object) error {
		if e.machineNamespace != "" && verb == "apply" {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, e.machineNamespace)
		}
		return nil
	}
	g.Expect(e.waitsFor()).To(ContainSubstring("the shoot's Infrastructure has to be reconciled first"))
}

func TestAnotherClusterThatDoesNotAnswer(t *testing.T) {
	g := NewWithT(t)
	e := newRemoteEnv(t, newBastion(), newCluster(t, testProfile())).ready()
	g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
	down := errors.New("connection refused")
	e.fail = func(verb string, _ client.Object) error {
		if verb == "delete" {
			return down
		}
		return nil
	}
	_, err := e.reconcile()
	g.Expect(err).To(MatchError(down))
	g.Expect(err).To(MatchError(ContainSubstring("(in the cluster of the shoot's credentials)")))

	e.change(forceDelete)
	e.mustReconcile()
	g.Expect(e.isGone()).To(BeTrue(), "what is there is left behind")
}

// TestABastionOfAFailedShoot is made and deleted, as gardenlet goes on with it.
func TestABastionOfAFailedShoot(t *testing.T) {
	g := NewWithT(t)
	cluster := newCluster(t, testProfile())
	shoot := newShoot()
	shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
	var err error
	cluster.Spec.Shoot.Raw, err = json.Marshal(shoot)
	g.Expect(err).NotTo(HaveOccurred())
	e := newEnv(t, newBastion(), cluster)
	g.Expect(e.waitsFor()).To(ContainSubstring("waiting for"))
	g.Expect(e.left()).To(ConsistOf("NetworkPolicy", "Secret", "Pod", "Service"))

	g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
	e.mustReconcile()
	g.Expect(e.left()).To(BeEmpty())
	g.Expect(e.isGone()).To(BeTrue())
}

// TestABastionFromBeforeTheKubeconfig has its objects in the seed, and credentials that lead to another cluster by now.
func TestABastionFromBeforeTheKubeconfig(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"is deleted": nil, "is deleted by force": {"confirmation.gardener.cloud/force-deletion": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newBastion(func(b *extensionsv1alpha1.Bastion) { b.Annotations = annotations }), newCluster(t, testProfile()))
			e.mustReconcile()
			g.Expect(e.left()).To(ConsistOf("NetworkPolicy", "Secret", "Pod", "Service"))

			e.machines, e.machineNamespace, e.remote = newFake(t), "infra-"+namespace, true
			g.Expect(e.Delete(t.Context(), e.bastion())).To(Succeed())
			e.mustReconcile()
			g.Expect(e.isGone()).To(BeTrue())
			e.machines, e.machineNamespace = e.WithWatch, namespace
			g.Expect(e.left()).To(BeEmpty())
		})
	}
}

// TestAPodWhoseImageAWebhookHasChangedStays has a registry's mirror in the image that the API server answers with.
func TestAPodWhoseImageAWebhookHasChangedStays(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newBastion(), newCluster(t, testProfile()))
	e.mustReconcile()
	pod := e.pod()
	pod.Spec.Containers[0].Image = "mirror.example.org/" + pod.Spec.Containers[0].Image
	g.Expect(e.Update(t.Context(), pod)).To(Succeed())
	for range 2 {
		e.mustReconcile()
		g.Expect(e.written).NotTo(ContainElement("delete Pod"))
	}
}
