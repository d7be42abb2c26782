// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupbucket

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/backupbucket"
	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
)

var generatedData = map[string][]byte{"hostPath": []byte(hostPath), "bucketName": []byte(bucketName)}

func TestReconcile(t *testing.T) {
	t.Run("makes the folder, the Secret and the status that Gardener waits for", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()

		info, err := os.Stat(filepath.Join(e.dir, bucketName))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode()).To(Equal(fs.ModeDir | 0o770))

		g.Expect(e.secret("garden").Data).To(Equal(generatedData))
		g.Expect(e.secret("garden").Labels).To(HaveKeyWithValue(LabelGeneratedFor, LabelValueBackupBucket))

		bucket := e.bucket()
		g.Expect(health.CheckExtensionObject(bucket)).To(Succeed())
		g.Expect(bucket.Status.GeneratedSecretRef).To(Equal(&corev1.SecretReference{Namespace: "garden", Name: secretName}))
		g.Expect(string(bucket.Status.ProviderStatus.Raw)).To(MatchJSON(`{
			"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "BackupBucketStatus", "hostPath": "` + hostPath + `"}`))
	})

	t.Run("writes nothing of its own when it is asked again", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		e.ask()
		e.takeWrites()

		e.mustReconcile()
		g.Expect(e.takeWrites()).To(Equal([]string{"patch BackupBucket", "patch BackupBucket status"}))

		g.Expect(e.apply(e.bucket())).To(Succeed())
		g.Expect(e.takeWrites()).To(BeEmpty())
	})

	t.Run("puts the provider status right", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		bucket := e.bucket()
		e.takeWrites()

		before := bucket.DeepCopy()
		bucket.Status.ProviderStatus.Raw = []byte(`{"hostPath":5}`)
		g.Expect(e.apply(bucket)).To(Succeed())
		g.Expect(json.Marshal(bucket.Status.ProviderStatus)).To(MatchJSON(before.Status.ProviderStatus.Raw))
		g.Expect(e.takeWrites()).To(BeEmpty())
	})

	for _, test := range []struct {
		name   string
		change func(*env, *corev1.Secret) error
	}{
		{"creates the Secret again if somebody deleted it", func(e *env, secret *corev1.Secret) error { return e.client.Delete(e.t.Context(), secret) }},
		{"corrects the Secret's data", func(e *env, secret *corev1.Secret) error {
			secret.Data = map[string][]byte{"hostPath": []byte("/"), "more": nil}
			return e.client.Update(e.t.Context(), secret)
		}},
		{"puts the Secret's label back", func(e *env, secret *corev1.Secret) error {
			secret.Labels = nil
			return e.client.Update(e.t.Context(), secret)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newBucket(), newReferencedSecret())
			e.mustReconcile()
			g.Expect(test.change(e, e.secret("garden"))).To(Succeed())

			e.mustReconcile()
			g.Expect(e.secret("garden").Data).To(Equal(generatedData))
			g.Expect(e.secret("garden").Labels).To(HaveKeyWithValue(LabelGeneratedFor, LabelValueBackupBucket))
		})
	}

	t.Run("replaces a Secret that lingers because a BackupEntry refers to it", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		e.addFinalizers(backupentry.FinalizerName)
		g.Expect(e.client.Delete(t.Context(), e.secret("garden"))).To(Succeed())
		g.Expect(e.secret("garden").DeletionTimestamp).NotTo(BeNil())

		e.mustReconcile()
		g.Expect(e.secret("garden").DeletionTimestamp).To(BeNil())
		g.Expect(e.secret("garden").Data).To(Equal(generatedData))
	})

	t.Run("leaves a lingering Secret with somebody else's finalizer to them", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		e.addFinalizers("others.example.com/finalizer")
		g.Expect(e.client.Delete(t.Context(), e.secret("garden"))).To(Succeed())

		e.mustReconcile()
		g.Expect(e.secret("garden").Finalizers).To(ConsistOf("others.example.com/finalizer"))
	})

	t.Run("makes a Secret of that name its own, as the in-tree provider leaves an empty one, and keeps others' labels", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "garden", Name: secretName, Labels: map[string]string{"other": "label"},
		}})

		e.mustReconcile()
		g.Expect(e.secret("garden").Data).To(Equal(generatedData))
		g.Expect(e.secret("garden").Labels).To(Equal(map[string]string{"other": "label", LabelGeneratedFor: LabelValueBackupBucket}))
	})

	t.Run("corrects the mode of the folder and keeps what is in it", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		e.writeSnapshot()
		g.Expect(os.Chmod(filepath.Join(e.dir, bucketName), 0o700)).To(Succeed())

		e.ask()
		e.mustReconcile()
		info, err := os.Stat(filepath.Join(e.dir, bucketName))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(fs.FileMode(0o770)))
		g.Expect(filepath.Join(e.dir, bucketName, "garden--1", "v2")).To(BeADirectory())
	})

	t.Run("follows a changed host path", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		e.actuator.HostPath = "/elsewhere"

		e.mustReconcile()
		g.Expect(e.secret("garden").Data).To(HaveKeyWithValue("hostPath", []byte("/elsewhere")))
		g.Expect(string(e.bucket().Status.ProviderStatus.Raw)).To(ContainSubstring(`"/elsewhere"`))
	})

	t.Run("moves the Secret to where Gardener wants it", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		bucket := e.bucket()
		metav1.SetMetaDataAnnotation(&bucket.ObjectMeta, v1beta1constants.AnnotationBackupBucketGeneratedSecretNamespace, "kube-system")
		g.Expect(e.client.Update(t.Context(), bucket)).To(Succeed())

		e.mustReconcile()
		g.Expect(e.secret("kube-system").Data).To(Equal(generatedData))
		g.Expect(e.secretExists("garden")).To(BeFalse())
		g.Expect(e.bucket().Status.GeneratedSecretRef.Namespace).To(Equal("kube-system"))

		e.takeWrites()
		g.Expect(e.apply(e.bucket())).To(Succeed())
		g.Expect(e.takeWrites()).To(BeEmpty(), "in a namespace that is not watched, it is idempotent as well")
	})

	t.Run("does not delete a Secret that is not the bucket's, whatever the status says", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(func(bucket *extensionsv1alpha1.BackupBucket) {
			bucket.Status.GeneratedSecretRef = &corev1.SecretReference{Namespace: "garden", Name: "precious"}
		}), newReferencedSecret(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "precious"}})

		e.mustReconcile()
		g.Expect(e.exists(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "precious"}})).To(BeTrue())
		g.Expect(e.bucket().Status.GeneratedSecretRef.Name).To(Equal(secretName))
	})

	t.Run("reports a conflict and succeeds at the next attempt", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, secretName, errors.New("changed meanwhile"))
		e.fail = func(verb string, _ client.Object) error {
			if verb == "create Secret" {
				return conflict
			}
			return nil
		}

		_, err := e.reconcile(bucketName)
		g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		g.Expect(e.bucket().Status.LastError.Description).To(ContainSubstring("changed meanwhile"))
		g.Expect(e.bucket().Status.GeneratedSecretRef).To(BeNil(), "nobody is to be sent to a Secret that is not there")

		e.fail = nil
		e.mustReconcile()
		g.Expect(health.CheckExtensionObject(e.bucket())).To(Succeed())
	})

	t.Run("reports a fault of the disk as it is, and leaves the pace to the queue", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		g.Expect(os.WriteFile(filepath.Join(e.dir, bucketName), nil, 0o600)).To(Succeed())

		_, err := e.reconcile(bucketName)
		g.Expect(err).To(MatchError(ContainSubstring("not a folder")))
		g.Expect(e.bucket().Status.LastError.Description).To(ContainSubstring("not a folder"))
		g.Expect(e.bucket().Status.LastError.Codes).To(BeEmpty())
	})
}

