// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
)

func TestReconcile(t *testing.T) {
	for _, test := range []struct {
		name, entry, namespace, secret string
	}{
		{"tells a shoot's etcd where the bucket is", entryName, namespace, "etcd-backup"},
		{"tells the garden's etcd where the bucket is", "garden--6b1ad2c0", "garden", "etcd-backup"},
		{"tells the copy task of a migration where the source bucket is", sourceName, namespace, "source-etcd-backup"},
	} {
		for _, operation := range []string{"reconcile", "restore"} {
			t.Run(test.name+" on "+operation+", and nothing else", func(t *testing.T) {
				g := NewWithT(t)
				e := newEnv(t, newEntry(test.entry, bucket, operation), newSecret(test.entry), newNamespace(test.namespace))
				e.mustReconcile(test.entry)

				secret := newEtcdSecret(test.namespace, test.secret)
				g.Expect(e.exists(secret)).To(BeTrue())
				g.Expect(secret.Data).To(Equal(map[string][]byte{"hostPath": []byte(hostPath), "bucketName": []byte(bucket)}))

				entry := e.entry(test.entry)
				g.Expect(health.CheckExtensionObject(entry)).To(Succeed())
				g.Expect(entry.Annotations).NotTo(HaveKey(v1beta1constants.GardenerOperation))
				g.Expect(entry.Finalizers).To(ConsistOf(backupentry.FinalizerName))
			})
		}
	}

	t.Run("corrects what somebody changed in the Secret", func(t *testing.T) {
		g := NewWithT(t)
		changed := newEtcdSecret(namespace, "etcd-backup")
		changed.Data = map[string][]byte{"hostPath": []byte("/"), "token": []byte("abc")}
		e := newEnv(t, newEntry(entryName, bucket, "reconcile"), newSecret(entryName), newNamespace(namespace), changed)

		e.mustReconcile(entryName)
		g.Expect(e.exists(changed)).To(BeTrue())
		g.Expect(changed.Data).To(Equal(map[string][]byte{"hostPath": []byte(hostPath), "bucketName": []byte(bucket)}))
	})

	t.Run("succeeds without a Secret if there is no namespace, as for a shoot that is gone but for its backups", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(entryName, bucket, "reconcile"), newSecret(entryName))

		e.mustReconcile(entryName)
		g.Expect(health.CheckExtensionObject(e.entry(entryName))).To(Succeed())
	})

	t.Run("reports a conflict and succeeds at the next attempt", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(entryName, bucket, "reconcile"), newSecret(entryName), newNamespace(namespace))
		e.fail = func(verb string, key client.ObjectKey) error {
			if verb == "create" && key.Name == "etcd-backup" {
				return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("changed meanwhile"))
			}
			return nil
		}

		_, err := e.reconcile(entryName)
		g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		g.Expect(e.entry(entryName).Status.LastError.Description).To(ContainSubstring("changed meanwhile"))

		e.fail = nil
		e.mustReconcile(entryName)
		g.Expect(health.CheckExtensionObject(e.entry(entryName))).To(Succeed())
	})
}

