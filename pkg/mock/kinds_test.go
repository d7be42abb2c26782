// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// newObject returns an object of a kind.
func newObject[T extensionsv1alpha1.Object]() T {
	for _, kind := range kinds() {
		if obj, ok := newObjectOf(kind).(T); ok {
			return obj
		}
	}
	panic("no such kind")
}

func withNetworking(networking *gardencorev1beta1.Networking, status *gardencorev1beta1.NetworkingStatus) func(*gardencorev1beta1.Shoot) {
	return func(shoot *gardencorev1beta1.Shoot) {
		shoot.Spec.Networking, shoot.Status.Networking = networking, status
	}
}

func TestAnInfrastructureTellsTheRangesOfTheShoot(t *testing.T) {
	const v4, v6 = gardencorev1beta1.IPFamilyIPv4, gardencorev1beta1.IPFamilyIPv6
	type ranges = extensionsv1alpha1.InfrastructureStatusNetworking
	for name, tc := range map[string]struct {
		networking *gardencorev1beta1.Networking
		status     *gardencorev1beta1.NetworkingStatus
		expected   ranges
		egress     []string
	}{
		"as its spec has them": {
			&gardencorev1beta1.Networking{Nodes: new("10.0.0.1/16"), Pods: new("10.1.0.0/16"), Services: new("10.2.0.0/16")}, nil,
			ranges{Nodes: []string{"10.0.0.0/16"}, Pods: []string{"10.1.0.0/16"}, Services: []string{"10.2.0.0/16"}}, []string{"192.0.2.173/32"},
		},
		"made up where there is none": {
			nil, nil,
			ranges{Nodes: []string{"10.250.0.0/16"}, Pods: []string{"100.96.0.0/11"}, Services: []string{"100.64.0.0/13"}}, []string{"192.0.2.173/32"},
		},
		"of IPv6": {
			&gardencorev1beta1.Networking{IPFamilies: []gardencorev1beta1.IPFamily{v6}, Pods: new("fd00:1::/64")}, nil,
			ranges{Nodes: []string{"fd00:10:250::/64"}, Pods: []string{"fd00:1::/64"}, Services: []string{"fd00:100:64::/108"}}, []string{"2001:db8::ad/128"},
		},
		"of both families, the second from the status": {
			&gardencorev1beta1.Networking{IPFamilies: []gardencorev1beta1.IPFamily{v4, v6}, Pods: new("10.1.0.0/16")},
			&gardencorev1beta1.NetworkingStatus{Pods: []string{"10.9.0.0/16", "fd00:1::/64"}},
			ranges{
				Nodes: []string{"10.250.0.0/16", "fd00:10:250::/64"}, Pods: []string{"10.1.0.0/16", "fd00:1::/64"},
				Services: []string{"100.64.0.0/13", "fd00:100:64::/108"},
			}, []string{"192.0.2.173/32", "2001:db8::ad/128"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, nil, newCluster(withNetworking(tc.networking, tc.status)), infra)
			e.reconcile(infra)
			e.Expect(isReady(infra)).To(Succeed())
			e.Expect(infra.Status.Networking).To(HaveValue(Equal(tc.expected)))
			e.Expect(infra.Status.EgressCIDRs).To(Equal(tc.egress))
		})
	}
}

func TestAnInfrastructureNamesARangeThatIsNone(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, nil, newCluster(withNetworking(&gardencorev1beta1.Networking{Nodes: new("10.0.0.0"), Pods: new("x")}, nil)), infra)
	e.Expect(e.reconcile(infra)).To(Equal(defaultRetry))
	e.Expect(infra.Status.LastError.Description).To(And(ContainSubstring(`nodes: "10.0.0.0" is no CIDR`), ContainSubstring(`pods: "x"`)))
	e.Expect(infra.Status.LastError.Codes).To(HaveExactElements(gardencorev1beta1.ErrorConfigurationProblem))
}

