// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/bastion"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	corednsconstants "github.com/gardener/gardener/pkg/component/networking/coredns/constants"
	nodelocaldnsconstants "github.com/gardener/gardener/pkg/component/networking/nodelocaldns/constants"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// LabelBastion names the Bastion that a Pod, Service, Secret or NetworkPolicy belongs to.
	LabelBastion = "bastion"
	// AnnotationUserData is the hash of the user data with which a Pod was made.
	AnnotationUserData = "local.provider.extensions.gardener.cloud/user-data"
	// AnnotationImage is the image with which a Pod was made. A webhook may have put another in its place.
	AnnotationImage = "local.provider.extensions.gardener.cloud/image"

	gracePeriod = 5

	// retryWait is how long to wait for something that a watch reports as well.
	retryWait = 30 * time.Second
	// retryRemote is how long to wait for something in another cluster, where there are no watches.
	retryRemote = 5 * time.Second
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Clusters finds the cluster in which the machines of a shoot are.
	Clusters cluster.Clusters
	// NodePorts has the Services of bastions in the seed made with node ports, to which the ranges of a Service do not apply. It
	// is to be set where the load balancers of the seed are not those of our Service controller, which needs none.
	NodePorts bool
}

// AddToManager adds the controller for Bastions, unless no class is served for which there are any. The manager has to
// cache Pods as CacheOptions says, and Services of type LoadBalancer, of which it needs no more than coredns.CacheOptions
// leaves.
//
// Needed permissions: get, list, watch, patch on Bastions and patch on their status; get, list, watch on Clusters; create,
// patch, delete on NetworkPolicies and Secrets; the same and get, list, watch on Services; get, list, watch, create, delete on
// Pods. In another cluster than the seed it acts by the kubeconfig of the shoot's credentials, which needs create, patch and
// delete on these four, and get on Services and Pods.
func AddToManager(mgr manager.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetCache(), opts)
	return r.AddToManager(mgr, bastion.ControllerName, func(b *builder.Builder) {
		wake := handler.EnqueueRequestsFromMapFunc(bastionOf)
		b.Watches(&corev1.Pod{}, wake, builder.WithPredicates(changes())).Watches(&corev1.Service{}, wake, builder.WithPredicates(changes()))
	})
}

func newReconciler(c client.Client, reader, cache client.Reader, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.Bastion] {
	actuator := &actuator{Options: opts, client: c, reader: reader, cache: cache}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Bastion]{
		Shared:    opts.Shared,
		Client:    c,
		Finalizer: bastion.FinalizerName,
		Actuator:  actuator,
		Check:     actuator.check,
		IsAmiss:   actuator.isAmiss,
		AsksUsers: true,
	})
}

// CacheOptions returns how a manager has to cache Pods: those of bastions alone. The Services of bastions are among those that
// coredns.CacheOptions has the manager cache.
//
// The manager's cache has no other Pods then. So Pod belongs in the list CacheOptions.DisableFor of its client, which
// makes everybody else read them from the API server. The controller here only watches.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: labels.SelectorFromSet(labels.Set{machine.LabelApp: machine.AppBastion})}}
}

// changes lets pass what changes what is said of a Pod or Service, and that one is gone.
func changes() predicate.Predicate {
	changed := reconciler.Changed(said)
	// An instance that starts gets such an event for each object there is.
	changed.CreateFunc = func(e event.CreateEvent) bool { return problem(e.Object) == "" }
	return changed
}

// bastionOf returns which Bastion a Pod or Service in the seed belongs to. It compares names, as the cache keeps no labels of
// Services. A Bastion that does not exist, or needs nothing, costs nothing.
func bastionOf(_ context.Context, obj client.Object) []reconcile.Request {
	name, ok := strings.CutPrefix(obj.GetName(), namePrefix)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}}}
}

// said is what a Bastion is told about an object.
func said(obj client.Object) any {
	if service, ok := obj.(*corev1.Service); ok && problem(obj) == "" {
		address := addressOf(service)
		return address.IP + address.Hostname
	}
	return problem(obj)
}

