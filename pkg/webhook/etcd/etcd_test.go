// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/etcd"
)

const hostPath = "/etc/gardener/local-backupbuckets"

type fakeManager struct {
	manager.Manager
	scheme *runtime.Scheme
}

func (m fakeManager) GetScheme() *runtime.Scheme { return m.scheme }
func (fakeManager) GetClient() client.Client     { return nil }

func newWebhook(t testing.TB) *extensionswebhook.Webhook {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(appsv1.AddToScheme(scheme)).To(Succeed())
	g.Expect(batchv1.AddToScheme(scheme)).To(Succeed())
	webhook, err := etcd.New(fakeManager{scheme: scheme}, etcd.Options{HostPath: hostPath})
	g.Expect(err).NotTo(HaveOccurred())
	return webhook
}

// workload is a StatefulSet or a Job, and the pod in it.
type workload struct {
	client.Object
	pod *corev1.PodSpec
}

// rendered reads what etcd-druid v0.38.1 has built for an Etcd or an EtcdCopyBackupsTask whose store is of provider local
// and whose Secret has the hostPath above.
func rendered(t testing.TB, name string) workload {
	t.Helper()
	g := NewWithT(t)
	data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	if strings.HasPrefix(name, "statefulset") {
		obj := &appsv1.StatefulSet{}
		g.Expect(yaml.UnmarshalStrict(data, obj)).To(Succeed())
		return workload{obj, &obj.Spec.Template.Spec}
	}
	obj := &batchv1.Job{}
	g.Expect(yaml.UnmarshalStrict(data, obj)).To(Succeed())
	return workload{obj, &obj.Spec.Template.Spec}
}

// withoutBackups takes out of the pod what an etcd-druid that does not know the provider local would not put in.
func (w workload) withoutBackups() workload {
	w.pod.InitContainers = nil
	backups := map[string]bool{}
	var volumes []corev1.Volume
	for _, volume := range w.pod.Volumes {
		if backups[volume.Name] = volume.HostPath != nil; volume.HostPath == nil {
			volumes = append(volumes, volume)
		}
	}
	w.pod.Volumes = volumes
	for i, container := range w.pod.Containers {
		var mounts []corev1.VolumeMount
		for _, mount := range container.VolumeMounts {
			if !backups[mount.Name] {
				mounts = append(mounts, mount)
			}
		}
		w.pod.Containers[i].VolumeMounts = mounts
	}
	return w
}

// ask sends the object to the webhook and returns it as the API server would go on with it.
func ask(t *testing.T, w workload, operation admissionv1.Operation) (patched bool, result workload) {
	t.Helper()
	g := NewWithT(t)
	raw, err := json.Marshal(w.Object)
	g.Expect(err).NotTo(HaveOccurred())

	gvk := w.GetObjectKind().GroupVersionKind()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: operation, Kind: metav1.GroupVersionKind(gvk), Object: runtime.RawExtension{Raw: raw},
	}}
	if operation == admissionv1.Update {
		request.OldObject.Raw = raw
	}
	response := newWebhook(t).Webhook.Handle(t.Context(), request)
	g.Expect(response.Allowed).To(BeTrue(), "it never refuses anything")

	// All that a patch does here is to add to lists.
	for _, operation := range response.Patches {
		g.Expect(operation.Operation).To(Equal("add"), operation.Path)
		g.Expect(operation.Path).To(Or(
			HavePrefix("/spec/template/spec/volumes"), MatchRegexp(`^/spec/template/spec/containers/\d/volumeMounts`)))
	}
	return len(response.Patches) > 0, apply(t, w, response)
}

func apply(t *testing.T, w workload, response admission.Response) workload {
	t.Helper()
	g := NewWithT(t)
	for _, operation := range response.Patches {
		value, err := json.Marshal(operation.Value)
		g.Expect(err).NotTo(HaveOccurred())
		if strings.Contains(operation.Path, "volumeMounts") {
			container := &w.pod.Containers[operation.Path[len("/spec/template/spec/containers/")]-'0']
			container.VolumeMounts = append(container.VolumeMounts, decode[corev1.VolumeMount](t, value)...)
		} else {
			w.pod.Volumes = append(w.pod.Volumes, decode[corev1.Volume](t, value)...)
		}
	}
	return w
}

