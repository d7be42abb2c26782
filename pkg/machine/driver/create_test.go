// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

var update = flag.Bool("update", false, "write the golden files")

func TestCreateMachineMakesAMachine(t *testing.T) {
	g := NewWithT(t)
	c := newClient(run)
	response, err := newDriver(c).CreateMachine(t.Context(), createRequest(newClass(func(spec *localv1alpha1.MachineProviderSpec) {
		spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		spec.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("2Gi")}
		spec.IPPoolNameV4, spec.IPPoolNameV6 = "pool-v4", "pool-v6"
	})))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response).To(Equal(&mcmdriver.CreateMachineResponse{
		ProviderID: "machine-" + name, NodeName: "machine-" + name,
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}, {Type: corev1.NodeInternalIP, Address: "fd00::7"}},
	}))

	pod := getPod(t, c)
	service := get(t, c, &corev1.Service{}, machine.PodName(name))
	secret := get(t, c, &corev1.Secret{}, userDataName(name))
	g.Expect(service.OwnerReferences).To(ConsistOf(HaveField("UID", pod.UID)))
	g.Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", pod.UID)))
	var golden []string
	for _, obj := range []client.Object{secret, pod, service} {
		obj.SetUID("")
		obj.SetResourceVersion("")
		obj.SetOwnerReferences(nil)
		obj.SetManagedFields(nil)
		pod.Status = corev1.PodStatus{}
		raw, err := yaml.Marshal(obj)
		g.Expect(err).NotTo(HaveOccurred())
		golden = append(golden, string(raw))
	}
	path := filepath.Join("testdata", "machine.yaml")
	if *update {
		g.Expect(os.WriteFile(path, []byte(strings.Join(golden, "---\n")), 0o600)).To(Succeed())
	}
	expected, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Join(golden, "---\n")).To(Equal(string(expected)))
}

func TestVolumesTakeNoMoreThanTheMachineHas(t *testing.T) {
	sizes := func(limits corev1.ResourceList) map[string]string {
		out := map[string]string{}
		pod := newPod(namespace, "a", &localv1alpha1.MachineProviderSpec{Resources: corev1.ResourceRequirements{Limits: limits}})
		for _, volume := range pod.Spec.Volumes {
			if volume.EmptyDir != nil {
				out[volume.Name] = "any"
				if volume.EmptyDir.SizeLimit != nil {
					out[volume.Name] = volume.EmptyDir.SizeLimit.String()
				}
			}
		}
		return out
	}
	g := NewWithT(t)
	g.Expect(sizes(corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("20Gi")})).To(Equal(map[string]string{
		"disk": "20Gi", "run": "1Gi", "tmp": "1Gi",
	}))
	g.Expect(sizes(nil)).To(Equal(map[string]string{"disk": "any", "run": "1Gi", "tmp": "1Gi"}))
}

func TestAMachineThatMayBecomeASeedHasTheBackupBuckets(t *testing.T) {
	const path = "/etc/gardener/local-backupbuckets"
	g := NewWithT(t)
	plain := newPod("here", name, &localv1alpha1.MachineProviderSpec{})
	pod := newPod("here", name, &localv1alpha1.MachineProviderSpec{BackupHostPath: path})
	added := func(volume corev1.Volume) bool { return volume.HostPath != nil && volume.HostPath.Path == path }
	g.Expect(slices.ContainsFunc(plain.Spec.Volumes, added)).To(BeFalse())
	at := slices.IndexFunc(pod.Spec.Volumes, added)
	g.Expect(at).NotTo(Equal(-1))
	g.Expect(pod.Spec.Volumes[at].HostPath.Type).To(HaveValue(Equal(corev1.HostPathDirectory)), "it is the seed's matter to make it")
	g.Expect(pod.Spec.Containers[0].VolumeMounts).To(ContainElement(corev1.VolumeMount{Name: pod.Spec.Volumes[at].Name, MountPath: path}))
}