// actuator implements reconciler.Actuator.
type actuator struct {
	Options
	// client is that of the manager.
	client client.Client
	// reader asks the API server.
	reader client.Reader
	// cache has Pods as CacheOptions says, and Services.
	cache client.Reader
}

type operation = reconciler.Operation[*extensionsv1alpha1.Bastion]

var _ reconciler.Actuator[*extensionsv1alpha1.Bastion] = (*actuator)(nil)

// location is where a Bastion's objects are: the namespace of the shoot in the seed, or one in the cluster of its credentials.
type location struct {
	reconciler.Target
	// key is that of all objects.
	key    client.ObjectKey
	remote bool
}

// locate returns where the objects of a Bastion are.
func (a *actuator) locate(ctx context.Context, b *extensionsv1alpha1.Bastion) (location, error) {
	ref := corev1.SecretReference{Namespace: b.Namespace, Name: v1beta1constants.SecretNameCloudProvider}
	found, err := a.Clusters.Get(ctx, ref, b.Namespace)
	if err != nil {
		return location{}, reconciler.RetrySlowly(err)
	}
	if !found.Remote {
		return a.inSeed(b), nil
	}
	return location{
		Target: reconciler.Target{Client: found.Client, Live: found.Client, ID: found.Config},
		key:    keyOf(found.Namespace, b.Name),
		remote: true,
	}, nil
}

func (a *actuator) inSeed(b *extensionsv1alpha1.Bastion) location {
	return location{Target: reconciler.Target{Client: a.client, Live: a.reader, Cache: a.cache}, key: keyOf(b.Namespace, b.Name)}
}

// objects returns the objects of a Bastion with nothing but their names.
func (l location) objects() (*corev1.Service, *corev1.Pod, *networkingv1.NetworkPolicy, *corev1.Secret) {
	meta := metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}
	return &corev1.Service{ObjectMeta: meta}, &corev1.Pod{ObjectMeta: meta}, &networkingv1.NetworkPolicy{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}
}

// check refuses a Bastion with a mistake, or whose machines are in a cluster that is not known, before it gets a finalizer:
// there is nothing to delete then.
func (a *actuator) check(ctx context.Context, op *operation) error {
	if _, err := newHost(op.Object, op.Cluster); err != nil {
		return err
	}
	if controllerutil.ContainsFinalizer(op.Object, bastion.FinalizerName) {
		return nil
	}
	_, err := a.locate(ctx, op.Object)
	return err
}

// Reconcile implements reconciler.Actuator.
func (a *actuator) Reconcile(ctx context.Context, op *operation) error {
	b := op.Object
	host, err := newHost(b, op.Cluster)
	if err != nil {
		return err
	}
	at, err := a.locate(ctx, b)
	if err != nil {
		return err
	}
	service := host.service(at.key, a.NodePorts || at.remote)
	err = at.explain(a.apply(ctx, op, at, host, service))
	if b.Status.LastOperation == nil && a.isGone(ctx, b) {
		return a.clean(ctx, op, at)
	}

	address := addressOf(service)
	switch isKnown := service.ResourceVersion != ""; {
	case err == nil:
		b.Status.Ingress = address
	case isKnown && !apiequality.Semantic.DeepEqual(b.Status.Ingress, address):
		// The address is not the Service's any more, and may be somebody else's.
		b.Status.Ingress = nil
	}
	return err
}

// isGone reports whether there is no such Bastion any more. A deletion that the API server began before the finalizer was
// there does not wait for it.
func (a *actuator) isGone(ctx context.Context, b *extensionsv1alpha1.Bastion) bool {
	return apierrors.IsNotFound(a.reader.Get(ctx, client.ObjectKeyFromObject(b), &extensionsv1alpha1.Bastion{}))
}

// isAmiss reports whether the Pod or the Service of a Bastion that was ready are not as they were then. gardenlet asks for
// a reconcile once in a Bastion's life, so nobody else would bring back a Pod that was drained from its node, or follow the
// Service to another address. A Bastion without objects in the seed may have them in another cluster.
func (a *actuator) isAmiss(ctx context.Context, b *extensionsv1alpha1.Bastion) bool {
	pod, service := &corev1.Pod{}, &corev1.Service{}
	for _, object := range []client.Object{pod, service} {
		if err := a.cache.Get(ctx, keyOf(b.Namespace, b.Name), object); err != nil {
			return apierrors.IsNotFound(err)
		}
		if problem(object) != "" {
			return true
		}
	}
	return !apiequality.Semantic.DeepEqual(b.Status.Ingress, addressOf(service))
}