func TestMistakes(t *testing.T) {
	for _, name := range []string{"..", "../outside", "a/b", "UPPER", strings.Repeat("a", backup.MaxNameLength+1)} {
		t.Run("reports bad name "+name+", touches nothing and does not retry hot", func(t *testing.T) {
			g := NewWithT(t)
			bucket := newBucket(func(bucket *extensionsv1alpha1.BackupBucket) { bucket.Name = name })
			e := newEnv(t, bucket, newReferencedSecret())

			g.Expect(e.reconcile(name)).To(Equal(reconcile.Result{RequeueAfter: 10 * time.Minute}))
			g.Expect(e.exists(bucket)).To(BeTrue())
			g.Expect(bucket.Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
			g.Expect(bucket.Status.LastError.Description).To(ContainSubstring("bad name"))
			g.Expect(bucket.Finalizers).To(BeEmpty(), "there is nothing to clean up")
			g.Expect(e.folders()).To(BeEmpty())

			e.takeWrites()
			g.Expect(e.reconcile(name)).To(Equal(reconcile.Result{RequeueAfter: 10 * time.Minute}))
			g.Expect(e.takeWrites()).To(BeEmpty())
		})

		t.Run("lets go of a bucket with bad name "+name, func(t *testing.T) {
			g := NewWithT(t)
			bucket := newBucket(withFinalizer, func(bucket *extensionsv1alpha1.BackupBucket) { bucket.Name = name })
			e := newEnv(t, bucket, newReferencedSecret())
			g.Expect(e.client.Delete(t.Context(), bucket)).To(Succeed())

			g.Expect(e.reconcile(name)).To(Equal(reconcile.Result{}))
			g.Expect(e.exists(bucket)).To(BeFalse())
		})
	}

	t.Run("is a configuration problem of the actuator as well", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newReferencedSecret())
		err := e.apply(newBucket(func(bucket *extensionsv1alpha1.BackupBucket) { bucket.Name = ".." }))
		g.Expect(err).To(MatchError(And(ContainSubstring("requeue in 10m0s"), ContainSubstring("bad name"))))
		g.Expect(e.takeWrites()).To(ConsistOf("patch Secret"))
	})

	t.Run("reports that the referenced Secret is missing, and goes on once it is there", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket())

		g.Expect(e.reconcile(bucketName)).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
		bucket := e.bucket()
		g.Expect(bucket.Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
		g.Expect(bucket.Status.LastError.Description).To(ContainSubstring("garden/backup-local"))
		g.Expect(bucket.Annotations).NotTo(HaveKey(v1beta1constants.GardenerOperation))
		g.Expect(e.folders()).To(BeEmpty())

		g.Expect(e.client.Create(t.Context(), newReferencedSecret())).To(Succeed())
		e.mustReconcile()
		g.Expect(health.CheckExtensionObject(e.bucket())).To(Succeed())
	})
}