func TestCreateMachineRefuses(t *testing.T) {
	for _, test := range []struct {
		name     string
		change   func(*mcmdriver.CreateMachineRequest)
		code     codes.Code
		expected string
	}{
		{"a class of another provider", func(r *mcmdriver.CreateMachineRequest) { r.MachineClass.Provider = "aws" }, codes.InvalidArgument, `provider "aws"`},
		{"a providerSpec with a field that is not known", func(r *mcmdriver.CreateMachineRequest) {
			r.MachineClass.ProviderSpec.Raw = []byte(strings.Replace(string(r.MachineClass.ProviderSpec.Raw), "imageVersion", "imageversoin", 1))
		}, codes.InvalidArgument, "imageversoin"},
		{"a providerSpec without image", func(r *mcmdriver.CreateMachineRequest) {
			r.MachineClass = newClass(func(s *localv1alpha1.MachineProviderSpec) { s.Image = "" })
		}, codes.InvalidArgument, "providerSpec.image"},
		{"no providerSpec", func(r *mcmdriver.CreateMachineRequest) { r.MachineClass.ProviderSpec.Raw = nil }, codes.InvalidArgument, "providerSpec.image"},
		{"no user data", func(r *mcmdriver.CreateMachineRequest) { r.Secret.Data = nil }, codes.InvalidArgument, "has no userData"},
		{"no Secret", func(r *mcmdriver.CreateMachineRequest) { r.Secret = nil }, codes.InvalidArgument, "has no userData"},
		{"a name that no Node can have", func(r *mcmdriver.CreateMachineRequest) { r.Machine.Name = "a.b" }, codes.InvalidArgument, "machine-a.b cannot be the name of a Node"},
		{"credentials that lead elsewhere", func(r *mcmdriver.CreateMachineRequest) {
			r.MachineClass = newClass(func(s *localv1alpha1.MachineProviderSpec) { s.Namespace = "infra-" + namespace })
		}, codes.InvalidArgument, "namespace infra-shoot--local--local, but the credentials in Secret shoot--local--local/cloudprovider lead to namespace shoot--local--local"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(run)
			request := createRequest(newClass())
			test.change(request)
			_, err := newDriver(c).CreateMachine(t.Context(), request)
			g.Expect(err).To(And(haveCode(test.code), MatchError(ContainSubstring(test.expected))))
			g.Expect(left(t, c)).To(BeEmpty())
		})
	}
}

func TestCreateMachineInAnotherCluster(t *testing.T) {
	g := NewWithT(t)
	c := newClient(run)
	class := newClass(func(s *localv1alpha1.MachineProviderSpec) { s.Namespace = "infra-" + namespace })
	class.CredentialsSecretRef.Name = "remote"
	_, err := newDriver(c).CreateMachine(t.Context(), createRequest(class))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "infra-" + namespace, Name: machine.PodName(name)}, &corev1.Pod{})).To(Succeed())

	// The class says that its machines are in the seed, so they are, although there is a kubeconfig by now.
	class = newClass()
	class.CredentialsSecretRef.Name = "remote"
	_, err = newDriver(c).GetMachineStatus(t.Context(), &mcmdriver.GetMachineStatusRequest{Machine: newMachine(), MachineClass: class})
	g.Expect(err).To(And(haveCode(codes.NotFound), MatchError(ContainSubstring("no pod shoot--local--local/"))))
}

func TestCreateMachineReportsWhatThePodSays(t *testing.T) {
	ended := func(reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, reason, "Pod was rejected"
		}
	}
	for _, test := range []struct {
		name     string
		boot     func(*corev1.Pod)
		code     codes.Code
		expected string
	}{
		{"image that is not there", waitsFor("ImagePullBackOff", `Back-off pulling image: [not found]`), codes.FailedPrecondition, "image " + testImage + " of pod shoot--local--local/machine-" + name + " cannot be pulled: ImagePullBackOff: Back-off pulling image: (not found)"},
		{"image that must be there but is not", waitsFor("ErrImageNeverPull", ""), codes.FailedPrecondition, "cannot be pulled: ErrImageNeverPull"},
		{"image with a malformed name", waitsFor("InvalidImageName", "uppercase"), codes.InvalidArgument, "InvalidImageName: uppercase"},
		{"container that can't be made", waitsFor("CreateContainerConfigError", `secret "x" not found`), codes.FailedPrecondition, "cannot be started: CreateContainerConfigError"},
		{"machine that does not stay up", waitsFor("CrashLoopBackOff", "back-off 10s"), codes.Internal, "does not stay up: CrashLoopBackOff"},
		{"no room", notScheduled("0/3 nodes are available: 1 node(s) had untolerated taint, 2 Insufficient memory."), codes.ResourceExhausted, "no node has room for pod"},
		{"no room for another pod", notScheduled("0/1 nodes are available: 1 Too many pods."), codes.ResourceExhausted, "Too many pods"},
		{"kubelet that finds no room", ended("OutOfcpu"), codes.ResourceExhausted, "OutOfcpu"},
		{"eviction", ended("Evicted"), codes.ResourceExhausted, "Evicted"},
		{"another end", ended("NodeShutdown"), codes.Aborted, "NodeShutdown"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(test.boot)
			_, err := newDriver(c).CreateMachine(t.Context(), createRequest(newClass()))
			g.Expect(err).To(And(haveCode(test.code), MatchError(ContainSubstring(test.expected))))
			g.Expect(left(t, c)).To(HaveLen(3), "it may still come up, and is found again")
		})
	}
}