// apply writes the objects, and returns an error until the Service has an address and the Pod is ready. The NetworkPolicy is
// the first, so that there is never a Pod without it.
func (a *actuator) apply(ctx context.Context, op *operation, at location, host *host, service *corev1.Service) error {
	for _, object := range []client.Object{host.networkPolicy(at.key), host.secret(at.key)} {
		if err := op.Apply(ctx, at.WithoutState(), object); err != nil {
			return err
		}
	}
	if err := op.Apply(ctx, at.Target, service); err != nil {
		return err
	}
	pod := host.pod(at.key)
	if err := a.applyPod(ctx, op, at, pod); err != nil {
		return err
	}

	var problems []string
	for _, object := range []client.Object{pod, service} {
		if problem := problem(object); problem != "" {
			problems = append(problems, reconciler.NameOf(object)+": "+problem)
		}
	}
	if len(problems) > 0 {
		return at.waitFor(fmt.Errorf("waiting for %s", strings.Join(problems, "; ")))
	}
	return nil
}

// applyPod creates the Pod, or replaces one that is outdated, and puts what there is into pod.
func (a *actuator) applyPod(ctx context.Context, op *operation, at location, pod *corev1.Pod) error {
	wanted := pod.DeepCopy()
	if err := op.Create(ctx, at.Target, pod); err != nil {
		return err
	}
	if pod.DeletionTimestamp != nil || !isOutdated(pod, wanted) {
		return nil
	}
	left, err := op.Delete(ctx, at.Target, []client.Object{pod}, client.Preconditions{UID: &pod.UID})
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return at.waitFor(fmt.Errorf("waiting until %s is gone, another one takes its place", reconciler.NameOf(pod)))
	}
	wanted.DeepCopyInto(pod)
	return op.Create(ctx, at.Target, pod)
}

// isOutdated reports whether a Pod must be replaced. One to which people may have connected is not replaced just because
// the CloudProfile has another image by now.
func isOutdated(pod, wanted *corev1.Pod) bool {
	if machine.HasEnded(pod) || pod.Annotations[AnnotationUserData] != wanted.Annotations[AnnotationUserData] {
		return true
	}
	return podProblem(pod) != "" && pod.Annotations[AnnotationImage] != wanted.Annotations[AnnotationImage]
}

// Migrate implements reconciler.Actuator. Gardener does not ask for it, as a bastion is for a few hours: nothing is kept.
func (a *actuator) Migrate(ctx context.Context, op *operation) error {
	if op.Force {
		return a.ForceDelete(ctx, op)
	}
	return a.Delete(ctx, op)
}

// Delete implements reconciler.Actuator. There is never a Pod without its NetworkPolicy.
func (a *actuator) Delete(ctx context.Context, op *operation) error {
	at, err := a.locate(ctx, op.Object)
	if err != nil {
		return err
	}
	if at.remote && a.isInSeed(ctx, op.Object) {
		if err := a.remove(ctx, op, a.inSeed(op.Object)); err != nil {
			return err
		}
	}
	return a.remove(ctx, op, at)
}

// isInSeed reports whether the seed has a Bastion's Service or Pod, which may be from before the credentials had a kubeconfig.
func (a *actuator) isInSeed(ctx context.Context, b *extensionsv1alpha1.Bastion) bool {
	key := keyOf(b.Namespace, b.Name)
	return a.cache.Get(ctx, key, &corev1.Service{}) == nil || a.cache.Get(ctx, key, &corev1.Pod{}) == nil
}

