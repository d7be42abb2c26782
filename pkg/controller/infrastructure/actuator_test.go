// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	remoteNamespace = "infra-" + namespace
	poolV4          = "shoot-machines-" + namespace + "-ipv4"
)

func TestWithMachinesInTheSeed(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, true)
	g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{}))

	g.Expect(e.policy(namespace, MachinesPolicy)).NotTo(BeNil())
	g.Expect(e.policy(namespace, ControlPlanePolicy)).NotTo(BeNil())
	pool := e.pool(poolV4)
	g.Expect(pool.Object["spec"]).To(Equal(map[string]any{
		"cidr": "10.0.0.0/16", "nodeSelector": "!all()", "natOutgoing": true, "ipipMode": "Always", "vxlanMode": "Never",
	}))
	g.Expect(pool.GetOwnerReferences()).To(ConsistOf(metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: "seed"}))

	status := e.infrastructure().Status
	g.Expect(status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(status.Networking).To(Equal(&extensionsv1alpha1.InfrastructureStatusNetworking{
		Nodes: []string{"10.0.0.0/16"}, Pods: []string{"10.3.0.0/16"}, Services: []string{"10.4.0.0/16"},
	}))
	g.Expect(status.EgressCIDRs).To(Equal([]string{"10.0.0.0/16"}))
	g.Expect(e.providerStatus()).To(Equal(localv1alpha1.InfrastructureStatus{
		TypeMeta:         metav1.TypeMeta{APIVersion: "local.provider.extensions.gardener.cloud/v1alpha1", Kind: "InfrastructureStatus"},
		MachineNamespace: namespace,
		IPPools:          []localv1alpha1.MachineIPPool{{IPFamily: ipv4, Name: poolV4, CIDR: "10.0.0.0/16"}},
	}))

	e.ask("reconcile")
	e.restart()
	e.mustReconcile()
	g.Expect(e.only()).To(Equal([]string{"apply NetworkPolicy", "apply NetworkPolicy", "list IPPoolList"}), "nothing is created")

	e.delete()
	e.mustReconcile()
	g.Expect(e.infrastructure()).To(BeNil())
	g.Expect(e.policy(namespace, MachinesPolicy)).To(BeNil())
	g.Expect(e.policy(namespace, ControlPlanePolicy)).To(BeNil())
	g.Expect(e.pool(poolV4)).To(BeNil())
	g.Expect(e.has(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(BeTrue(), "it is gardenlet's")
}

func TestWithMachinesInAnotherCluster(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, true, true)
	e.mustReconcile()

	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}}
	g.Expect(e.other.has(made)).To(BeTrue())
	g.Expect(made.Labels).To(Equal(map[string]string{"gardener.cloud/role": "infra", "pod-security.kubernetes.io/enforce": "privileged"}))
	g.Expect(e.other.policy(remoteNamespace, MachinesPolicy)).NotTo(BeNil())
	g.Expect(e.other.pool(poolV4)).NotTo(BeNil())
	g.Expect(e.policy(namespace, MachinesPolicy)).To(BeNil())
	g.Expect(e.policy(namespace, ControlPlanePolicy).Spec.Egress[0].To[0].IPBlock.CIDR).To(Equal("10.0.0.0/16"))
	g.Expect(e.pool(poolV4)).To(BeNil())
	g.Expect(e.providerStatus().MachineNamespace).To(Equal(remoteNamespace))
	g.Expect(e.infrastructure().Status.EgressCIDRs).To(Equal([]string{"10.0.0.0/16"}))

	e.ask("reconcile")
	e.mustReconcile()
	g.Expect(e.only()).To(Equal([]string{"apply NetworkPolicy", "apply NetworkPolicy", "apply NetworkPolicy"}))
	g.Expect(e.other.requests).To(Equal([]string{"get Namespace", "apply NetworkPolicy", "list IPPoolList"}))

	// An API server deletes a namespace when what is in it is gone.
	made.Finalizers = []string{"example.org/pods"}
	g.Expect(e.other.Update(t.Context(), made)).To(Succeed())
	e.delete()
	g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: retryWait}))
	g.Expect(e.requests).NotTo(ContainElement("status Infrastructure"), "an empty one is gone soon, so nothing is said about it")
	e.clock.SetTime(e.clock.Now().Add(time.Hour))
	for range 2 {
		g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: reconciler.RetryMistake}), "the longer it takes, the longer is the pause")
		infra := e.infrastructure()
		g.Expect(infra.Status.LastError).To(BeNil(), "waiting is no failure")
		g.Expect(infra.Status.LastOperation.Description).To(Equal("namespace " + remoteNamespace + " of the machines is still being deleted, its status tells why"))
		g.Expect(e.other.pool(poolV4)).NotTo(BeNil(), "machines have their addresses of it")
	}
	g.Expect(e.other.Get(t.Context(), client.ObjectKeyFromObject(made), made)).To(Succeed())
	made.Finalizers = nil
	g.Expect(e.other.Update(t.Context(), made)).To(Succeed())

	g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{}))
	g.Expect(e.infrastructure()).To(BeNil())
	g.Expect(e.other.pool(poolV4)).To(BeNil())
	g.Expect(e.policy(namespace, ControlPlanePolicy)).To(BeNil())
}