// whilePodIs runs create while a pod of the machine is, again and again, made to be something.
func whilePodIs(t *testing.T, c client.Client, be func(*corev1.Pod), create func() (*mcmdriver.CreateMachineResponse, error)) (*mcmdriver.CreateMachineResponse, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The fake API server forgets what happens between a list and a watch, so it is done more than once.
		for i := 0; ctx.Err() == nil; i++ {
			pod := &corev1.Pod{}
			if c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machine.PodName(name)}, pod) == nil {
				be(pod)
				pod.Status.Message = strconv.Itoa(i)
				_ = c.Status().Update(ctx, pod)
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	response, err := create()
	cancel()
	<-done
	return response, err
}

func TestCreateMachineWaitsWhilePodMayStillRun(t *testing.T) {
	for name, boot := range map[string]func(*corev1.Pod){
		"a first failure to pull":         waitsFor("ErrImagePull", "hiccup"),
		"a container that is being made":  waitsFor("ContainerCreating", ""),
		"nodes with a taint":              notScheduled("0/1 nodes are available: 1 node(s) had untolerated taint(s)."),
		"no room until others have gone":  func(pod *corev1.Pod) { notScheduled("1 Insufficient cpu")(pod); pod.Status.NominatedNodeName = "node" },
		"a pod that runs without address": func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(boot)
			response, err := whilePodIs(t, c, run, func() (*mcmdriver.CreateMachineResponse, error) {
				return newDriver(c).CreateMachine(t.Context(), createRequest(newClass()))
			})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Addresses).To(HaveLen(2))
		})
		t.Run(name+" for too long", func(t *testing.T) {
			_, err := newDriver(newClient(boot), func(d *driver) { d.createTimeout = 100 * time.Millisecond }).CreateMachine(t.Context(), createRequest(newClass()))
			NewWithT(t).Expect(err).To(And(haveCode(codes.DeadlineExceeded), MatchError(ContainSubstring("does not run after 100ms: "))))
		})
	}

	t.Run("nodes that get room before long", func(t *testing.T) {
		c := newClient(notScheduled("1 Insufficient cpu"))
		_, err := whilePodIs(t, c, run, func() (*mcmdriver.CreateMachineResponse, error) {
			return newDriver(c, func(d *driver) { d.unschedulableGrace = time.Minute }).CreateMachine(t.Context(), createRequest(newClass()))
		})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	})
}

func TestCreateMachineGoesOn(t *testing.T) {
	running := func(pod *corev1.Pod) { run(pod) }
	otherData := newUserData(namespace, name, []byte("old"))
	for _, test := range []struct {
		name    string
		objects []client.Object
		pod     string
	}{
		{"after the Secret", []client.Object{newUserData(namespace, name, []byte("#!/bin/sh\n"))}, ""},
		{"with the user data of today", []client.Object{otherData}, ""},
		{"after the pod", []client.Object{newUserData(namespace, name, []byte("#!/bin/sh\n")), podOf("a", running)}, "a"},
		{"after the Service", []client.Object{ownedByPod(newUserData(namespace, name, []byte("#!/bin/sh\n")), "a"), ownedByPod(newService(namespace, name), "a"), podOf("a", running)}, "a"},
		{"after the pod was deleted by hand", []client.Object{ownedByPod(newUserData(namespace, name, []byte("#!/bin/sh\n")), "a"), ownedByPod(newService(namespace, name), "a")}, ""},
		{"after the pod has failed", []client.Object{podOf("a", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })}, ""},
		{"with a pod whose image could not be pulled and is another now", []client.Object{podOf("a", waitsFor("ImagePullBackOff", ""), func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "old" })}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(run, test.objects...)
			_, err := newDriver(c).CreateMachine(t.Context(), createRequest(newClass()))
			g.Expect(err).NotTo(HaveOccurred())

			pod := getPod(t, c)
			if test.pod != "" {
				g.Expect(pod.UID).To(BeEquivalentTo(test.pod))
			}
			g.Expect(pod.UID).NotTo(BeEmpty())
			g.Expect(pod.Spec.Containers[0].Image).To(Equal(testImage))
			secret := get(t, c, &corev1.Secret{}, userDataName(name))
			g.Expect(secret.Data).To(Equal(map[string][]byte{"userdata": []byte("#!/bin/sh\n")}))
			g.Expect(secret.OwnerReferences).To(HaveExactElements(HaveField("UID", pod.UID)))
			g.Expect(get(t, c, &corev1.Service{}, machine.PodName(name)).OwnerReferences).To(HaveExactElements(HaveField("UID", pod.UID)))
		})
	}
}