// remove deletes the objects of a Bastion where they are.
func (a *actuator) remove(ctx context.Context, op *operation, at location) error {
	service, pod, policy, secret := at.objects()
	left, err := op.Delete(ctx, at.Target, []client.Object{service, pod})
	if err == nil && len(left) == 0 {
		_, err = op.Delete(ctx, at.WithoutState(), []client.Object{policy, secret})
	}
	if err != nil || len(left) == 0 {
		return at.explain(err)
	}
	var names []string
	for _, object := range left {
		names = append(names, reconciler.NameOf(object))
	}
	return at.waitFor(fmt.Errorf("waiting until these are gone: %s", strings.Join(names, ", ")))
}

// ForceDelete implements reconciler.Actuator. It waits for nothing, and leaves behind what is in another cluster that does
// not answer.
func (a *actuator) ForceDelete(ctx context.Context, op *operation) error {
	at, err := a.locate(ctx, op.Object)
	if err != nil && len(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))) == 0 {
		return err
	}
	if err != nil {
		op.Log.Info("Deleting by force what is in the seed, as the cluster of the machines is not known", "reason", err.Error())
		at = a.inSeed(op.Object)
	}
	if at.remote && a.isInSeed(ctx, op.Object) {
		if err := a.clean(ctx, op, a.inSeed(op.Object)); err != nil {
			return err
		}
	}
	err = a.clean(ctx, op, at)
	if err != nil && at.remote {
		op.Log.Info("Leaving behind what can't be deleted in the cluster of the machines", "reason", err.Error())
		return nil
	}
	return err
}

// clean deletes all objects of a Bastion and waits for none.
func (a *actuator) clean(ctx context.Context, op *operation, at location) error {
	service, pod, policy, secret := at.objects()
	_, err := op.Delete(ctx, at.WithoutState(), []client.Object{service, pod, policy, secret}, client.GracePeriodSeconds(0))
	return at.explain(err)
}

// explain says of an error in a cluster other than the seed that it is from there. A namespace that is missing there is
// waited for.
func (l location) explain(err error) error {
	if err == nil || !l.remote || reconciler.IsWaiting(err) {
		return err
	}
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return l.waitFor(fmt.Errorf("%w (in the cluster of the shoot's credentials): %w", err, errNoNamespace))
	}
	return reconciler.ExplainRemote(fmt.Errorf("%w (in the cluster of the shoot's credentials)", err))
}

func (l location) waitFor(cause error) error {
	if l.remote {
		return reconciler.Waiting(cause, retryRemote)
	}
	return reconciler.Waiting(cause, retryWait)
}

var errNoNamespace = errors.New("the namespace does not exist or is being deleted: the shoot's Infrastructure has to be reconciled first")

// problem says what keeps a Pod or Service of a bastion from being of use; empty if nothing does.
func problem(obj client.Object) string {
	if obj.GetDeletionTimestamp() != nil {
		return "it is still being deleted"
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		return podProblem(pod)
	}
	service, ok := obj.(*corev1.Service)
	if !ok || addressOf(service) != nil {
		return ""
	}
	for _, condition := range service.Status.Conditions {
		if condition.Status == metav1.ConditionFalse && condition.Message != "" {
			return "it has no address, " + condition.Reason + ": " + condition.Message
		}
	}
	return "it has no address yet, which the cluster's controller for load balancers gives it"
}

func podProblem(pod *corev1.Pod) string {
	if machine.HasEnded(pod) {
		return "it has ended"
	}
	for _, condition := range pod.Status.Conditions {
		switch {
		case condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue:
			return ""
		case condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse:
			return "no node takes it: " + condition.Message
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		switch waiting := container.State.Waiting; {
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "ContainerCreating":
			return fmt.Sprintf("its container does not start, %s: %s", waiting.Reason, waiting.Message)
		case container.State.Running != nil:
			return "it runs, but nothing answers on port 22 yet; if it stays so, look at its log and at the user data"
		}
	}
	return "it does not run yet"
}

// addressOf returns the first address of a Service, or nil.
func addressOf(service *corev1.Service) *corev1.LoadBalancerIngress {
	if ingress := loadbalancer.IngressOf(service); len(ingress) > 0 {
		return &ingress[0]
	}
	return nil
}

func (h *host) labels() map[string]string {
	return map[string]string{machine.LabelApp: machine.AppBastion, LabelBastion: h.bastion}
}

func (h *host) meta(key client.ObjectKey) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: h.labels()}
}