// TestAnotherClusterDoesNotSayHowOftenItIsAsked has a clock in the other cluster that is ahead, or a server that says so.
func TestAnotherClusterDoesNotSayHowOftenItIsAsked(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, true, true)
	e.mustReconcile()
	e.clusters.other = interceptor.NewClient(e.other, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if _, ok := obj.(*corev1.Namespace); ok && err == nil {
				obj.SetName(strconv.Itoa(len(e.other.requests)))
				obj.SetDeletionTimestamp(new(metav1.NewTime(e.clock.Now().Add(time.Hour))))
			}
			return err
		},
	})
	e.delete()
	e.mustReconcile()
	e.clock.SetTime(e.clock.Now().Add(time.Hour))
	for range 2 {
		g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: reconciler.RetryMistake}), "the longer it takes, the longer is the pause")
		g.Expect(e.infrastructure().Status.LastOperation.Description).To(ContainSubstring("namespace " + remoteNamespace + " of the machines"))
	}
}

func TestWhatTheOperatorAllowsOpensTheWayToTheOtherClusterAsLongAsThereAreMachines(t *testing.T) {
	for operation, end := range map[string]func(*environment){
		"delete": (*environment).delete,
		"force": func(e *environment) {
			e.setShoot(func(shoot *gardencorev1beta1.Shoot) {
				shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
			})
			e.delete()
		},
	} {
		t.Run(operation, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnvironment(t, true, false)
			e.servers = prefixes("172.18.0.0/28")
			e.restart()
			e.mustReconcile()
			for _, name := range serversPolicies() {
				policy := e.policy(namespace, name)
				g.Expect(policy).NotTo(BeNil(), name)
				g.Expect(policy.Spec.Egress[0].To).To(HaveExactElements(HaveField("IPBlock.CIDR", "172.18.0.0/28")))
			}

			e.ask("reconcile")
			e.mustReconcile()
			g.Expect(e.only()).To(Equal([]string{"apply NetworkPolicy", "apply NetworkPolicy", "apply NetworkPolicy"}))

			end(e)
			e.mustReconcile()
			e.mustReconcile()
			g.Expect(e.infrastructure()).To(BeNil())
			for _, name := range serversPolicies() {
				g.Expect(e.policy(namespace, name)).To(BeNil(), name)
			}
		})
	}
}

func TestANamespaceThatIsNotOursIsRefusedAndNeverDeleted(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, true, true)
	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace, Labels: map[string]string{"any": "label"}}}
	g.Expect(e.other.Create(t.Context(), theirs)).To(Succeed())

	g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
	g.Expect(e.infrastructure().Status.LastError.Description).To(ContainSubstring("not labelled gardener.cloud/role=infra"))
	g.Expect(e.infrastructure().Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
	g.Expect(e.other.policy(remoteNamespace, MachinesPolicy)).To(BeNil())

	e.delete()
	e.mustReconcile()
	g.Expect(e.infrastructure()).To(BeNil())
	g.Expect(e.other.has(theirs)).To(BeTrue())
}

func TestANamespaceLosesNoLabelsAndGetsBackWhatItHasLost(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, true, false)
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace, Labels: map[string]string{"gardener.cloud/role": "infra", "other": "label"}}}
	g.Expect(e.other.Create(t.Context(), made)).To(Succeed())
	e.mustReconcile()
	g.Expect(e.other.has(made)).To(BeTrue())
	g.Expect(made.Labels).To(Equal(map[string]string{"gardener.cloud/role": "infra", "other": "label", "pod-security.kubernetes.io/enforce": "privileged"}))
}

