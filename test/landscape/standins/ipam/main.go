// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command ipam stands in for Calico's CNI plugin calico-ipam, which gives a pod its address of the IPPools that the pod's
// annotation names: machines of a shoot have addresses in the shoot's range of nodes, others in the pods' range. Calico
// itself can't be had, as its node agent is not in the Go module proxy. The landscape's plugin bridge calls it:
//
//	ADD     reads cni.projectcalico.org/ipv4pools of the Pod and, if it names any, these IPPools of crd.projectcalico.org/v1.
//	        host-local reserves an address in the first of them that has one, else in the pods' range. All are in one store, so
//	        pools with the same range share it and never give out an address twice.
//	DEL     has host-local give back what the container has. It asks no API: Pod and IPPools may be gone.
//	CHECK   is host-local's.
//
// The plugin bridge takes but one IPv4 network if it is to be the pods' gateway. So it must not be (isGateway is false), and
// ADD puts the gateway's address of each range on the bridge, and DEL takes one away when nobody has an address of its range
// any more. That the node forwards packets is up to others.
//
// It does not: IPv6, selectors, allowedUses, blocks, encapsulation and natOutgoing of IPPools (no pod's packets are
// masqueraded here), pools by namespace, fixed addresses, several nodes. Unlike Calico's, a pool's addresses end where
// another network of the machine begins, and a pool is refused that has no room before it.
//
// The user of the kubeconfig that the configuration names needs to get pods and ippools.crd.projectcalico.org.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"k8s.io/client-go/dynamic"
)

const (
	// delegate is the plugin that reserves addresses.
	delegate = "host-local"
	// timeout is how long a call may take. The kubelet tries again.
	timeout = 30 * time.Second
)

func main() {
	p := plugin{connect: connect, links: linux{}, out: os.Stdout}
	skel.PluginMainFuncs(skel.CNIFuncs{Add: p.add, Del: p.del, Check: p.check}, version.PluginSupports("0.4.0", "1.0.0"), "CNI plugin ipam of the landscape")
}

// plugin answers CNI's calls.
type plugin struct {
	// connect makes a client of a kubeconfig.
	connect func(kubeconfig string) (dynamic.Interface, error)
	links   links
	// out is where results go.
	out io.Writer
	// exec runs the delegate; nil for the real one, in CNI_PATH.
	exec invoke.Exec
}

func (p plugin) add(args *skel.CmdArgs) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conf, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	pools, err := p.poolsOf(ctx, conf, args.Args)
	if err != nil {
		return err
	}
	unlock, err := conf.lock()
	if err != nil {
		return err
	}
	defer unlock()

	result, err := p.reserve(ctx, conf, pools)
	if err != nil {
		return err
	}
	if err := p.openGateways(conf, result); err != nil {
		return errors.Join(err, p.release(ctx, conf))
	}
	result, err = result.GetAsVersion(conf.CNIVersion)
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return result.PrintTo(p.out)
}

// reserve has host-local reserve an address, in the pods' range if there are no pools.
func (p plugin) reserve(ctx context.Context, conf *config, pools []pool) (types.Result, error) {
	content := conf.content
	if len(pools) > 0 {
		ranges, err := p.ranges(conf, pools)
		if err != nil {
			return nil, err
		}
		if content, err = conf.withRanges(ranges); err != nil {
			return nil, err
		}
	}
	result, err := invoke.DelegateAdd(ctx, delegate, content, p.exec)
	if err != nil {
		return nil, fmt.Errorf("reserving an address: %w", err)
	}
	return result, nil
}

// openGateways puts the gateways of addresses that were reserved on the bridge.
func (p plugin) openGateways(conf *config, result types.Result) error {
	reserved, err := current.NewResultFromResult(result)
	if err != nil {
		return fmt.Errorf("reading what %s reserved: %w", delegate, err)
	}
	for _, ip := range reserved.IPs {
		gateway, err := prefixOf(ip.Gateway, ip.Address.Mask)
		if err != nil {
			return fmt.Errorf("reading the gateway of %s: %w", ip.Address.String(), err)
		}
		if err := p.links.addAddress(conf.Bridge, gateway); err != nil {
			return fmt.Errorf("adding gateway %s to %s: %w", gateway, conf.Bridge, err)
		}
	}
	return nil
}

// release has host-local give back the addresses of the container, and takes away gateways that are of no use any more.
func (p plugin) release(ctx context.Context, conf *config) error {
	if err := invoke.DelegateDel(ctx, delegate, conf.content, p.exec); err != nil {
		return fmt.Errorf("giving back addresses: %w", err)
	}
	return p.closeGateways(conf)
}