func TestWhatNeedsAShootWaitsForItsCluster(t *testing.T) {
	for _, obj := range []extensionsv1alpha1.Object{newInfrastructure(), newObject[*extensionsv1alpha1.Worker]()} {
		e := newEnv(t, nil, obj)
		e.Expect(e.reconcile(obj)).To(Equal(retryCluster))
		e.Expect(state(obj)).To(Equal("Create Processing"))
		e.Expect(obj.GetExtensionStatus().GetLastError()).To(BeNil(), "nothing has failed")
		e.requests = nil
		e.pass(retryCluster)
		e.Expect(e.reconcile(obj)).To(Equal(retryCluster))
		e.Expect(e.requests).To(BeEmpty(), "it has said so before")

		cluster := newCluster(nil)
		cluster.ResourceVersion = ""
		e.Expect(e.client.Create(e.ctx, cluster)).To(Succeed())
		e.pass(retryCluster)
		e.Expect(e.reconcile(obj)).To(BeZero())
		e.Expect(isReady(obj)).To(Succeed())
	}
}

func TestObjectsOfASeedNeedNoCluster(t *testing.T) {
	seed := extensionsv1alpha1.ExtensionClassSeed
	infra, worker := newInfrastructure(), newObject[*extensionsv1alpha1.Worker]()
	infra.Spec.Class, worker.Spec.Class = &seed, &seed
	e := newEnv(t, nil, infra, worker)
	for _, obj := range []extensionsv1alpha1.Object{infra, worker} {
		e.reconcile(obj)
		e.Expect(isReady(obj)).To(Succeed())
	}
}

func TestAWorkerTellsAMachineDeploymentForEachPoolAndZone(t *testing.T) {
	worker := newObject[*extensionsv1alpha1.Worker]()
	worker.Spec.Pools = []extensionsv1alpha1.WorkerPool{
		{Name: "one", Minimum: 1, Maximum: 2, Priority: new(int32(5))},
		{Name: "three", Minimum: 4, Maximum: 5, Zones: []string{"a", "b", "c"}},
	}
	e := newEnv(t, nil, newCluster(nil), worker)
	e.reconcile(worker)
	e.Expect(worker.Status.MachineDeployments).To(HaveExactElements(
		extensionsv1alpha1.MachineDeployment{Name: namespace + "-one-z1", Minimum: 1, Maximum: 2, Priority: new(int32(5))},
		extensionsv1alpha1.MachineDeployment{Name: namespace + "-three-z1", Minimum: 2, Maximum: 2},
		extensionsv1alpha1.MachineDeployment{Name: namespace + "-three-z2", Minimum: 1, Maximum: 2},
		extensionsv1alpha1.MachineDeployment{Name: namespace + "-three-z3", Minimum: 1, Maximum: 1},
	))

	before := worker.Status.MachineDeploymentsLastUpdateTime
	e.annotate(worker, "reconcile")
	e.reconcile(worker)
	e.Expect(worker.Status.MachineDeploymentsLastUpdateTime.Time).To(BeTemporally(">", before.Time), "gardenlet waits for a later one")
	e.Expect(worker.Status.InPlaceUpdates).To(BeNil())
}

func TestAWorkerTellsThatPoolsAreUpdatedInPlace(t *testing.T) {
	worker := newObject[*extensionsv1alpha1.Worker]()
	worker.Spec.Pools[0].UpdateStrategy = new(gardencorev1beta1.AutoInPlaceUpdate)
	worker.Spec.Pools[0].KubernetesVersion = new("1.36.3")
	e := newEnv(t, nil, newCluster(nil), worker)
	e.reconcile(worker)
	e.Expect(worker.Status.InPlaceUpdates.WorkerPoolToHashMap).To(HaveKeyWithValue("pool", Not(BeEmpty())))
}

func TestAWorkerHasNodesMadeAndTakenAway(t *testing.T) {
	worker := newObject[*extensionsv1alpha1.Worker]()
	nodes := &fakeNodes{}
	e := newEnv(t, nil, newCluster(nil), worker)
	e.opts.Nodes = nodes
	e.restart()

	nodes.err = errors.New("the shoot does not answer")
	e.Expect(e.reconcile(worker)).To(Equal(defaultRetry))
	e.Expect(state(worker)).To(Equal("Create Error"))
	e.Expect(worker.Status.MachineDeployments).NotTo(BeEmpty(), "gardenlet goes on by these meanwhile")

	nodes.err = v1beta1helper.NewErrorWithCodes(errors.New("no machine type"), gardencorev1beta1.ErrorConfigurationProblem)
	e.pass(defaultRetry)
	e.Expect(e.reconcile(worker)).To(Equal(defaultRetry))
	e.Expect(worker.Status.LastError.Codes).To(HaveExactElements(gardencorev1beta1.ErrorConfigurationProblem))

	nodes.err = nil
	e.pass(defaultRetry)
	e.Expect(e.reconcile(worker)).To(BeZero())
	e.Expect(isReady(worker)).To(Succeed())
	e.delete(worker)
	nodes.err = errors.New("the shoot does not answer")
	e.Expect(e.reconcile(worker)).To(Equal(defaultRetry))
	nodes.err = nil
	e.pass(defaultRetry)
	e.Expect(e.reconcile(worker)).To(BeZero())
	e.Expect(worker.UID).To(BeEmpty())
	e.Expect(nodes.calls).To(HaveExactElements("apply a of a", "apply a of a", "apply a of a", "delete a, force false", "delete a, force false"))
}