// decode decodes one T or a list of them.
func decode[T any](t *testing.T, data []byte) []T {
	t.Helper()
	if data[0] != '[' {
		data = []byte("[" + string(data) + "]")
	}
	var result []T
	NewWithT(t).Expect(json.Unmarshal(data, &result)).To(Succeed())
	return result
}

// mounted returns where containers have folders of the node: "container path = folder".
func (w workload) mounted() []string {
	var result []string
	for _, container := range w.pod.Containers {
		for _, mount := range container.VolumeMounts {
			for _, volume := range w.pod.Volumes {
				if volume.Name == mount.Name && volume.HostPath != nil {
					result = append(result, container.Name+" "+mount.MountPath+" = "+volume.HostPath.Path+" "+string(*volume.HostPath.Type))
				}
			}
		}
	}
	return result
}

func TestTheWebhookIsForEtcdsOfShootsWithLocalBackups(t *testing.T) {
	g := NewWithT(t)
	webhook := newWebhook(t)

	g.Expect(webhook.Target).To(Equal(extensionswebhook.TargetSeed))
	g.Expect(webhook.Action).To(Equal(extensionswebhook.ActionMutating))
	g.Expect(webhook.Types).To(ConsistOf(extensionswebhook.Type{Obj: &appsv1.StatefulSet{}}, extensionswebhook.Type{Obj: &batchv1.Job{}}))
	g.Expect(*webhook.FailurePolicy).To(Equal(admissionregistrationv1.Ignore), "an etcd must not wait for this extension")
	g.Expect(*webhook.TimeoutSeconds).To(BeNumerically("<=", 5))

	selects := func(selector *metav1.LabelSelector, set map[string]string) bool {
		s, err := metav1.LabelSelectorAsSelector(selector)
		g.Expect(err).NotTo(HaveOccurred())
		return s.Matches(labels.Set(set))
	}
	g.Expect(selects(webhook.NamespaceSelector, map[string]string{"gardener.cloud/role": "shoot", "backup.gardener.cloud/provider": "local"})).To(BeTrue())
	g.Expect(selects(webhook.NamespaceSelector, map[string]string{"gardener.cloud/role": "shoot", "backup.gardener.cloud/provider": "gcp"})).To(BeFalse())
	g.Expect(selects(webhook.NamespaceSelector, map[string]string{"gardener.cloud/role": "garden", "backup.gardener.cloud/provider": "local"})).To(BeFalse())
	for _, name := range []string{"statefulset", "compaction-job", "copy-job"} {
		g.Expect(selects(webhook.ObjectSelector, rendered(t, name).GetLabels())).To(BeTrue(), name)
	}
	g.Expect(selects(webhook.ObjectSelector, nil)).To(BeFalse())
}

func TestNewNeedsTheFolderOfAllBuckets(t *testing.T) {
	for _, hostPath := range []string{"", "buckets"} {
		_, err := etcd.New(fakeManager{}, etcd.Options{HostPath: hostPath})
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("backup.hostPath")))
	}
}

