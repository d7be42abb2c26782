// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// restoreSpecs lose the volume of an etcd, whose data comes back from the bucket.
func restoreSpecs() {
	It("brings back the data of a shoot", specPatience, func(ctx SpecContext) {
		shoot := example(exampleWorkerless)
		g.EventuallyHealthy(ctx, shoot, patience)
		cluster, secret := access(ctx, shoot), note()
		landscape.Create(ctx, cluster.Client, secret)
		losesVolume(ctx, shoot.Status.TechnicalID, "etcd-main", "main-etcd-etcd-main-0", secret)

		Eventually(landscape.Get(ctx, cluster.Client, note())).WithContext(ctx).WithTimeout(patience).Should(And(
			HaveField("Data", Equal(note().Data)), HaveField("UID", Equal(secret.UID))))
		g.EventuallyHealthy(ctx, shoot, patience)
	})

	It("brings back the Garden", specPatience, func(ctx SpecContext) {
		garden := &operatorv1alpha1.GardenList{}
		Expect(l.Client.List(ctx, garden)).To(Succeed())
		Expect(garden.Items).To(HaveLen(1))
		before := uids(ctx)
		Expect(before).NotTo(BeEmpty())
		secret := note()
		secret.Namespace = "garden-local"
		landscape.Create(ctx, g.Client, secret)
		losesVolume(ctx, gardenNamespace, "virtual-garden-etcd-main", "main-virtual-garden-etcd-virtual-garden-etcd-main-0", secret)

		fresh := landscape.Named[*corev1.Secret](secret.Namespace, secret.Name)
		Eventually(landscape.Get(ctx, g.Client, fresh)).WithContext(ctx).WithTimeout(patience).Should(And(
			HaveField("Data", Equal(note().Data)), HaveField("UID", Equal(secret.UID))))
		Expect(uids(ctx)).To(Equal(before), "the Shoots are the same")
		Eventually(func() ([]gardencorev1beta1.Condition, error) {
			err := l.Client.Get(ctx, client.ObjectKeyFromObject(&garden.Items[0]), &garden.Items[0])
			return garden.Items[0].Status.Conditions, err
		}).WithContext(ctx).WithTimeout(patience).Should(HaveEach(HaveField("Status", gardencorev1beta1.ConditionTrue)))
		Eventually(seedProblem(ctx, landscape.Named[*gardencorev1beta1.Seed]("", seedName))).WithContext(ctx).WithTimeout(patience).Should(BeEmpty())
		By("having a Shoot reconciled")
		shoot := example(exampleWorkerless)
		Expect(g.Refresh(ctx, shoot)).To(Succeed())
		g.Operate(ctx, shoot, "reconcile")
		g.EventuallyHealthy(ctx, shoot, patience)
	})
}

// losesVolume deletes the volume and the member of an etcd once its backup has an object, and waits for a new volume and member.
func losesVolume(ctx SpecContext, namespace, etcd, claimName string, written client.Object) {
	GinkgoHelper()
	revision, err := strconv.ParseInt(written.GetResourceVersion(), 10, 64)
	Expect(err).NotTo(HaveOccurred())
	By(fmt.Sprintf("waiting until the backup of %s/%s has revision %d", namespace, etcd, revision))
	snapshot := landscape.Named[*coordinationv1.Lease](namespace, etcd+"-delta-snap")
	Eventually(func() (int64, error) {
		if err := l.Client.Get(ctx, client.ObjectKeyFromObject(snapshot), snapshot); err != nil || snapshot.Spec.HolderIdentity == nil {
			return 0, err
		}
		return strconv.ParseInt(*snapshot.Spec.HolderIdentity, 10, 64)
	}).WithContext(ctx).Should(BeNumerically(">=", revision), "a delta snapshot is taken every 30 seconds")

	By("deleting the volume")
	protected := &unstructured.Unstructured{}
	protected.SetAPIVersion("druid.gardener.cloud/v1alpha1")
	protected.SetKind("Etcd")
	protected.SetNamespace(namespace)
	protected.SetName(etcd)
	protection := func(ctx SpecContext, value string) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"druid.gardener.cloud/disable-etcd-component-protection":`+value+`}}}`))
		Expect(l.Client.Patch(ctx, protected, patch)).To(Succeed())
	}
	protection(ctx, `""`)
	DeferCleanup(protection, "null")
	claim := landscape.Named[*corev1.PersistentVolumeClaim](namespace, claimName)
	Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
	old := map[types.UID]bool{claim.UID: true}
	member := landscape.Named[*corev1.Pod](namespace, etcd+"-0")
	Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(member), member)).To(Succeed())
	old[member.UID] = true
	Expect(l.Client.Delete(ctx, claim)).To(Succeed())
	kill(ctx, client.InNamespace(namespace), client.MatchingFields{"metadata.name": member.Name})
	begin := time.Now()
	Eventually(func() (bool, error) {
		if err := l.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if err := l.Client.Get(ctx, client.ObjectKeyFromObject(member), member); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		ready := false
		for _, c := range member.Status.Conditions {
			ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		return ready && !old[claim.UID] && !old[member.UID], nil
	}).WithContext(ctx).WithTimeout(patience).Should(BeTrue(), "a new member has a new volume")
	GinkgoWriter.Printf("%s/%s is back after %.0f s\n", namespace, etcd, time.Since(begin).Seconds())
}

// uids are those of all Shoots, by name.
func uids(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	all := &gardencorev1beta1.ShootList{}
	Expect(g.Client.List(ctx, all)).To(Succeed())
	found := map[string]types.UID{}
	for _, shoot := range all.Items {
		found[shoot.Namespace+"/"+shoot.Name] = shoot.UID
	}
	return found
}