func TestAPolicyThatWasChangedIsPutRight(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, false)
	e.mustReconcile()
	right := e.policy(namespace, MachinesPolicy)
	wrong := right.DeepCopy()
	wrong.Labels, wrong.Annotations = map[string]string{"other": "label"}, nil
	wrong.Spec = networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"wrong": "one"}}}
	g.Expect(e.Update(t.Context(), wrong)).To(Succeed())

	e.ask("reconcile")
	e.mustReconcile()
	g.Expect(e.only()).To(ContainElement("apply NetworkPolicy"))
	put := e.policy(namespace, MachinesPolicy)
	g.Expect(put.Spec).To(Equal(right.Spec))
	g.Expect(put.Labels).To(Equal(map[string]string{"other": "label", "app.kubernetes.io/managed-by": "gardener-extension-provider-local"}))
	g.Expect(put.Annotations).To(Equal(right.Annotations))
}

func TestMistakesAreReportedWithACodeAndNotRetriedHot(t *testing.T) {
	missing := v1beta1helper.NewErrorWithCodes(errors.New("the Secret is missing"), gardencorev1beta1.ErrorConfigurationProblem)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, remoteNamespace, errors.New("no"))

	for name, test := range map[string]struct {
		prepare func(*environment)
		message string
		code    gardencorev1beta1.ErrorCode
		after   time.Duration
	}{
		"a reference that is empty": {func(e *environment) {
			e.change(e.infrastructure(), func(obj client.Object) {
				obj.(*extensionsv1alpha1.Infrastructure).Spec.SecretRef = corev1.SecretReference{}
			})
		}, "spec.secretRef is empty", gardencorev1beta1.ErrorConfigurationProblem, 10 * time.Minute},
		"credentials that can't be used": {func(e *environment) { e.clusters.err = missing }, "the Secret is missing", gardencorev1beta1.ErrorConfigurationProblem, time.Minute},
		"a range that is none": {func(e *environment) {
			e.setShoot(func(s *gardencorev1beta1.Shoot) { s.Spec.Networking.Nodes = new("10.0.0.0") })
		}, `networking.nodes of the shoot: "10.0.0.0" is no CIDR`, gardencorev1beta1.ErrorConfigurationProblem, 10 * time.Minute},
		"credentials that are not allowed enough": {func(e *environment) {
			e.other.fail = func(string, string) error { return forbidden }
		}, "forbidden", gardencorev1beta1.ErrorInfraUnauthorized, time.Minute},
		"credentials that are not known": {func(e *environment) {
			e.other.fail = func(string, string) error { return apierrors.NewUnauthorized("who") }
		}, "who", gardencorev1beta1.ErrorInfraUnauthenticated, time.Minute},
	} {
		for _, operation := range []string{"reconcile", "restore"} {
			t.Run(name+" at "+operation, func(t *testing.T) {
				g := NewWithT(t)
				e := newEnvironment(t, true, true)
				test.prepare(e)
				e.ask(operation)

				g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: test.after}))
				infra := e.infrastructure()
				g.Expect(infra.Status.LastError.Description).To(ContainSubstring(test.message))
				g.Expect(infra.Status.LastError.Codes).To(ConsistOf(test.code))
				if operation == "restore" {
					e.mustReconcile()
					g.Expect(e.infrastructure().ResourceVersion).To(Equal(infra.ResourceVersion), "each write would be another try")
				}
			})
		}
	}
}

func TestWithoutAShootItIsWaitedForOne(t *testing.T) {
	for name, clear := range map[string]func(*environment){
		"without a Cluster": func(e *environment) {
			NewWithT(e.t).Expect(e.Delete(e.t.Context(), &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		},
		"without a shoot in it": func(e *environment) {
			e.change(&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(obj client.Object) {
				obj.(*extensionsv1alpha1.Cluster).Spec.Shoot.Raw = nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnvironment(t, false, true)
			clear(e)
			g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: reconciler.RetryCluster}))
			g.Expect(e.infrastructure().Status.LastError.Description).To(ContainSubstring("there is no Cluster " + namespace + " with a shoot"))
			g.Expect(e.infrastructure().Status.LastError.Codes).To(BeEmpty())
		})
	}
}