func TestMistakes(t *testing.T) {
	for _, test := range []struct{ name, entry, bucket string }{
		{"a bucket name that leads out of the root", entryName, "../../etc"},
		{"the root itself as bucket", entryName, "."},
		{"no bucket", entryName, ""},
		{"a bucket name with a slash", entryName, "bucket/prefix"},
		{"an entry that names another's folder", "virtual-garden-etcd-main", bucket},
		{"an entry that is nothing but the source prefix", "source-", bucket},
	} {
		for _, operation := range []string{"reconcile", "restore"} {
			t.Run("reports "+test.name+" on "+operation+", writes no Secret and does not retry hot", func(t *testing.T) {
				g := NewWithT(t)
				e := newEnv(t, newEntry(test.entry, test.bucket, operation), newSecret(test.entry), newNamespace(namespace))

				g.Expect(e.reconcile(test.entry)).To(Equal(reconcile.Result{RequeueAfter: 10 * time.Minute}))
				entry := e.entry(test.entry)
				g.Expect(entry.Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
				g.Expect(entry.Finalizers).To(BeEmpty())
				g.Expect(e.exists(newEtcdSecret(namespace, "etcd-backup"))).To(BeFalse(), "etcd-druid would mount that folder of the node")

				g.Expect(e.reconcile(test.entry)).To(Equal(reconcile.Result{RequeueAfter: 10 * time.Minute}))
				g.Expect(e.entry(test.entry).ResourceVersion).To(Equal(entry.ResourceVersion))
			})
		}

		t.Run("lets go of an entry with "+test.name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newEntry(test.entry, test.bucket, "", withFinalizer), newSecret(test.entry))
			e.writeSnapshots(filepath.Join(bucket, "virtual-garden-etcd-main"), filepath.Join("bucket", "prefix"))
			e.delete(e.entry(test.entry))

			e.mustReconcile(test.entry)
			g.Expect(e.entryExists(test.entry)).To(BeFalse())
			g.Expect(e.folders()).To(HaveLen(2))
		})
	}

	for _, operation := range []string{"reconcile", "restore", "migrate"} {
		t.Run("reports on "+operation+" that the referenced Secret is missing, and goes on once it is there", func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newEntry(entryName, bucket, operation, withFinalizer), newNamespace(namespace))

			g.Expect(e.reconcile(entryName)).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
			g.Expect(e.entry(entryName).Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
			g.Expect(e.entry(entryName).Status.LastError.Description).To(ContainSubstring("garden/entry-" + entryName))

			g.Expect(e.client.Create(t.Context(), newSecret(entryName))).To(Succeed())
			e.mustReconcile(entryName)
			g.Expect(e.entry(entryName).Status.LastError).To(BeNil())
			g.Expect(e.entry(entryName).Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
		})
	}
}

func TestMigrate(t *testing.T) {
	for _, bucketName := range []string{bucket, "../of/a/mistake"} {
		t.Run("leaves the data to the destination and lets go of the object with bucket "+bucketName, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newEntry(entryName, bucketName, "migrate", withFinalizer), newSecret(entryName), newNamespace(namespace))
			e.writeSnapshots(filepath.Join(bucket, entryName))

			e.mustReconcile(entryName)
			entry := e.entry(entryName)
			g.Expect(entry.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeMigrate))
			g.Expect(entry.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
			g.Expect(entry.Finalizers).To(BeEmpty())
			g.Expect(e.folders()).To(ConsistOf(filepath.Join(bucket, entryName)))

			e.delete(entry)
			e.mustReconcile(entryName)
			g.Expect(e.folders()).To(ConsistOf(filepath.Join(bucket, entryName)), "the object that gardenlet deletes on the source seed is empty by now")
		})
	}
}