func TestAMigratedWorkerLeavesItsNodesToTheNextSeed(t *testing.T) {
	worker := newObject[*extensionsv1alpha1.Worker]()
	nodes := &fakeNodes{}
	e := newEnv(t, nil, newCluster(nil), worker)
	e.opts.Nodes = nodes
	e.restart()
	e.reconcile(worker)
	e.annotate(worker, "migrate")
	e.reconcile(worker)
	e.Expect(nodes.calls).To(HaveExactElements("apply a of a", "release a"))
}

func TestAWorkerHasItsNodesTakenUpAfterARestart(t *testing.T) {
	last := func(operation gardencorev1beta1.LastOperationType, state gardencorev1beta1.LastOperationState) *gardencorev1beta1.LastOperation {
		return &gardencorev1beta1.LastOperation{Type: operation, State: state, LastUpdateTime: metav1.Time{Time: start}}
	}
	const create, succeeded = gardencorev1beta1.LastOperationTypeCreate, gardencorev1beta1.LastOperationStateSucceeded
	failed := func(shoot *gardencorev1beta1.Shoot) {
		shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
	}
	seed := extensionsv1alpha1.ExtensionClassSeed
	for name, tc := range map[string]struct {
		worker   func(*extensionsv1alpha1.Worker)
		cluster  func(*gardencorev1beta1.Shoot)
		expected []string
	}{
		"as an earlier run has kept them alive": {nil, nil, []string{"apply a of a"}},
		"also if its last operation has failed": {func(w *extensionsv1alpha1.Worker) {
			w.Status.LastOperation = last(gardencorev1beta1.LastOperationTypeReconcile, gardencorev1beta1.LastOperationStateError)
		}, nil, []string{"apply a of a"}},
		"but not if its creation has failed": {func(w *extensionsv1alpha1.Worker) {
			w.Status.LastOperation = last(create, gardencorev1beta1.LastOperationStateError)
		}, nil, nil},
		"also if its shoot has failed": {nil, failed, []string{"apply a of a"}},
		"but has none if the shoot sleeps": {nil, func(shoot *gardencorev1beta1.Shoot) {
			shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
		}, nil},
		"but not if it is of another type":   {func(w *extensionsv1alpha1.Worker) { w.Spec.Type = "local" }, nil, nil},
		"but not if it is of no shoot":       {func(w *extensionsv1alpha1.Worker) { w.Spec.Class = &seed }, nil, nil},
		"but not if it was never reconciled": {func(w *extensionsv1alpha1.Worker) { w.Status.LastOperation = nil }, failed, nil},
		"but not if another seed has it now": {func(w *extensionsv1alpha1.Worker) { w.Status.LastOperation = last("Migrate", succeeded) }, nil, nil},
		"but not if it is about to be deleted": {func(w *extensionsv1alpha1.Worker) {
			w.DeletionTimestamp, w.Finalizers = &metav1.Time{Time: start}, []string{"others"}
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			worker := newObject[*extensionsv1alpha1.Worker]()
			worker.Annotations = nil
			worker.Status.LastOperation = last(create, succeeded)
			if tc.worker != nil {
				tc.worker(worker)
			}
			nodes := &fakeNodes{}
			e := newEnv(t, []configv1alpha1.MockBehaviour{{ErrorRate: 1}}, newCluster(tc.cluster), worker)
			e.opts.Nodes = nodes
			e.restart()
			r := e.reconcilerFor(worker)
			reconcileOnce := func() time.Duration {
				result, err := r.Wrap(r).Reconcile(e.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(worker)})
				e.Expect(err).NotTo(HaveOccurred())
				return result.RequeueAfter
			}
			isQueued := r.IsDue(worker) || r.IsAmiss(e.ctx, worker)
			if len(tc.expected) > 0 {
				e.Expect(isQueued).To(BeTrue(), "by the event of the start")
				nodes.err = errors.New("the shoot does not answer")
				e.Expect(reconcileOnce()).NotTo(BeZero(), "it is tried again")
				nodes.err, nodes.calls = nil, nil
			}
			reconcileOnce()
			e.Expect(nodes.calls).To(Equal(tc.expected))
			if worker.Status.LastOperation != nil && worker.Status.LastOperation.State == succeeded {
				e.Expect(e.requests).To(BeEmpty(), "the object says nothing of it")
			}
			reconcileOnce()
			e.Expect(nodes.calls).To(Equal(tc.expected), "once")
		})
	}
}