func TestWithoutASeedOrNetworkingItGoesOn(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, true)
	e.change(&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(obj client.Object) {
		obj.(*extensionsv1alpha1.Cluster).Spec.Seed = nil
	})
	e.setShoot(func(s *gardencorev1beta1.Shoot) { s.Spec.Networking = nil })
	e.mustReconcile()
	g.Expect(e.infrastructure().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(e.policy(namespace, MachinesPolicy)).NotTo(BeNil())
	g.Expect(e.policy(namespace, ControlPlanePolicy)).To(BeNil())
	g.Expect(e.providerStatus().IPPools).To(BeEmpty())
}

func TestAMigrationLeavesEverythingAndARestoreFindsIt(t *testing.T) {
	for name, remote := range map[string]bool{"in the seed": false, "in another cluster": true} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnvironment(t, remote, true)
			e.mustReconcile()
			e.ask("migrate")
			e.clusters.err = errors.New("nobody is to be asked")
			e.mustReconcile()
			infra := e.infrastructure()
			g.Expect(infra.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeMigrate))
			g.Expect(infra.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
			g.Expect(infra.Finalizers).To(BeEmpty())
			g.Expect(e.policy(namespace, ControlPlanePolicy)).NotTo(BeNil())

			e.clusters.err = nil
			e.ask("restore")
			e.mustReconcile()
			infra = e.infrastructure()
			g.Expect(infra.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeRestore))
			g.Expect(infra.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
			g.Expect(infra.Finalizers).NotTo(BeEmpty())
			for _, request := range append(e.only(), e.other.requests...) {
				g.Expect(request).To(Or(HavePrefix("get "), HavePrefix("list "), HavePrefix("apply ")))
			}
		})
	}
}

func TestARestoreInANewSeedMakesEverything(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, false, true)
	e.ask("restore")
	e.mustReconcile()
	g.Expect(e.policy(namespace, MachinesPolicy)).NotTo(BeNil())
	g.Expect(e.pool(poolV4)).NotTo(BeNil())
	g.Expect(e.infrastructure().Annotations).NotTo(HaveKey("gardener.cloud/operation"))
}

func TestWhatFailsHalfWayIsGoneOnWithAfterARestart(t *testing.T) {
	down := errors.New("connection refused")
	for _, verb := range []string{"create Namespace", "apply NetworkPolicy", "list IPPoolList", "apply IPPool"} {
		t.Run(verb, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnvironment(t, true, true)
			e.other.fail = func(v, kind string) error {
				if v+" "+kind == verb {
					return down
				}
				return nil
			}
			_, err := e.reconcile()
			g.Expect(err).To(MatchError(down))
			g.Expect(e.infrastructure().Status.LastError.Description).To(ContainSubstring("connection refused"))
			g.Expect(e.infrastructure().Status.LastError.Codes).To(BeEmpty())

			e.other.fail = nil
			e.restart()
			e.mustReconcile()
			g.Expect(e.other.policy(remoteNamespace, MachinesPolicy)).NotTo(BeNil())
			g.Expect(e.other.pool(poolV4)).NotTo(BeNil())
		})
		t.Run(verb+" and then deleted", func(t *testing.T) {
			g := NewWithT(t)
			e := newEnvironment(t, true, true)
			e.other.fail = func(v, kind string) error {
				if v+" "+kind == verb {
					return down
				}
				return nil
			}
			_, err := e.reconcile()
			g.Expect(err).To(MatchError(down))
			e.other.fail = nil
			e.delete()
			for e.infrastructure() != nil {
				e.mustReconcile()
			}
			g.Expect(e.other.has(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}})).To(BeFalse())
			g.Expect(e.other.pool(poolV4)).To(BeNil())
		})
	}
}

func TestADeletionWithoutCredentialsWaitsForThemUnlessItIsForced(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, true, true)
	e.mustReconcile()
	e.clusters.err = v1beta1helper.NewErrorWithCodes(errors.New("the Secret is missing"), gardencorev1beta1.ErrorConfigurationProblem)
	e.delete()
	g.Expect(e.mustReconcile()).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
	g.Expect(e.infrastructure().Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))

	e.setShoot(func(s *gardencorev1beta1.Shoot) {
		s.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
	})
	e.mustReconcile()
	g.Expect(e.infrastructure()).To(BeNil())
	g.Expect(e.policy(namespace, ControlPlanePolicy)).To(BeNil(), "the seed is in reach")
}

