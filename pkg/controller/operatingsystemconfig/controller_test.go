// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	namespace = "shoot--local--foo"
	name      = "worker-init"
	finalizer = "extensions.gardener.cloud/operatingsystemconfigs"
)

var key = client.ObjectKey{Namespace: namespace, Name: name}

// env is a fake seed and the controller.
type env struct {
	client.WithWatch
	t *testing.T
	// fail may return an error for a write to a Secret.
	fail       func() error
	reconciler reconcile.Reconciler
}

func newEnv(t *testing.T, osc *extensionsv1alpha1.OperatingSystemConfig, objects ...client.Object) *env {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())

	e := &env{t: t}
	e.WithWatch = interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, osc)...).WithStatusSubresource(osc).Build(),
		interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if e.fail != nil {
				return e.fail()
			}
			return c.Apply(ctx, obj, opts...)
		}},
	)
	e.restart()
	return e
}

// restart makes a new reconciler, as a new process would.
func (e *env) restart() {
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	e.reconciler = newReconciler(e.WithWatch, reconciler.Shared{Classes: classes})
}

func (e *env) reconcile() (reconcile.Result, error) {
	return e.reconciler.Reconcile(e.t.Context(), reconcile.Request{NamespacedName: key})
}

func (e *env) mustReconcile() reconcile.Result {
	e.t.Helper()
	result, err := e.reconcile()
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	return result
}

func (e *env) config() *extensionsv1alpha1.OperatingSystemConfig {
	e.t.Helper()
	osc := &extensionsv1alpha1.OperatingSystemConfig{}
	NewWithT(e.t).Expect(e.Get(e.t.Context(), key, osc)).To(Succeed())
	return osc
}

// userData returns what the Secret holds that the status names.
func (e *env) userData() string {
	e.t.Helper()
	g := NewWithT(e.t)
	status := e.config().Status
	g.Expect(status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	g.Expect(status.CloudConfig).NotTo(BeNil())
	secret := &corev1.Secret{}
	g.Expect(e.Get(e.t.Context(), client.ObjectKey{Namespace: status.CloudConfig.SecretRef.Namespace, Name: status.CloudConfig.SecretRef.Name}, secret)).To(Succeed())
	g.Expect(secret.OwnerReferences).To(ConsistOf(HaveField("Name", name)))
	return string(secret.Data["cloud_config"])
}

func newConfig(change ...func(*extensionsv1alpha1.OperatingSystemConfig)) *extensionsv1alpha1.OperatingSystemConfig {
	files, units := nodeInit()
	osc := &extensionsv1alpha1.OperatingSystemConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1, UID: "1"},
		Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			Purpose:     extensionsv1alpha1.OperatingSystemConfigPurposeProvision,
			Files:       files,
			Units:       units,
		},
	}
	for _, change := range change {
		change(osc)
	}
	return osc
}

func purpose(purpose extensionsv1alpha1.OperatingSystemConfigPurpose) func(*extensionsv1alpha1.OperatingSystemConfig) {
	return func(osc *extensionsv1alpha1.OperatingSystemConfig) { osc.Spec.Purpose = purpose }
}

func version(version string) func(*extensionsv1alpha1.OperatingSystemConfig) {
	return func(osc *extensionsv1alpha1.OperatingSystemConfig) {
		osc.Spec.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdates{OperatingSystemVersion: version}
	}
}

func operation(operation string) func(*extensionsv1alpha1.OperatingSystemConfig) {
	return func(osc *extensionsv1alpha1.OperatingSystemConfig) {
		osc.Annotations = map[string]string{"gardener.cloud/operation": operation}
	}
}

func fromSecret(osc *extensionsv1alpha1.OperatingSystemConfig) {
	osc.Spec.Files = []extensionsv1alpha1.File{{Path: "/etc/a", Content: extensionsv1alpha1.FileContent{
		SecretRef: &extensionsv1alpha1.FileContentSecretRef{Name: "content", DataKey: "key"},
	}}}
}

func secret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "content"}, Data: data}
}

