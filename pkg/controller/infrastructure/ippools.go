// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const (
	// LabelShoot on an IPPool is the technical ID of the shoot for whose machines it is.
	LabelShoot = "local.provider.extensions.gardener.cloud/shoot"

	noNodes = "!all()"
	never   = "Never"
)

// applyPools ensures that there is an IPPool for each range of nodes. What can't be had is told in the message, and
// machines go without it: where there are no IPPools at all, where a range is missing, where Calico would not take it, and
// where refusal has a reason against it.
//
// No node takes addresses of these pools for other pods, only pods that name them do. Pools of shoots may have the very
// same range, as Gardener's local shoots all do: Calico gives out addresses by blocks that belong to a range, not to a
// pool, so no address is given out twice. Other pools must not overlap.
func (p place) applyPools(ctx context.Context, op *attempt, namespace *corev1.Namespace, networks networks, refusal func(netip.Prefix) string) ([]localv1alpha1.MachineIPPool, string, error) {
	all, err := p.listPools(ctx)
	if isNoAPI(err) {
		return nil, fmt.Sprintf("The cluster of the machines has no IPPools of Calico (%s): machines get their addresses of the pod network, "+
			"not of the node range, and the control plane may reach them past the VPN.", machine.IPPoolKind.GroupVersion()), nil
	}
	if err != nil {
		return nil, "", err
	}

	var (
		out      []localv1alpha1.MachineIPPool
		messages []string
	)
	for _, family := range networks.families {
		pool, reason, err := p.applyPool(ctx, op, namespace, networks, family, all, refusal)
		if err != nil {
			return nil, "", err
		}
		if reason != "" {
			messages = append(messages, fmt.Sprintf("%s. Machines get their %s addresses of the pod network.", reason, family))
			continue
		}
		out = append(out, pool)
	}
	return out, strings.Join(messages, " "), nil
}

// applyPool returns the pool for a family, or why there can be none.
func (p place) applyPool(ctx context.Context, op *attempt, namespace *corev1.Namespace, networks networks, family gardencorev1beta1.IPFamily, all []unstructured.Unstructured, refusal func(netip.Prefix) string) (out localv1alpha1.MachineIPPool, reason string, err error) {
	i := slices.IndexFunc(networks.nodes, func(prefix netip.Prefix) bool { return familyOf(prefix) == family })
	if i < 0 {
		return out, fmt.Sprintf("There is no range of family %s for nodes: spec.networking.nodes of the shoot has none", family), nil
	}
	nodes, name := networks.nodes[i], machine.IPPoolName(op.Object.Namespace, family)
	if reason := cmp.Or(refusal(nodes), overlap(all, name, nodes)); reason != "" {
		return out, fmt.Sprintf("IPPool %s was not made: the range %s of the shoot's nodes %s", name, nodes, reason), nil
	}

	out = localv1alpha1.MachineIPPool{IPFamily: family, Name: name, CIDR: nodes.String()}
	pool, spec := newPool(name), poolSpec(nodes, all)
	pool.SetLabels(poolLabels(op.Object.Namespace))
	pool.Object["spec"] = spec
	if i := slices.IndexFunc(all, func(pool unstructured.Unstructured) bool { return pool.GetName() == name }); i >= 0 {
		if current, ok := prefixOf(all[i]); ok && current.Overlaps(nodes) {
			if !covers(nodes, current) {
				// To make a pool smaller would take the machines' addresses out of it.
				out.CIDR, spec["cidr"] = current.String(), current.String()
			}
			// Its addresses are given out by blocks: of another size, these would overlap.
			delete(spec, "blockSize")
			if size, ok, _ := unstructured.NestedFieldNoCopy(all[i].Object, "spec", "blockSize"); ok {
				spec["blockSize"] = size
			}
		}
		// Calico has more fields.
		if apiequality.Semantic.DeepDerivative(pool.Object, all[i].Object) {
			return out, "", nil
		}
		pool.SetOwnerReferences(all[i].GetOwnerReferences())
	} else if err := p.own(ctx, namespace, pool); err != nil {
		return out, "", err
	}
	if err = op.Apply(ctx, p.WithoutState(), pool); apierrors.IsInvalid(err) {
		return out, fmt.Sprintf("IPPool %s with the range %s of the shoot's nodes was refused: %v", name, nodes, err), nil
	}
	return out, "", err
}

// own has an IPPool go with the namespace of the machines, should nobody delete it. That of a shoot has not been read yet.
func (p place) own(ctx context.Context, namespace *corev1.Namespace, pool *unstructured.Unstructured) error {
	if namespace.UID == "" {
		if err := p.Live.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil {
			return fmt.Errorf("reading namespace %s, which is to own an IPPool: %w", namespace.Name, err)
		}
	}
	pool.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID}})
	return nil
}