func TestWhatNeverCameToBeGoes(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, true, true)
	e.clusters.err = v1beta1helper.NewErrorWithCodes(errors.New("the Secret is missing"), gardencorev1beta1.ErrorConfigurationProblem)
	e.mustReconcile()
	g.Expect(e.infrastructure().Finalizers).To(BeEmpty())
	g.Expect(e.infrastructure().Status.LastError.Description).To(ContainSubstring("the Secret is missing"))
	e.delete()
	g.Expect(e.infrastructure()).To(BeNil())
}

func TestAForcedDeletionDoesNotTakeASeedThatIsSilentForOneWithoutCredentials(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, true, true)
	e.mustReconcile()
	e.setShoot(func(s *gardencorev1beta1.Shoot) {
		s.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
	})
	e.delete()
	e.clusters.err = errors.New("no answer")
	_, err := e.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("no answer")))
	g.Expect(e.infrastructure()).NotTo(BeNil())

	e.clusters.err = nil
	e.mustReconcile()
	g.Expect(e.infrastructure()).To(BeNil())
	g.Expect(e.other.has(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}})).To(BeFalse())
}

func TestAForcedDeletionWaitsForNothing(t *testing.T) {
	g := NewWithT(t)
	e := newEnvironment(t, true, true)
	e.mustReconcile()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}}
	g.Expect(e.other.has(made)).To(BeTrue())
	made.Finalizers = []string{"example.org/pods"}
	g.Expect(e.other.Update(t.Context(), made)).To(Succeed())
	e.setShoot(func(s *gardencorev1beta1.Shoot) {
		s.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
	})
	e.delete()
	e.mustReconcile()
	g.Expect(e.infrastructure()).To(BeNil())
	g.Expect(e.other.has(made)).To(BeTrue())
	g.Expect(made.DeletionTimestamp).NotTo(BeNil())
	g.Expect(e.other.pool(poolV4)).To(BeNil())
	g.Expect(e.policy(namespace, ControlPlanePolicy)).To(BeNil())
}

func TestSpendsFewRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		remote                  bool
		create, again, deletion []string
		elsewhere               map[string][]string
	}{
		"in the seed": {
			create:   []string{"patch Infrastructure", "apply NetworkPolicy", "apply NetworkPolicy", "list IPPoolList", "get Namespace", "apply IPPool", "status Infrastructure"},
			again:    []string{"patch Infrastructure", "apply NetworkPolicy", "apply NetworkPolicy", "list IPPoolList", "status Infrastructure"},
			deletion: []string{"delete IPPool", "delete all NetworkPolicy", "patch Infrastructure"},
		},
		"in another cluster": {
			remote:   true,
			create:   []string{"patch Infrastructure", "apply NetworkPolicy", "apply NetworkPolicy", "apply NetworkPolicy", "status Infrastructure"},
			again:    []string{"patch Infrastructure", "apply NetworkPolicy", "apply NetworkPolicy", "apply NetworkPolicy", "status Infrastructure"},
			deletion: nil,
			elsewhere: map[string][]string{
				"create":   {"create Namespace", "apply NetworkPolicy", "list IPPoolList", "apply IPPool"},
				"again":    {"get Namespace", "apply NetworkPolicy", "list IPPoolList"},
				"deletion": {"get Namespace", "delete Namespace"},
				"end":      {"get Namespace", "delete IPPool"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnvironment(t, tt.remote, true)
			step := func(name string, sent []string) {
				e.mustReconcile()
				own := slices.DeleteFunc(slices.Clone(e.requests), func(request string) bool { return request == "get Infrastructure" || request == "get Cluster" })
				g.Expect(own).To(HaveExactElements(sent), name)
				g.Expect(e.other.requests).To(HaveExactElements(tt.elsewhere[name]), name)
			}
			e.ask("reconcile")
			step("create", tt.create)
			e.ask("reconcile")
			step("again", tt.again)
			e.delete()
			step("deletion", tt.deletion)
			if tt.remote {
				step("end", []string{"delete all NetworkPolicy", "patch Infrastructure"})
			}
			g.Expect(e.infrastructure()).To(BeNil())
		})
	}
}