func TestAnOperatingSystemConfigHasTheSecretThatGardenletReads(t *testing.T) {
	osc := newObject[*extensionsv1alpha1.OperatingSystemConfig]()
	e := newEnv(t, nil, newCluster(nil), osc)
	e.reconcile(osc)
	ref := osc.Status.CloudConfig.SecretRef
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	e.Expect(e.client.Get(e.ctx, key, secret)).To(Succeed())
	e.Expect(secret.Data).To(HaveKeyWithValue("cloud_config", Not(BeEmpty())))
	e.Expect(metav1.IsControlledBy(secret, osc)).To(BeTrue(), "it goes with the object")

	for name, spoil := range map[string]func(){
		"deleted": func() { e.Expect(e.client.Delete(e.ctx, secret)).To(Succeed()) },
		"changed": func() {
			secret.Data, secret.OwnerReferences = nil, nil
			e.Expect(e.client.Update(e.ctx, secret)).To(Succeed())
		},
	} {
		spoil()
		e.annotate(osc, "reconcile")
		e.reconcile(osc)
		e.Expect(e.client.Get(e.ctx, key, secret)).To(Succeed(), name)
		e.Expect(secret.Data).To(HaveKeyWithValue("cloud_config", Not(BeEmpty())), name)
		e.Expect(metav1.IsControlledBy(secret, osc)).To(BeTrue(), name)
	}
}

func TestAnOperatingSystemConfigOfARunningMachineNeedsNoSecret(t *testing.T) {
	osc := newObject[*extensionsv1alpha1.OperatingSystemConfig]()
	osc.Spec.Purpose = extensionsv1alpha1.OperatingSystemConfigPurposeReconcile
	osc.Spec.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdates{OperatingSystemVersion: "1.2.3"}
	e := newEnv(t, nil, newCluster(nil), osc)
	e.reconcile(osc)
	e.Expect(isReady(osc)).To(Succeed())
	e.Expect(osc.Status.CloudConfig).To(BeNil())
	e.Expect(osc.Status.InPlaceUpdates.OSUpdate.Args).To(HaveExactElements("1.2.3"))
	e.Expect(e.requests).NotTo(ContainElement(ContainSubstring("Secret")))
}

func TestABackupEntryHasTheSecretThatEtcdDruidMounts(t *testing.T) {
	for entryName, secretName := range map[string]string{namespace + "--uid": "etcd-backup", "source-" + namespace + "--uid": "source-etcd-backup"} {
		entry := newObject[*extensionsv1alpha1.BackupEntry]()
		entry.Name = entryName
		e := newEnv(t, nil, newCluster(nil), entry)
		e.reconcile(entry)
		secret := &corev1.Secret{}
		e.Expect(e.client.Get(e.ctx, client.ObjectKey{Namespace: namespace, Name: secretName}, secret)).To(Succeed())
		e.Expect(secret.Data).To(Equal(map[string][]byte{"hostPath": []byte("/buckets"), "bucketName": []byte("bucket")}))
	}
}