// deletePools deletes the IPPools for the machines of a shoot, of each family that it has.
func (p place) deletePools(ctx context.Context, op *attempt) error {
	families := []gardencorev1beta1.IPFamily{gardencorev1beta1.IPFamilyIPv4, gardencorev1beta1.IPFamilyIPv6}
	if shoot := op.Cluster.Shoot(); shoot != nil && shoot.Spec.Networking != nil && len(shoot.Spec.Networking.IPFamilies) > 0 {
		families = shoot.Spec.Networking.IPFamilies
	}
	var pools []client.Object
	for _, family := range families {
		pools = append(pools, newPool(machine.IPPoolName(op.Object.Namespace, family)))
	}
	if _, err := op.Delete(ctx, p.WithoutState(), pools); !isNoAPI(err) {
		return err
	}
	return nil
}

func (p place) listPools(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(machine.IPPoolKind.GroupVersion().WithKind(machine.IPPoolKind.Kind + "List"))
	if err := p.Live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing IPPools: %w", err)
	}
	// The first of several is to be the same each time.
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return list.Items, nil
}

// isNoAPI reports whether there are no IPPools in a cluster. The client of the seed asks for APIs, but may not have noticed yet that
// one is gone; those of other clusters do not ask.
func isNoAPI(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

func newPool(name string) *unstructured.Unstructured {
	pool := &unstructured.Unstructured{}
	pool.SetGroupVersionKind(machine.IPPoolKind)
	pool.SetName(name)
	return pool
}

func poolLabels(technicalID string) map[string]string {
	return map[string]string{labelManagedBy: managedBy, LabelShoot: technicalID}
}

// poolSpec returns the spec of an IPPool. Packets between its pods and others travel as between those of the cluster's
// other pools.
func poolSpec(nodes netip.Prefix, all []unstructured.Unstructured) map[string]any {
	ipip, vxlan := encapsulation(familyOf(nodes), all)
	out := map[string]any{
		"cidr":         nodes.String(),
		"nodeSelector": noNodes,
		"natOutgoing":  true,
		"ipipMode":     ipip,
		"vxlanMode":    vxlan,
	}
	// A pool has at least one block, which by default has 64 addresses.
	if usual := nodes.Addr().BitLen() - 6; nodes.Bits() > usual {
		out["blockSize"] = int64(nodes.Bits())
	}
	return out
}

// encapsulation returns the modes of the first pool of the same family that nodes take addresses of, or else Calico's
// defaults.
func encapsulation(family gardencorev1beta1.IPFamily, all []unstructured.Unstructured) (ipip, vxlan string) {
	for _, pool := range all {
		prefix, ok := prefixOf(pool)
		selector, _, _ := unstructured.NestedString(pool.Object, "spec", "nodeSelector")
		disabled, _, _ := unstructured.NestedBool(pool.Object, "spec", "disabled")
		if !ok || disabled || familyOf(prefix) != family || selector == noNodes || pool.GetLabels()[labelManagedBy] == managedBy {
			continue
		}
		ipip, _, _ = unstructured.NestedString(pool.Object, "spec", "ipipMode")
		vxlan, _, _ = unstructured.NestedString(pool.Object, "spec", "vxlanMode")
		return cmp.Or(ipip, never), cmp.Or(vxlan, never)
	}
	if family == gardencorev1beta1.IPFamilyIPv4 {
		return "Always", never
	}
	return never, never
}

// overlap tells of the first pool with another name whose range overlaps, unless it is for the machines of another shoot and
// of the same range; empty if there is none.
func overlap(all []unstructured.Unstructured, name string, nodes netip.Prefix) string {
	for _, pool := range all {
		prefix, ok := prefixOf(pool)
		shared := prefix == nodes && pool.GetLabels()[labelManagedBy] == managedBy
		if ok && pool.GetName() != name && prefix.Overlaps(nodes) && !shared {
			return fmt.Sprintf("overlaps %s of IPPool %.253s", cidrOf(pool), pool.GetName())
		}
	}
	return ""
}

func prefixOf(pool unstructured.Unstructured) (netip.Prefix, bool) {
	prefix, err := netip.ParsePrefix(cidrOf(pool))
	return prefix.Masked(), err == nil
}

func cidrOf(pool unstructured.Unstructured) string {
	cidr, _, _ := unstructured.NestedString(pool.Object, "spec", "cidr")
	return cidr
}
