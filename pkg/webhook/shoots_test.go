// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
)

func TestApplyBeforeThereIsACA(t *testing.T) {
	e := newEnv(t, shootWebhook())
	e.Expect(e.registrar.shoots.Apply(e.ctx, shootNamespace)).To(MatchError(certificate.ErrNone))
	e.Expect(e.shootConfig(shootNamespace)).To(BeNil())

	e.round()
	e.Expect(e.registrar.shoots.Apply(e.ctx, shootNamespace)).To(Succeed())
	webhooks := e.shootConfig(shootNamespace).Webhooks
	e.Expect(webhooks).To(HaveLen(1))
	e.Expect(webhooks[0].ClientConfig.CABundle).To(Equal(e.store.Bundle()))
	e.Expect(webhooks[0].ClientConfig.URL).To(HaveValue(HaveSuffix("/shoot-nodes/" + shootNamespace)))
}

func TestNewLeaderAppliesAtOnce(t *testing.T) {
	e := newEnv(t, shootWebhook())
	e.round()

	e.restart()
	e.follow()
	e.Expect(e.registrar.shoots.Apply(e.ctx, shootNamespace)).To(Succeed())
	e.Expect(e.shootConfig(shootNamespace).Webhooks[0].ClientConfig.CABundle).To(Equal(e.store.Bundle()))
}

func TestShootsFollowTheCA(t *testing.T) {
	e := newEnv(t, shootWebhook())
	e.round()
	var shoots []string
	for i := range 25 {
		shoots = append(shoots, fmt.Sprintf("shoot--local--%d", i))
		e.Expect(e.registrar.shoots.Apply(e.ctx, shoots[i])).To(Succeed())
	}
	before := e.store.Bundle()

	now.Step(20*day + 1)
	e.round()
	both := e.store.Bundle()
	e.Expect(both).To(HaveSuffix(string(before)), "the old CA stays trusted")
	for _, shoot := range shoots {
		e.Expect(e.shootConfig(shoot).Webhooks[0].ClientConfig.CABundle).To(Equal(both))
	}

	for range 2 {
		now.Step(day)
		e.round()
	}
	e.Expect(both).To(HavePrefix(string(e.store.Bundle())))
	e.Expect(e.store.Bundle()).NotTo(Equal(both))
	for _, shoot := range shoots {
		e.Expect(e.shootConfig(shoot).Webhooks[0].ClientConfig.CABundle).To(Equal(e.store.Bundle()))
	}
}

func TestUpdateLeavesWhatGoesAway(t *testing.T) {
	terminating := func(e *env) {
		e.failing(func(verb string, obj client.Object) error {
			if _, ok := obj.(*corev1.Secret); ok && verb == "create" && obj.GetNamespace() == shootNamespace {
				err := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, obj.GetName(), errors.New("namespace is terminating"))
				err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
				return err
			}
			return nil
		})
	}

	for name, change := range map[string]func(e *env){
		"the namespace is being deleted": terminating,
		"the ManagedResource is gone": func(e *env) {
			e.Expect(e.registrar.shoots.Delete(e.ctx, shootNamespace)).Error().NotTo(HaveOccurred())
		},
		"the ManagedResource is being deleted": func(e *env) {
			mr := &resourcesv1alpha1.ManagedResource{}
			e.Expect(e.client.Get(e.ctx, client.ObjectKey{Namespace: shootNamespace, Name: ManagedResourceName}, mr)).To(Succeed())
			mr.Finalizers = []string{"resources.gardener.cloud/gardener-resource-manager"}
			e.Expect(e.client.Update(e.ctx, mr)).To(Succeed())
			gone, err := e.registrar.shoots.Delete(e.ctx, shootNamespace)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(gone).To(BeFalse())
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, shootWebhook())
			e.round()
			e.Expect(e.registrar.shoots.Apply(e.ctx, shootNamespace)).To(Succeed())
			e.Expect(e.registrar.shoots.Apply(e.ctx, "shoot--local--two")).To(Succeed())

			change(e)
			secrets := e.count(shootNamespace)
			now.Step(20*day + 1)
			e.round()

			e.Expect(e.count(shootNamespace)).To(Equal(secrets), "nothing comes back")
			e.Expect(e.shootConfig("shoot--local--two").Webhooks[0].ClientConfig.CABundle).To(Equal(e.store.Bundle()), "others are updated")
		})
	}
}

func (e *env) count(namespace string) int {
	e.Helper()
	secrets := &corev1.SecretList{}
	e.Expect(e.client.List(e.ctx, secrets, client.InNamespace(namespace))).To(Succeed())
	return len(secrets.Items)
}

