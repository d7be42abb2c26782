// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// annotationV4 and annotationV6 are Calico's: a JSON list of the names of IPPools.
	annotationV4 = "cni.projectcalico.org/ipv4pools"
	annotationV6 = "cni.projectcalico.org/ipv6pools"
	// requestTimeout is that of one request to the API server.
	requestTimeout = 10 * time.Second
)

// pool is an IPPool of which addresses can be taken.
type pool struct {
	name   string
	prefix netip.Prefix
}

// podArgs is how the kubelet's runtime says for which Pod it calls.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE, K8S_POD_NAME types.UnmarshallableString
}

func connect(kubeconfig string) (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.UserAgent, config.Timeout = "landscape-ipam", requestTimeout
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// poolsOf are the pools that the Pod's annotation names; none if it names none, or if the call is not for a Pod.
func (p plugin) poolsOf(ctx context.Context, conf *config, args string) ([]pool, error) {
	names := podArgs{}
	if err := types.LoadArgs(args, &names); err != nil {
		return nil, fmt.Errorf("reading CNI_ARGS: %w", err)
	}
	namespace, name := string(names.K8S_POD_NAMESPACE), string(names.K8S_POD_NAME)
	if name == "" {
		return nil, nil
	}
	client, err := p.connect(conf.IPAM.Kubeconfig)
	if err != nil {
		return nil, err
	}
	pod, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("getting Pod %s/%s: %w", namespace, name, err)
	}
	wanted, err := poolNames(pod.GetAnnotations(), annotationV4)
	if err != nil {
		return nil, fmt.Errorf("reading Pod %s/%s: %w", namespace, name, err)
	}
	if unmet, err := poolNames(pod.GetAnnotations(), annotationV6); err != nil || len(unmet) > 0 {
		return nil, errors.Join(err, fmt.Errorf("pod %s/%s asks for an address of IPPools %q, and there is no IPv6 here", namespace, name, unmet))
	}
	return usablePools(ctx, client, wanted)
}

func poolNames(annotations map[string]string, key string) ([]string, error) {
	text, found := annotations[key]
	if !found {
		return nil, nil
	}
	var names []string
	if err := json.Unmarshal([]byte(text), &names); err != nil {
		return nil, fmt.Errorf("annotation %s is no list of names: %w", key, err)
	}
	return names, nil
}

// usablePools gets IPPools, and leaves out what no address can be taken of. It is an error if nothing remains of some.
func usablePools(ctx context.Context, client dynamic.Interface, names []string) ([]pool, error) {
	var (
		pools []pool
		errs  []error
	)
	resource := client.Resource(schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: "ippools"})
	for _, name := range names {
		object, err := resource.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			errs = append(errs, fmt.Errorf("getting IPPool %s: %w", name, err))
			continue
		}
		prefix, err := rangeOf(object)
		if err != nil {
			errs = append(errs, fmt.Errorf("taking an address of IPPool %s: %w", name, err))
			continue
		}
		if !slices.ContainsFunc(pools, func(other pool) bool { return other.prefix == prefix }) {
			pools = append(pools, pool{name: name, prefix: prefix})
		}
	}
	if len(pools) == 0 {
		return nil, errors.Join(errs...)
	}
	return pools, nil
}

func rangeOf(object *unstructured.Unstructured) (netip.Prefix, error) {
	if disabled, _, _ := unstructured.NestedBool(object.Object, "spec", "disabled"); disabled {
		return netip.Prefix{}, errors.New("it is disabled")
	}
	cidr, _, _ := unstructured.NestedString(object.Object, "spec", "cidr")
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return netip.Prefix{}, err
	}
	if !prefix.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("%s is not IPv4", prefix)
	}
	return prefix.Masked(), nil
}

// ranges are what host-local may reserve addresses in. It is an error if no pool has any.
func (p plugin) ranges(conf *config, pools []pool) ([]addressRange, error) {
	others, err := p.links.networks(conf.Bridge)
	if err != nil {
		return nil, fmt.Errorf("listing the networks of this machine: %w", err)
	}
	gateways, err := p.links.addresses(conf.Bridge)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", conf.Bridge, err)
	}
	own := []netip.Prefix{conf.pods}
	for _, gateway := range gateways {
		own = append(own, gateway.Masked())
	}
	var (
		out  []addressRange
		errs []error
	)
	for _, pool := range pools {
		last, err := limit(pool.prefix, own, others)
		if err != nil {
			errs = append(errs, fmt.Errorf("taking an address of IPPool %s: %w", pool.name, err))
			continue
		}
		add := addressRange{Subnet: pool.prefix.String()}
		if last.IsValid() {
			add.RangeEnd = last.String()
		}
		out = append(out, add)
	}
	if len(out) == 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

// limit returns the last address of a range before other networks of the machine that begin in it; invalid if there are none.
// It is an error if no room is left before these, or if the range overlaps another one of the bridge: then the gateway of one
// might be the address of a pod in the other.
func limit(prefix netip.Prefix, own, others []netip.Prefix) (netip.Addr, error) {
	var last netip.Addr
	for _, network := range own {
		if network != prefix && network.Overlaps(prefix) {
			return last, fmt.Errorf("%s overlaps %s, of which pods have addresses", prefix, network)
		}
	}
	first := prefix.Addr().Next().Next()
	for _, network := range others {
		if !network.Overlaps(prefix) {
			continue
		}
		if network.Bits() <= prefix.Bits() || !first.Less(network.Addr()) {
			return last, fmt.Errorf("%s overlaps %s, to which this machine has a route", prefix, network)
		}
		if end := network.Addr().Prev(); !last.IsValid() || end.Less(last) {
			last = end
		}
	}
	return last, nil
}