func (h *host) secret(key client.ObjectKey) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: h.meta(key), Data: map[string][]byte{machine.UserDataFile: h.userData}}
}

// service gives the pod an address of the cluster's load balancers. Traffic stays on the node that receives it, so that the
// pod sees the address of the client, which the NetworkPolicy checks.
func (h *host) service(key client.ObjectKey, nodePorts bool) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: h.meta(key),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeLoadBalancer,
			Selector: h.labels(),
			Ports: []corev1.ServicePort{{
				Name: "ssh", Protocol: corev1.ProtocolTCP, Port: machine.SSHPort, TargetPort: intstr.FromInt32(machine.SSHPort),
			}},
			ExternalTrafficPolicy:         corev1.ServiceExternalTrafficPolicyLocal,
			IPFamilyPolicy:                new(corev1.IPFamilyPolicyPreferDualStack),
			LoadBalancerSourceRanges:      sourceRanges(h.ingress),
			AllocateLoadBalancerNodePorts: new(nodePorts),
		},
	}
}

// networkPolicy lets people in from the ranges only, and out to machines and the cluster's DNS only. A rule without peers
// would let in everybody, so there is none where there are no ranges.
func (h *host) networkPolicy(key client.ObjectKey) *networkingv1.NetworkPolicy {
	ssh := []networkingv1.NetworkPolicyPort{machine.PolicyPort(corev1.ProtocolTCP, machine.SSHPort)}
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: h.meta(key),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: h.labels()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{
				{Ports: ssh, To: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: machine.Selector()}}}},
				toDNS(),
			},
		},
	}
	if len(h.ingress) == 0 {
		return policy
	}
	rule := networkingv1.NetworkPolicyIngressRule{Ports: ssh}
	for _, block := range h.ingress {
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: block.DeepCopy()})
	}
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{rule}
	return policy
}

// toDNS are the cluster's DNS servers: their pods, which listen on port 8053 in clusters that are shoots, and the cache on
// the node.
func toDNS() networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{
		Ports: []networkingv1.NetworkPolicyPort{
			machine.PolicyPort(corev1.ProtocolUDP, 53), machine.PolicyPort(corev1.ProtocolTCP, 53), machine.PolicyPort(corev1.ProtocolUDP, 8053), machine.PolicyPort(corev1.ProtocolTCP, 8053),
		},
		To: []networkingv1.NetworkPolicyPeer{
			{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}},
				PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: corednsconstants.LabelKey, Operator: metav1.LabelSelectorOpIn,
					Values: []string{corednsconstants.LabelValue, nodelocaldnsconstants.LabelValue},
				}}},
			},
			{IPBlock: &networkingv1.IPBlock{CIDR: nodelocaldnsconstants.IPVSAddress + "/32"}},
			{IPBlock: &networkingv1.IPBlock{CIDR: nodelocaldnsconstants.IPVSIPv6Address + "/128"}},
		},
	}
}

// pod asks the cluster's DNS server, which knows the names of the machines. Its resources are enough for systemd and some sessions,
// whatever the machine type.
func (h *host) pod(key client.ObjectKey) *corev1.Pod {
	meta := h.meta(key)
	meta.Annotations = map[string]string{AnnotationUserData: utils.ComputeSHA256Hex(h.userData)[:16], AnnotationImage: h.image.reference}
	pod := machine.NewPod(meta, h.image.reference, h.image.version, key.Name)
	pod.Spec.TerminationGracePeriodSeconds, pod.Spec.DNSPolicy = new(int64(gracePeriod)), corev1.DNSClusterFirst
	container := &pod.Spec.Containers[0]
	container.Ports = []corev1.ContainerPort{{Name: "ssh", ContainerPort: machine.SSHPort, Protocol: corev1.ProtocolTCP}}
	container.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(machine.SSHPort)}},
		PeriodSeconds: 2,
	}
	container.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("64Mi"),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("512Mi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("1Gi"),
		},
	}
	for _, folder := range []string{"containerd", "kubelet"} {
		onDisk := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: folder, VolumeSource: onDisk})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: folder, MountPath: "/var/lib/" + folder})
	}
	return pod
}