func TestDelete(t *testing.T) {
	t.Run("removes just the entry's folder, its Secret and the finalizers", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(entryName, bucket, "reconcile"), newSecret(entryName), newNamespace(namespace))
		e.mustReconcile(entryName)
		others := []string{filepath.Join(bucket, entryName+"-2"), filepath.Join(bucket, sourceName), filepath.Join("other", entryName)}
		e.writeSnapshots(append(others, filepath.Join(bucket, entryName))...)
		e.delete(e.entry(entryName))

		e.mustReconcile(entryName)
		g.Expect(e.entryExists(entryName)).To(BeFalse())
		g.Expect(e.exists(newEtcdSecret(namespace, "etcd-backup"))).To(BeFalse())
		g.Expect(e.folders()).To(ConsistOf(others))

		secret := newSecret(entryName)
		g.Expect(e.exists(secret)).To(BeTrue())
		g.Expect(secret.Finalizers).To(BeEmpty())
	})

	t.Run("is fine with an unknown bucket, and with an entry that had not been made yet", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(entryName, "unknown", "", withFinalizer), newSecret(entryName))
		e.delete(e.entry(entryName))

		e.mustReconcile(entryName)
		g.Expect(e.entryExists(entryName)).To(BeFalse())
	})

	t.Run("works for a force-deleted shoot, whose namespace is gone", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(entryName, bucket, "", withFinalizer, func(entry *extensionsv1alpha1.BackupEntry) {
			entry.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
		}), newSecret(entryName))
		e.writeSnapshots(filepath.Join(bucket, entryName))
		e.delete(e.entry(entryName))

		e.mustReconcile(entryName)
		g.Expect(e.entryExists(entryName)).To(BeFalse())
		g.Expect(e.folders()).To(BeEmpty())
	})

	t.Run("removes the folder even if the referenced Secret is gone", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(entryName, bucket, "", withFinalizer))
		e.writeSnapshots(filepath.Join(bucket, entryName))
		e.delete(e.entry(entryName))

		e.mustReconcile(entryName)
		g.Expect(e.entryExists(entryName)).To(BeFalse())
		g.Expect(e.folders()).To(BeEmpty())
	})

	t.Run("keeps the folder of an entry without the library's finalizer, be the Secret there or not", func(t *testing.T) {
		g := NewWithT(t)
		for _, objects := range [][]client.Object{{newSecret(entryName)}, nil} {
			e := newEnv(t, append(objects, newEntry(entryName, bucket, "", func(entry *extensionsv1alpha1.BackupEntry) {
				entry.Finalizers = []string{"others.example.com/finalizer"}
			}))...)
			e.writeSnapshots(filepath.Join(bucket, entryName))
			e.delete(e.entry(entryName))

			e.mustReconcile(entryName)
			g.Expect(e.folders()).To(ConsistOf(filepath.Join(bucket, entryName)))
		}
	})

	t.Run("goes on where it was interrupted", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(entryName, bucket, "", withFinalizer), newSecret(entryName))
		e.writeSnapshots(filepath.Join(bucket, entryName))
		g.Expect(os.Rename(filepath.Join(e.dir, bucket, entryName), filepath.Join(e.dir, ".deleting-"+entryName+"-ABC"))).To(Succeed())
		e.delete(e.entry(entryName))
		e.restart()

		e.mustReconcile(entryName)
		g.Expect(e.entryExists(entryName)).To(BeFalse())
		g.Expect(os.ReadDir(e.dir)).To(HaveLen(1), "the bucket is left")
	})

	t.Run("keeps the object until the data is gone", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(entryName, bucket, "", withFinalizer), newSecret(entryName))
		g.Expect(os.WriteFile(filepath.Join(e.dir, bucket), nil, 0o600)).To(Succeed())
		e.delete(e.entry(entryName))

		_, err := e.reconcile(entryName)
		g.Expect(err).To(MatchError(ContainSubstring("not a folder")))
		g.Expect(e.entry(entryName).Status.LastError.Description).To(ContainSubstring("not a folder"))

		g.Expect(os.Remove(filepath.Join(e.dir, bucket))).To(Succeed())
		e.mustReconcile(entryName)
		g.Expect(e.entryExists(entryName)).To(BeFalse())
	})
}

func TestDeleteOfSource(t *testing.T) {
	const destination = "seed-8c9d0e1f"
	inSource, inDestination := filepath.Join(bucket, entryName), filepath.Join(destination, entryName)

	for _, test := range []struct {
		name    string
		entry   *extensionsv1alpha1.BackupEntry
		folders []string
		left    []string
	}{
		{
			"removes what has been copied to the destination, and not the copy",
			newEntry(entryName, destination, ""), []string{inSource, inDestination}, []string{inDestination},
		},
		{
			"keeps the data if the entry is in the same bucket still, as nothing has been copied",
			newEntry(entryName, bucket, ""), []string{inSource}, []string{inSource},
		},
		{
			"keeps the data if the entry in the same bucket is on its way out, as it takes the data along",
			newEntry(entryName, bucket, "", withFinalizer, func(entry *extensionsv1alpha1.BackupEntry) {
				entry.DeletionTimestamp = new(metav1.Now())
			}), []string{inSource}, []string{inSource},
		},
		{
			"removes the data if there is no entry any more",
			nil, []string{inSource, inDestination}, []string{inDestination},
		},
		{
			"does not take another shoot's entry in the same bucket for its own",
			newEntry(entryName+"-2", bucket, ""), []string{inSource, inSource + "-2"}, []string{inSource + "-2"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			objects := []client.Object{newEntry(sourceName, bucket, "", withFinalizer), newSecret(sourceName), newNamespace(namespace)}
			if test.entry != nil {
				objects = append(objects, test.entry)
			}
			e := newEnv(t, objects...)
			e.writeSnapshots(test.folders...)
			e.delete(e.entry(sourceName))

			e.mustReconcile(sourceName)
			g.Expect(e.entryExists(sourceName)).To(BeFalse())
			g.Expect(e.folders()).To(ConsistOf(test.left))
		})
	}

	t.Run("keeps the data while it cannot be known whether the entry needs it", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(sourceName, bucket, "", withFinalizer), newSecret(sourceName))
		e.writeSnapshots(inSource)
		e.delete(e.entry(sourceName))
		e.fail = func(verb string, key client.ObjectKey) error {
			if verb == "get" && key.Name == entryName {
				return errors.New("connection refused")
			}
			return nil
		}

		_, err := e.reconcile(sourceName)
		g.Expect(err).To(MatchError(ContainSubstring("connection refused")))
		g.Expect(e.folders()).To(ConsistOf(inSource))
		g.Expect(e.entryExists(sourceName)).To(BeTrue())
	})

	t.Run("leaves the Secret of the entry itself alone", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newEntry(entryName, destination, "reconcile"), newSecret(entryName),
			newEntry(sourceName, bucket, "reconcile"), newSecret(sourceName), newNamespace(namespace))
		e.mustReconcile(entryName)
		e.mustReconcile(sourceName)
		e.delete(e.entry(sourceName))

		e.mustReconcile(sourceName)
		g.Expect(e.exists(newEtcdSecret(namespace, "source-etcd-backup"))).To(BeFalse())
		g.Expect(e.exists(newEtcdSecret(namespace, "etcd-backup"))).To(BeTrue())
	})
}