// A controller deletes the ManagedResource while the update, which has found it, is about to write it.
func TestUpdateDoesNotBringBackWhatIsDeletedMeanwhile(t *testing.T) {
	e := newEnv(t, shootWebhook())
	e.round()
	e.Expect(e.registrar.shoots.Apply(e.ctx, shootNamespace)).To(Succeed())

	var (
		once    sync.Once
		deleted = make(chan struct{})
	)
	e.failing(func(verb string, obj client.Object) error {
		if _, ok := obj.(*metav1.PartialObjectMetadata); ok && verb == "get" {
			once.Do(func() {
				go func() {
					defer close(deleted)
					_, err := e.registrar.shoots.Delete(e.ctx, shootNamespace)
					e.Check(err)
				}()
			})
		}
		return nil
	})
	e.registrar.shoots.published.Store(new([]byte("another CA")))
	e.Expect(e.registrar.shoots.updateOne(e.ctx, shootNamespace)).To(Succeed())
	e.Eventually(deleted).Should(BeClosed())
	e.Expect(e.shootConfig(shootNamespace)).To(BeNil())

	e.Expect(e.registrar.shoots.updateOne(e.ctx, shootNamespace)).To(Succeed())
	e.Expect(e.shootConfig(shootNamespace)).To(BeNil())
}

// The CA changes while a controller applies, and the update of all shoots is too early to find what it writes.
func TestApplyDoesNotMissAChangeOfTheCA(t *testing.T) {
	e := newEnv(t, shootWebhook())
	e.round()

	var once sync.Once
	e.failing(func(verb string, obj client.Object) error {
		if _, ok := obj.(*resourcesv1alpha1.ManagedResource); ok && verb == "create" {
			once.Do(func() { e.Expect(e.registrar.shoots.update(e.ctx, []byte("another CA"))).To(Succeed()) })
		}
		return nil
	})
	e.Expect(e.registrar.shoots.Apply(e.ctx, shootNamespace)).To(Succeed())
	e.Expect(e.shootConfig(shootNamespace).Webhooks[0].ClientConfig.CABundle).To(Equal([]byte("another CA")))
}

func TestUpdateIsTriedAgainForThoseThatFailed(t *testing.T) {
	e := newEnv(t, shootWebhook())
	e.round()
	for _, shoot := range []string{"a", "b", "c"} {
		e.Expect(e.registrar.shoots.Apply(e.ctx, shoot)).To(Succeed())
	}
	e.failing(func(verb string, obj client.Object) error {
		if verb == "create" && obj.GetNamespace() == "b" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, obj.GetName(), errors.New("changed"))
		}
		return nil
	})
	e.Expect(e.registrar.shoots.update(e.ctx, []byte("another CA"))).To(MatchError(ContainSubstring("shoot b")))
	for _, shoot := range []string{"a", "c"} {
		e.Expect(e.shootConfig(shoot).Webhooks[0].ClientConfig.CABundle).To(Equal([]byte("another CA")))
	}

	e.failing(nil)
	e.Expect(e.registrar.shoots.update(e.ctx, []byte("another CA"))).To(Succeed())
	e.Expect(e.shootConfig("b").Webhooks[0].ClientConfig.CABundle).To(Equal([]byte("another CA")))

	e.failing(func(verb string, _ client.Object) error { return errors.New("unexpected " + verb) })
	e.Expect(e.registrar.shoots.update(e.ctx, []byte("another CA"))).To(Succeed(), "and nothing is asked when all is done")
}

func TestApplyAndDeleteOfManyAtATime(t *testing.T) {
	e := newEnv(t, shootWebhook())
	e.round()

	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			shoot := fmt.Sprintf("shoot--local--%d", i%10)
			if i%4 == 0 {
				_, err := e.registrar.shoots.Delete(e.ctx, shoot)
				e.Check(err)
			} else {
				e.Check(e.registrar.shoots.Apply(e.ctx, shoot))
			}
		})
	}
	for i := range 5 {
		e.Expect(e.registrar.shoots.update(e.ctx, fmt.Appendf(nil, "CA %d", i))).To(Succeed())
	}
	group.Wait()

	list := &resourcesv1alpha1.ManagedResourceList{}
	e.Expect(e.client.List(e.ctx, list)).To(Succeed())
	e.Expect(len(list.Items)).To(BeNumerically(">=", 5), "those of odd numbers are never removed")
	for _, mr := range list.Items {
		e.Expect(e.shootConfig(mr.Namespace).Webhooks[0].ClientConfig.CABundle).To(Equal([]byte("CA 4")))
	}
}

// Check is for other goroutines than the test's.
func (e *env) Check(err error) {
	if err != nil {
		e.Error(err)
	}
}

func TestWithoutWebhooksForShootsTheyAreRemoved(t *testing.T) {
	e := newEnv(t, seedWebhook(), shootWebhook())
	e.round()
	for _, shoot := range []string{"a", "b"} {
		e.Expect(e.registrar.shoots.Apply(e.ctx, shoot)).To(Succeed())
	}

	e.options.Webhooks = e.options.Webhooks[:1]
	e.restart()
	e.Expect(e.registrar.shoots.Apply(e.ctx, "a")).To(Succeed())
	e.Expect(e.shootConfig("a")).To(BeNil())
	e.Expect(e.shootConfig("b")).NotTo(BeNil())

	e.round()
	e.Expect(e.shootConfig("b")).To(BeNil())
	e.Expect(e.seedConfig().Webhooks).To(HaveLen(1))
}