func TestCreateMachineLeavesOthersAlone(t *testing.T) {
	strip := func(obj client.Object) client.Object {
		obj.SetLabels(map[string]string{"app": "other"})
		return obj
	}
	for what, obj := range map[string]client.Object{
		"pod": strip(podOf("a")), "Service": strip(newService(namespace, name)), "Secret": strip(newUserData(namespace, name, []byte("theirs"))),
	} {
		t.Run(what, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(run, obj)
			_, err := newDriver(c).CreateMachine(t.Context(), createRequest(newClass()))
			g.Expect(err).To(And(haveCode(codes.AlreadyExists), MatchError(ContainSubstring("not part of machine "+name))))

			_, err = newDriver(c).DeleteMachine(t.Context(), deleteRequest())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(left(t, c)).To(ConsistOf(strings.ToLower(what) + " " + obj.GetName()))
		})
	}
}

func TestCreateMachineEndsWithItsMachine(t *testing.T) {
	for name, change := range map[string]func(context.Context, client.Client) error{
		"deleted": func(ctx context.Context, c client.Client) error { return c.Delete(ctx, newMachine()) },
		"being deleted": func(ctx context.Context, c client.Client) error {
			m := newMachine()
			if err := c.Patch(ctx, m, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["machine.sapcloud.io/machine-controller"]}}`))); err != nil {
				return err
			}
			return c.Delete(ctx, m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(waitsFor("ContainerCreating", ""), newMachine())
			g.Expect(change(t.Context(), c)).To(Succeed())
			_, err := newDriver(c, func(d *driver) { d.machines = c }).CreateMachine(t.Context(), createRequest(newClass()))
			g.Expect(err).To(And(haveCode(codes.Aborted), MatchError(ContainSubstring("is to be deleted before its pod runs"))))
		})
	}

	t.Run("but not before", func(t *testing.T) {
		c := newClient(run, newMachine())
		_, err := newDriver(c, func(d *driver) { d.machines = c }).CreateMachine(t.Context(), createRequest(newClass()))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	})

	t.Run("unless it may not watch Machines", func(t *testing.T) {
		forbidden := interceptor.NewClient(newClient(nil), interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(machinev1alpha1.Resource("machines"), "", nil)
		}})
		_, err := newDriver(newClient(run), func(d *driver) { d.machines = forbidden }).CreateMachine(t.Context(), createRequest(newClass()))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	})
}

func TestCreateMachineEndsWhenItsPodVanishes(t *testing.T) {
	g := NewWithT(t)
	c := interceptor.NewClient(newClient(nil), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if err := c.Create(ctx, obj, opts...); err != nil {
			return err
		}
		if _, isLast := obj.(*corev1.Service); !isLast {
			return nil
		}
		return c.Delete(ctx, podOf(""))
	}})
	_, err := newDriver(c).CreateMachine(t.Context(), createRequest(newClass()))
	g.Expect(err).To(And(haveCode(codes.Aborted), MatchError(ContainSubstring("was deleted before it ran"))))
}

func TestCreateMachineLeavesAMachineThatMayHaveJoinedToGetMachineStatus(t *testing.T) {
	g := NewWithT(t)
	boot := func(pod *corev1.Pod) {
		run(pod)
		pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(time.Now().Add(-time.Hour))
	}
	c := newClient(boot)
	d := newDriver(c)
	_, err := d.CreateMachine(t.Context(), createRequest(newClass()))
	g.Expect(err).To(And(haveCode(codes.Aborted), MatchError(ContainSubstring("has been running for 1h0m"))))
	g.Expect(d.GetMachineStatus(t.Context(), &mcmdriver.GetMachineStatusRequest{Machine: newMachine(), MachineClass: newClass()})).NotTo(BeNil())
}

func TestCreateMachineNeedsToWatch(t *testing.T) {
	g := NewWithT(t)
	c := interceptor.NewClient(newClient(run), interceptor.Funcs{Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
		return nil, apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
	}, List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
	}})
	_, err := newDriver(c).CreateMachine(t.Context(), createRequest(newClass()))
	g.Expect(err).To(haveCode(codes.PermissionDenied))
}