// closeGateways takes gateways off the bridge whose range has no address in use, but for that of the pods' range.
func (p plugin) closeGateways(conf *config) error {
	present, err := p.links.addresses(conf.Bridge)
	if err != nil {
		return fmt.Errorf("listing the addresses of %s: %w", conf.Bridge, err)
	}
	used, err := conf.reserved()
	if err != nil {
		return err
	}
	for _, gateway := range present {
		if gateway.Masked() == conf.pods || anyIn(used, gateway.Masked()) {
			continue
		}
		if err := p.links.removeAddress(conf.Bridge, gateway); err != nil {
			return fmt.Errorf("removing gateway %s from %s: %w", gateway, conf.Bridge, err)
		}
	}
	return nil
}

func (p plugin) del(args *skel.CmdArgs) error {
	return p.locked(args, p.release)
}

func (p plugin) check(args *skel.CmdArgs) error {
	return p.locked(args, func(ctx context.Context, conf *config) error {
		return invoke.DelegateCheck(ctx, delegate, conf.content, p.exec)
	})
}

// locked runs what needs nothing of the API while no other call of the network does.
func (plugin) locked(args *skel.CmdArgs, does func(context.Context, *config) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conf, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	unlock, err := conf.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return does(ctx, conf)
}

// config is what is read of a network's configuration: host-local's, and kubeconfig in ipam beside it.
type config struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	// Bridge is the bridge of all pods, to which gateways are added.
	Bridge string `json:"bridge"`
	IPAM   struct {
		// Kubeconfig is the path of that with which Pods and IPPools are read.
		Kubeconfig string `json:"kubeconfig"`
		// DataDir is host-local's folder: it has one file for each reserved address below the network's name.
		DataDir string `json:"dataDir"`
		// Ranges has the pods' range, and nothing else.
		Ranges [][]addressRange `json:"ranges"`
	} `json:"ipam"`

	// pods is that range, and content all of the configuration, as host-local takes it.
	pods    netip.Prefix
	content []byte
}

// addressRange is one of host-local's.
type addressRange struct {
	Subnet   string `json:"subnet"`
	RangeEnd string `json:"rangeEnd,omitempty"`
}

func parse(content []byte) (*config, error) {
	conf := &config{content: content}
	if err := json.Unmarshal(content, conf); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	switch {
	case conf.Name == "" || conf.Bridge == "":
		return nil, errors.New("reading the configuration: it needs a name and a bridge")
	case conf.IPAM.Kubeconfig == "" || conf.IPAM.DataDir == "":
		return nil, errors.New("reading the configuration: ipam needs a kubeconfig and a dataDir")
	case len(conf.IPAM.Ranges) != 1 || len(conf.IPAM.Ranges[0]) != 1:
		return nil, errors.New("reading the configuration: ipam.ranges needs one range, the pods'")
	}
	pods, err := netip.ParsePrefix(conf.IPAM.Ranges[0][0].Subnet)
	if err != nil || !pods.Addr().Is4() {
		return nil, fmt.Errorf("reading the configuration: %q is no IPv4 range for pods", conf.IPAM.Ranges[0][0].Subnet)
	}
	conf.pods = pods.Masked()
	return conf, nil
}

// withRanges is the configuration with other ranges, of which host-local takes the first that has an address.
func (c *config) withRanges(ranges []addressRange) ([]byte, error) {
	all := map[string]any{}
	if err := json.Unmarshal(c.content, &all); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	ipam, ok := all["ipam"].(map[string]any)
	if !ok {
		return nil, errors.New("reading the configuration: it has no ipam")
	}
	ipam["ranges"] = [][]addressRange{ranges}
	return json.Marshal(all)
}

// lock keeps other calls out until the returned function is called. A call that dies lets go of it.
func (c *config) lock() (func(), error) {
	if err := os.MkdirAll(c.IPAM.DataDir, 0o755); err != nil { // #nosec G301 -- as host-local does.
		return nil, fmt.Errorf("locking the addresses: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(c.IPAM.DataDir, c.Name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the addresses: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the addresses: %w", err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// reserved are all addresses that host-local has given out.
func (c *config) reserved() ([]netip.Addr, error) {
	entries, err := os.ReadDir(filepath.Join(c.IPAM.DataDir, c.Name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listing the reserved addresses: %w", err)
	}
	var out []netip.Addr
	for _, entry := range entries {
		if address, err := netip.ParseAddr(entry.Name()); err == nil {
			out = append(out, address)
		}
	}
	return out, nil
}

func anyIn(addresses []netip.Addr, prefix netip.Prefix) bool {
	return slices.ContainsFunc(addresses, prefix.Contains)
}