func newCluster(t *testing.T, annotations map[string]string) *extensionsv1alpha1.Cluster {
	t.Helper()
	shoot, err := json.Marshal(&gardencorev1beta1.Shoot{
		TypeMeta:   metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: "Shoot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: "foo", Annotations: annotations},
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	cluster.Spec.Shoot.Raw = shoot

	return cluster
}

func TestProvisionBecomesUserData(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newConfig(), newCluster(t, nil))
	e.mustReconcile()
	first := e.userData()
	files, units := nodeInit()
	g.Expect(first).To(Equal(string(mustRender(t, defaultPlaces, files, units))))
	g.Expect(e.config().Status.ExtensionUnits).To(BeEmpty())
	g.Expect(e.config().Finalizers).To(ConsistOf(finalizer))

	e.restart()
	e.mustReconcile()
	g.Expect(e.userData()).To(Equal(first), "machines would be replaced otherwise")
}

func TestProvisionReadsSecrets(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newConfig(fromSecret), newCluster(t, nil), secret(map[string][]byte{"key": []byte("from a Secret")}))
	e.mustReconcile()
	g.Expect(e.userData()).To(ContainSubstring("put 0644 base64 'ZnJvbSBhIFNlY3JldA==' '/etc/a'"))
}

func TestMistakesAreReportedAndLeftAlone(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*extensionsv1alpha1.OperatingSystemConfig)
		objects []client.Object
		err     string
		missing bool
	}{
		"a Secret that is missing":    {change: fromSecret, err: "the Secret shoot--local--foo/content does not exist", missing: true},
		"a key that is missing":       {change: fromSecret, objects: []client.Object{secret(nil)}, err: "has no key key", missing: true},
		"a purpose that there is not": {change: purpose("decorate"), err: "spec.purpose"},
		"a path that breaks out": {change: func(osc *extensionsv1alpha1.OperatingSystemConfig) {
			osc.Spec.Files[0].Path = `/a"; id; "`
		}, err: "spec.files[0].path"},
		"a version that is none": {change: func(osc *extensionsv1alpha1.OperatingSystemConfig) {
			purpose("reconcile")(osc)
			version("1.0; id")(osc)
		}, err: "spec.inPlaceUpdates.operatingSystemVersion"},
		"a data volume for the kubelet": {change: func(osc *extensionsv1alpha1.OperatingSystemConfig) {
			purpose("reconcile")(osc)
			osc.Spec.Units = append(osc.Spec.Units, extensionsv1alpha1.Unit{Name: "var-lib-kubelet.mount"})
		}, err: "kubeletDataVolumeName"},
	} {
		for _, restoring := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " in a restore"}[restoring], func(t *testing.T) {
				g := NewWithT(t)
				osc := newConfig(test.change)
				if restoring {
					operation("restore")(osc)
				}
				e := newEnv(t, osc, append(test.objects, newCluster(t, nil))...)
				result := e.mustReconcile()
				expected := reconciler.RetryMistake
				if test.missing {
					expected = reconciler.RetryMissing
				}
				g.Expect(result.RequeueAfter).To(Equal(expected))

				status := e.config().Status
				g.Expect(status.LastError).NotTo(BeNil())
				g.Expect(status.LastError.Description).To(ContainSubstring(test.err))
				g.Expect(status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
				g.Expect(status.CloudConfig).To(BeNil())

				before := e.config().ResourceVersion
				e.mustReconcile()
				g.Expect(e.config().ResourceVersion).To(Equal(before), "a write would wake it again")
			})
		}
	}
}

func TestASecretThatComesLaterIsFound(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newConfig(fromSecret), newCluster(t, nil))
	e.mustReconcile()
	g.Expect(e.Create(t.Context(), secret(map[string][]byte{"key": []byte("x")}))).To(Succeed())
	e.mustReconcile()
	g.Expect(e.userData()).To(ContainSubstring("'/etc/a'"))
	g.Expect(e.config().Status.LastError).To(BeNil())
}

func TestAConflictIsTriedAgain(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newConfig(), newCluster(t, nil))
	e.fail = func() error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "osc-result-"+name, errors.New("changed"))
	}
	_, err := e.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("changed")))
	e.fail = nil
	e.mustReconcile()
	g.Expect(e.userData()).NotTo(BeEmpty())
}