func TestWhatEtcdDruidMountsItselfIsLeftAlone(t *testing.T) {
	for name, want := range map[string]types.GomegaMatcher{
		"statefulset":      ConsistOf("backup-restore /home/nonroot/local-bucket = " + hostPath + "/local-bucket DirectoryOrCreate"),
		"statefulset-root": ConsistOf("backup-restore /root/local-bucket = " + hostPath + "/local-bucket DirectoryOrCreate"),
		"compaction-job":   ConsistOf("compact-backup /home/nonroot/local-bucket = " + hostPath + "/local-bucket DirectoryOrCreate"),
		"copy-job": ConsistOf(
			"copy-backups /home/nonroot/local-bucket = "+hostPath+"/local-bucket DirectoryOrCreate",
			"copy-backups /home/nonroot/source-bucket = "+hostPath+"/source-bucket DirectoryOrCreate"),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
				patched, result := ask(t, rendered(t, name), operation)
				g.Expect(patched).To(BeFalse())
				g.Expect(result.mounted()).To(want)
			}

			patched, result := ask(t, rendered(t, name).withoutBackups(), admissionv1.Create)
			g.Expect(patched).To(BeTrue())
			g.Expect(result.mounted()).To(want, "the same as etcd-druid does")

			patched, _ = ask(t, result, admissionv1.Create)
			g.Expect(patched).To(BeFalse(), "once is enough")
		})
	}
}

func TestAMountThatIsMissingIsAddedWhereItCanBe(t *testing.T) {
	for name, test := range map[string]struct {
		rendered  string
		operation admissionv1.Operation
		change    func(workload)
		want      types.GomegaMatcher
	}{
		"to a StatefulSet that exists": {
			"statefulset", admissionv1.Update, func(w workload) { w.withoutBackups() }, HaveLen(1),
		},
		"by the volume that is there": {
			"statefulset", admissionv1.Create, func(w workload) { w.pod.Containers[1].VolumeMounts = nil },
			ConsistOf("backup-restore /home/nonroot/local-bucket = " + hostPath + "/local-bucket DirectoryOrCreate"),
		},
		"below the home of root if only the container runs as root": {
			"statefulset", admissionv1.Create, func(w workload) {
				w.withoutBackups().pod.Containers[1].SecurityContext.RunAsUser = new(int64(0))
			},
			ConsistOf("backup-restore /root/local-bucket = " + hostPath + "/local-bucket DirectoryOrCreate"),
		},
		"not to a Job that exists, whose template is immutable": {
			"compaction-job", admissionv1.Update, func(w workload) { w.withoutBackups() }, BeEmpty(),
		},
		"not to a StatefulSet that is being deleted": {
			"statefulset", admissionv1.Update, func(w workload) { w.withoutBackups().SetDeletionTimestamp(new(metav1.Now())) }, BeEmpty(),
		},
		"not to what etcd-druid has not made": {
			"statefulset", admissionv1.Create, func(w workload) { w.withoutBackups().SetLabels(map[string]string{"app": "other"}) }, BeEmpty(),
		},
		"not if backups go elsewhere": {
			"statefulset", admissionv1.Create, func(w workload) { w.withoutBackups().setArg("--storage-provider=", "S3") }, BeEmpty(),
		},
		"not if there are no backups": {
			"statefulset", admissionv1.Create, func(w workload) { w.withoutBackups().pod.Containers[1].Args = []string{"server"} }, BeEmpty(),
		},
		"not if the bucket has no name": {
			"statefulset", admissionv1.Create, func(w workload) { w.withoutBackups().pod.Containers[1].Env = nil }, BeEmpty(),
		},
		"not for a name that leads out of the folder of all buckets": {
			"compaction-job", admissionv1.Create, func(w workload) { w.withoutBackups().setArg("--store-container=", "../../kubernetes") }, BeEmpty(),
		},
		"not below a mount that is there": {
			"statefulset", admissionv1.Create, func(w workload) {
				w.withoutBackups().pod.Containers[1].VolumeMounts = []corev1.VolumeMount{{Name: "etcd-main", MountPath: "/home/nonroot/"}}
			}, BeEmpty(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := rendered(t, test.rendered)
			test.change(w)
			before := len(w.mounted())
			patched, result := ask(t, w, test.operation)
			g.Expect(result.mounted()).To(test.want)
			g.Expect(patched).To(Equal(len(result.mounted()) > before))
		})
	}
}

func (w workload) setArg(prefix, value string) {
	for _, container := range w.pod.Containers {
		for i, arg := range container.Args {
			if strings.HasPrefix(arg, prefix) {
				container.Args[i] = prefix + value
			}
		}
	}
}