func TestDelete(t *testing.T) {
	t.Run("removes the data, the Secret and the finalizers", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		e.writeSnapshot()
		e.deleteBucket()

		e.mustReconcile()
		g.Expect(e.bucketExists()).To(BeFalse())
		g.Expect(e.secretExists("garden")).To(BeFalse())
		g.Expect(e.folders()).To(BeEmpty())

		referenced := newReferencedSecret()
		g.Expect(e.exists(referenced)).To(BeTrue())
		g.Expect(referenced.Finalizers).To(BeEmpty())
	})

	const another = "is another one by now: its data stay"
	for name, test := range map[string]struct {
		live    func(*extensionsv1alpha1.BackupBucket) []client.Object
		message string
	}{
		"keeps the data if the cache does not know that they are in use": {func(bucket *extensionsv1alpha1.BackupBucket) []client.Object {
			entry := &extensionsv1alpha1.BackupEntry{ObjectMeta: metav1.ObjectMeta{Name: "shoot--p--a--uid"}}
			entry.Spec.Type, entry.Spec.BucketName = "local", bucket.Name
			return []client.Object{bucket, entry}
		}, "in use by 1 BackupEntries"},
		"keeps the data of a bucket that has come since, and goes as well": {func(bucket *extensionsv1alpha1.BackupBucket) []client.Object {
			bucket.UID = "another"
			return []client.Object{bucket}
		}, another},
		"keeps the data of a bucket that is not to go": {func(bucket *extensionsv1alpha1.BackupBucket) []client.Object {
			bucket.DeletionTimestamp = nil
			return []client.Object{bucket}
		}, another},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newBucket(), newReferencedSecret())
			e.mustReconcile()
			e.writeSnapshot()
			e.deleteBucket()
			objects := test.live(e.bucket())
			for _, object := range objects {
				object.SetResourceVersion("")
			}
			e.actuator.reader = fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).Build()

			_, _ = e.reconcile(bucketName)
			g.Expect(e.bucket().Status.LastError.Description).To(ContainSubstring(test.message))
			g.Expect(e.folders()).To(ConsistOf(bucketName))
		})
	}

	t.Run("removes the Secret even if an entry that is gone left its finalizer", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		e.addFinalizers(backupentry.FinalizerName)
		e.deleteBucket()

		e.mustReconcile()
		g.Expect(e.secretExists("garden")).To(BeFalse())
	})

	t.Run("works if the referenced Secret is gone", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		referenced := newReferencedSecret()
		g.Expect(e.exists(referenced)).To(BeTrue())
		referenced.Finalizers = nil
		g.Expect(e.client.Update(t.Context(), referenced)).To(Succeed())
		g.Expect(e.client.Delete(t.Context(), referenced)).To(Succeed())
		e.deleteBucket()

		e.mustReconcile()
		g.Expect(e.bucketExists()).To(BeFalse())
		g.Expect(e.folders()).To(BeEmpty())
		g.Expect(e.secretExists("garden")).To(BeFalse())
	})

	t.Run("is fine with a bucket that had not been made yet", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(withFinalizer), newReferencedSecret())
		e.deleteBucket()

		e.mustReconcile()
		g.Expect(e.bucketExists()).To(BeFalse())
	})

	t.Run("goes on where it was interrupted between data and Secret", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		e.writeSnapshot()
		e.deleteBucket()
		e.fail = func(verb string, _ client.Object) error {
			if verb == "delete Secret" {
				return errors.New("the process ends here")
			}
			return nil
		}

		_, err := e.reconcile(bucketName)
		g.Expect(err).To(MatchError(ContainSubstring("the process ends here")))
		g.Expect(e.folders()).To(BeEmpty())
		g.Expect(e.bucketExists()).To(BeTrue(), "as long as something of the bucket is left, so is its object")
		g.Expect(e.secretExists("garden")).To(BeTrue())

		e.fail = nil
		e.mustReconcile()
		g.Expect(e.bucketExists()).To(BeFalse())
		g.Expect(e.secretExists("garden")).To(BeFalse())
	})

	t.Run("goes on where the removal of the data was interrupted", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(withFinalizer), newReferencedSecret())
		g.Expect(os.MkdirAll(filepath.Join(e.dir, ".deleting-"+bucketName+"-ABC", "garden--1"), 0o700)).To(Succeed())
		e.deleteBucket()
		e.restart()

		e.mustReconcile()
		g.Expect(e.folders()).To(BeEmpty())
		g.Expect(e.bucketExists()).To(BeFalse())
	})

	t.Run("waits until no BackupEntry of the type is in the bucket", func(t *testing.T) {
		g := NewWithT(t)
		entry := newEntry("garden--1", bucketName)
		otherType := newEntry("garden--2", bucketName)
		otherType.Spec.Type = "other"
		e := newEnv(t, newBucket(), newReferencedSecret(), entry, newEntry("garden--3", "other-bucket"), otherType)
		e.mustReconcile()
		e.writeSnapshot()
		e.deleteBucket()

		g.Expect(e.reconcile(bucketName)).To(Equal(reconcile.Result{RequeueAfter: 10 * time.Minute}))
		g.Expect(e.bucket().Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorInfraDependencies))
		g.Expect(e.bucket().Status.LastError.Description).To(And(ContainSubstring("delete them first: garden--1"), Not(ContainSubstring("garden--2"))))
		g.Expect(filepath.Join(e.dir, bucketName, "garden--1", "v2")).To(BeADirectory())
		g.Expect(e.secretExists("garden")).To(BeTrue())

		g.Expect(e.client.Delete(t.Context(), entry)).To(Succeed())
		e.mustReconcile()
		g.Expect(e.bucketExists()).To(BeFalse())
		g.Expect(e.folders()).To(BeEmpty())
	})

	t.Run("leaves a bucket without the library's finalizer alone", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(func(bucket *extensionsv1alpha1.BackupBucket) {
			bucket.Finalizers = []string{"others.example.com/finalizer"}
		}))
		e.writeSnapshot()
		e.deleteBucket()

		e.mustReconcile()
		g.Expect(e.bucket().Finalizers).NotTo(ContainElement(backupbucket.FinalizerName))
		g.Expect(e.folders()).To(ConsistOf(bucketName))
	})
}