// A Shoot that is deleted and created again has the same namespace, and for some time two entries.
func TestTwoEntriesForOneNamespace(t *testing.T) {
	const youngerName = namespace + "--4e5f6a7b"
	older := newEntry(entryName, bucket, "reconcile", func(entry *extensionsv1alpha1.BackupEntry) {
		entry.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	})
	younger := newEntry(youngerName, "another", "reconcile", func(entry *extensionsv1alpha1.BackupEntry) {
		entry.CreationTimestamp = metav1.NewTime(time.Unix(2000, 0))
	})
	type step struct {
		entry  string
		delete bool
	}
	write := func(entry string) step { return step{entry: entry} }
	remove := func(entry string) step { return step{entry: entry, delete: true} }

	for name, test := range map[string]struct {
		steps []step
		owner string
	}{
		"the older one goes after the younger one has written":  {[]step{write(entryName), write(youngerName), remove(entryName)}, youngerName},
		"the older one is reconciled once more, and goes":       {[]step{write(entryName), write(youngerName), write(entryName), remove(entryName)}, youngerName},
		"the older one is reconciled first by the new instance": {[]step{write(youngerName), write(entryName), remove(entryName)}, youngerName},
		"the younger one goes":                                  {[]step{write(entryName), write(youngerName), remove(youngerName)}, ""},
		"the younger one goes, the older one is reconciled":     {[]step{write(youngerName), remove(youngerName), write(entryName)}, entryName},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with restarts: %t", name, restarts), func(t *testing.T) {
				g := NewWithT(t)
				e := newEnv(t, older.DeepCopy(), younger.DeepCopy(), newSecret(entryName), newSecret(youngerName), newNamespace(namespace))
				for _, step := range test.steps {
					if restarts {
						e.restart()
					}
					if step.delete {
						e.delete(e.entry(step.entry))
					} else {
						entry := e.entry(step.entry)
						entry.Annotations = map[string]string{v1beta1constants.GardenerOperation: "reconcile"}
						g.Expect(e.client.Update(t.Context(), entry)).To(Succeed())
					}
					e.mustReconcile(step.entry)
				}
				secret := newEtcdSecret(namespace, "etcd-backup")
				g.Expect(e.exists(secret)).To(Equal(test.owner != ""))
				if test.owner != "" {
					g.Expect(secret.Annotations).To(HaveKeyWithValue("backup.gardener.cloud/created-by", test.owner))
				}
			})
		}
	}

	t.Run("the younger one writes while the older one is about to delete", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, older.DeepCopy(), younger.DeepCopy(), newSecret(entryName), newSecret(youngerName), newNamespace(namespace))
		e.mustReconcile(entryName)
		e.restart()
		e.fail = func(verb string, key client.ObjectKey) error {
			if verb == "delete" && key.Name == "etcd-backup" {
				e.fail = nil
				e.mustReconcile(youngerName)
			}
			return nil
		}
		e.delete(e.entry(entryName))
		e.mustReconcile(entryName)
		g.Expect(e.entryExists(entryName)).To(BeFalse())
		g.Expect(e.exists(newEtcdSecret(namespace, "etcd-backup"))).To(BeTrue())
	})
}