func TestABackupEntryDoesWithoutANamespace(t *testing.T) {
	terminating := apierrors.NewForbidden(corev1.Resource("secrets"), "etcd-backup", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, reason := range map[string]error{"there is none": noNamespace, "it is going": terminating} {
		t.Run(name, func(t *testing.T) {
			entry := newObject[*extensionsv1alpha1.BackupEntry]()
			e := newEnv(t, nil, entry)
			e.fail = func(request string) error {
				if request == "create Secret" {
					return reason
				}
				return nil
			}
			e.reconcile(entry)
			e.Expect(isReady(entry)).To(Succeed())
			e.annotate(entry, "reconcile")
			e.reconcile(entry)
			e.Expect(isReady(entry)).To(Succeed())
		})
	}
}

func TestABackupEntryTouchesNoSecretOfAnother(t *testing.T) {
	secretOf := func(creator, label string) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etcd-backup", Annotations: map[string]string{"backup.gardener.cloud/created-by": creator}}}
		if label != "" {
			secret.Labels = map[string]string{LabelGenerated: label}
		}
		return secret
	}
	for name, tc := range map[string]struct {
		secret        *corev1.Secret
		refused, mine bool
	}{
		"not of a real one":                      {secretOf("real--uid", ""), true, false},
		"nor of a mock":                          {secretOf("other--uid", "true"), false, false},
		"but takes over what was its own":        {secretOf(namespace+"--uid", ""), false, true},
		"and finds its own after it was stopped": {secretOf(namespace+"--uid", "true"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			entry := newObject[*extensionsv1alpha1.BackupEntry]()
			e := newEnv(t, nil, tc.secret, entry)
			e.reconcile(entry)
			if tc.refused {
				e.Expect(entry.Status.LastError.Description).To(ContainSubstring("delete one of the two BackupEntries"))
				e.Expect(entry.Status.LastError.Codes).To(HaveExactElements(gardencorev1beta1.ErrorConfigurationProblem))
			} else {
				e.Expect(isReady(entry)).To(Succeed())
			}
			e.Expect(e.client.Get(e.ctx, client.ObjectKeyFromObject(tc.secret), tc.secret)).To(Succeed())
			e.Expect(tc.secret.Data != nil).To(Equal(tc.mine))

			e.delete(entry)
			e.pass(time.Hour)
			e.reconcile(entry)
			e.Expect(entry.UID).To(BeEmpty())
			e.Expect(apierrors.IsNotFound(e.client.Get(e.ctx, client.ObjectKeyFromObject(tc.secret), tc.secret))).To(Equal(tc.mine))
		})
	}
}

func TestADNSRecordTellsItsZone(t *testing.T) {
	for name, tc := range map[string]struct {
		zone     *string
		expected string
	}{
		"api.a.example.com": {nil, "a.example.com"}, "*.ingress.example.com": {new(""), "ingress.example.com"}, "b.example.com": {new("com"), "com"},
	} {
		record := newObject[*extensionsv1alpha1.DNSRecord]()
		record.Spec.Name, record.Spec.Zone = name, tc.zone
		e := newEnv(t, nil, record)
		e.reconcile(record)
		e.Expect(record.Status.Zone).To(HaveValue(Equal(tc.expected)))
	}
}

func TestWhatIsToBeReachedHasAnAddressOfNobody(t *testing.T) {
	bastion, exposure := newObject[*extensionsv1alpha1.Bastion](), newObject[*extensionsv1alpha1.SelfHostedShootExposure]()
	network := newObject[*extensionsv1alpha1.Network]()
	other := network.DeepCopy()
	other.Name, other.Spec.IPFamilies = "other", []extensionsv1alpha1.IPFamily{"IPv4", "IPv6"}
	e := newEnv(t, nil, newCluster(nil), bastion, exposure, network, other)
	for _, obj := range []extensionsv1alpha1.Object{bastion, exposure, network, other} {
		e.reconcile(obj)
	}
	e.Expect(bastion.Status.Ingress.IP).To(HavePrefix("198.51.100."))
	e.Expect(exposure.Status.Ingress).To(HaveExactElements(HaveField("IP", HavePrefix("203.0.113."))))
	e.Expect(network.Status.IPFamilies).To(HaveExactElements(extensionsv1alpha1.IPFamilyIPv4))
	e.Expect(other.Status.IPFamilies).To(Equal(other.Spec.IPFamilies))
}

func TestBastionsOfAFailedShootAreReady(t *testing.T) {
	bastion := newObject[*extensionsv1alpha1.Bastion]()
	e := newEnv(t, nil, newCluster(func(shoot *gardencorev1beta1.Shoot) {
		shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
	}), bastion)
	e.reconcile(bastion)
	e.Expect(isReady(bastion)).To(Succeed())
}

func TestTheTimeOfAnOperationIsNotBeforeItWasAskedFor(t *testing.T) {
	bucket := newBucket()
	bucket.Annotations["gardener.cloud/timestamp"] = start.Add(time.Minute).Format(time.RFC3339Nano)
	e := newEnv(t, nil, bucket)
	e.reconcile(bucket)
	e.Expect(isReady(bucket)).To(Succeed(), "Gardener's clock may be ahead")
}