func TestReconcileAddsWhatThisMachineNeeds(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*extensionsv1alpha1.OperatingSystemConfig)
		expected *extensionsv1alpha1.InPlaceUpdatesStatus
	}{
		"without updates in place": {change: func(*extensionsv1alpha1.OperatingSystemConfig) {}},
		"with updates in place": {change: version("1.2.3-rc.1"), expected: &extensionsv1alpha1.InPlaceUpdatesStatus{
			OSUpdate: &extensionsv1alpha1.OSUpdate{Command: "/usr/local/lib/provider-local/os-version", Args: []string{"1.2.3-rc.1"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newConfig(purpose("reconcile"), test.change), newCluster(t, nil))
			e.mustReconcile()
			status := e.config().Status
			g.Expect(status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
			g.Expect(status.InPlaceUpdates).To(Equal(test.expected))
			g.Expect(status.ExtensionUnits).To(ConsistOf(extensionsv1alpha1.Unit{Name: "systemd-user-sessions.service", Enable: new(true), Command: new(extensionsv1alpha1.CommandStart)}))
			g.Expect(status.ExtensionFiles).To(BeEmpty())
			g.Expect(status.CloudConfig).To(BeNil())
			secrets := &corev1.SecretList{}
			g.Expect(e.List(t.Context(), secrets)).To(Succeed())
			g.Expect(secrets.Items).To(BeEmpty(), "there is no user data")
		})
	}
}

func TestMigrateAndRestore(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newConfig(), newCluster(t, nil))
	e.mustReconcile()
	before := e.userData()

	osc := e.config()
	operation("migrate")(osc)
	g.Expect(e.Update(t.Context(), osc)).To(Succeed())
	e.mustReconcile()
	osc = e.config()
	g.Expect(osc.Finalizers).To(BeEmpty())
	g.Expect(osc.Annotations).To(BeEmpty())
	g.Expect(osc.Status.LastOperation).To(And(HaveField("Type", gardencorev1beta1.LastOperationTypeMigrate), HaveField("State", gardencorev1beta1.LastOperationStateSucceeded)))

	other := newEnv(t, newConfig(operation("restore")), newCluster(t, nil))
	other.mustReconcile()
	g.Expect(other.config().Annotations).To(BeEmpty())
	g.Expect(other.config().Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeRestore))
	g.Expect(other.userData()).To(Equal(before), "machines go on in the other seed as they are")
}

func TestDeletion(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		change      func(*extensionsv1alpha1.OperatingSystemConfig)
	}{
		"of what has succeeded":        {change: func(*extensionsv1alpha1.OperatingSystemConfig) {}},
		"of what never could succeed":  {change: purpose("decorate")},
		"by force":                     {change: func(*extensionsv1alpha1.OperatingSystemConfig) {}, annotations: map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}},
		"by force of what never could": {change: fromSecret, annotations: map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newConfig(test.change, func(osc *extensionsv1alpha1.OperatingSystemConfig) {
				osc.Finalizers = []string{finalizer}
			}), newCluster(t, test.annotations))
			e.mustReconcile()
			g.Expect(e.Delete(t.Context(), e.config())).To(Succeed())
			e.mustReconcile()
			g.Expect(e.Get(t.Context(), key, &extensionsv1alpha1.OperatingSystemConfig{})).To(MatchError(apierrors.IsNotFound, "is gone"))
			e.mustReconcile()
		})
	}
}

func TestObjectsOfOthersAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*extensionsv1alpha1.OperatingSystemConfig){
		"of another type": func(osc *extensionsv1alpha1.OperatingSystemConfig) { osc.Spec.Type = "gardenlinux" },
		"of another class": func(osc *extensionsv1alpha1.OperatingSystemConfig) {
			osc.Spec.Class = new(extensionsv1alpha1.ExtensionClassSeed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newConfig(change), newCluster(t, nil))
			e.mustReconcile()
			g.Expect(e.config().Finalizers).To(BeEmpty())
			g.Expect(e.config().Status.LastOperation).To(BeNil())
		})
	}
}

func TestWithoutAClusterNothingIsLost(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newConfig())
	g.Expect(e.mustReconcile().RequeueAfter).To(Equal(reconciler.RetryCluster), "gardenlet makes the Cluster first")
	g.Expect(e.config().Status.LastError.Description).To(ContainSubstring("there is no Cluster shoot--local--foo"))
	g.Expect(e.Create(t.Context(), newCluster(t, nil))).To(Succeed())
	e.mustReconcile()
	g.Expect(e.userData()).NotTo(BeEmpty())
}
