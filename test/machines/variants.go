// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"cmp"
	"strings"
)

// Expectation is what `make up` has to do on a machine.
type Expectation string

const (
	// Serves is for machines on which the landscape has to come up, and its network to work.
	Serves Expectation = "served"
	// Refuses is for machines on which it can't: it has to say why, and what to type, before it changes anything.
	Refuses Expectation = "refused"
)

// Variant is a machine that people have, and what is expected on it.
type Variant struct {
	// Name is what VARIANT selects; About is for the table in docs.
	Name, About string
	Image       Image
	// Memory is in MiB. Default: 6000.
	Memory int
	// Prepare is a script that makes the machine what About says. It runs as root, as all scripts do, before the first look at
	// the machine, and finds the program of test/probe at /usr/local/bin/probe.
	Prepare string
	// Expect is what `make up` does.
	Expect Expectation
	// Refusal are regular expressions, all of which the output of a refusal has to match: the cause, and the remedy.
	Refusal []string
	// Up brings the landscape up, and Down takes it down. Default: make up, until the last step that this machine is fast enough
	// for, and make down.
	Up, Down string
	// Make has the default be make also where that takes minutes only to find that nothing has to be compiled: with emulated
	// processors, most variants call the program that it would build.
	Make bool
	// Network is the landscape's network if it isn't the default.
	Network string
	// Still is a script that has to succeed after Prepare, with the landscape and after it: what the machine is there for goes
	// on.
	Still string
	// Used is a script that has to succeed with the landscape up: what its user does with it.
	Used string
	// Halfway cuts the power once Up has printed this.
	Halfway string
	// Reboots restarts the machine with the landscape up, and brings it up again.
	Reboots bool
	// Meanwhile is a script that changes the machine while the landscape is up, after which the network is checked again; Kept
	// are regular expressions of the differences (Compare) that it makes. Each has to be there after `make down`, and nothing
	// else.
	Meanwhile string
	Kept      []string
}

// commands are Up and Down or what they are by default. With emulated processors the whole would take half a day.
func (v Variant) commands(accelerator string) (up, down string) {
	up, down = "make up", "make down"
	until := "make up UNTIL=dns"
	if accelerator == "tcg" && !v.Make {
		up, down, until = "bin/landscape/landscape up", "bin/landscape/landscape down", "bin/landscape/landscape up --until dns"
	}
	if accelerator == "tcg" && v.Expect == Serves {
		up = until
	}
	if v.Network != "" {
		up += map[bool]string{true: " NETWORK=", false: " --network "}[strings.HasPrefix(up, "make")] + v.Network
	}
	return cmp.Or(v.Up, up), cmp.Or(v.Down, down)
}

// serve makes a service of the probe, as if somebody else's program listened on an address.
func serve(name, address string) string {
	return "systemd-run --quiet --unit=" + name + " /usr/local/bin/probe serve -name " + name + " -http " + address + "\n" +
		"until " + answers(name, address) + "; do sleep 0.2; done\n"
}

// answers is a command that succeeds if the probe of that name answers on an address.
func answers(name, address string) string {
	return "timeout 10 bash -c 'exec 3<>/dev/tcp/" + slash(address) + `; printf "GET / HTTP/1.0\r\n\r\n" >&3; grep -q "\"` + name + `\"" <&3' 2>/dev/null`
}

// slash writes host:port as bash names it.
func slash(address string) string { return strings.Replace(address, ":", "/", 1) }

// docker has a container with a published port, as a developer's machine has.
const docker = `tar -C /usr/local/bin -c probe | docker import --change 'ENTRYPOINT ["/probe"]' - probe >/dev/null
docker run -d --name web -p 8099:8080 probe serve -name web -http :8080 >/dev/null
`

// dockerAnswers asks it by the machine's own address, which Docker's rules lead to the container.
const dockerAnswers = `for _ in $(seq 20); do
  exec 3<>"/dev/tcp/$(hostname -I | cut -d" " -f1)/8099" && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && grep -q '"web"' <&3 && exit 0
  sleep 0.5
done
echo "the container does not answer on its published port"
exit 1
`

// asDev makes the clone one of the user dev, who has no cache of root's.
const asDev = `rm -f /root/go /root/.cache/go-build
chown -R dev: /home/dev
`

// Variants is the table.
func Variants() []Variant {
	var (
		bookworm   = Image{Release: "bookworm"}
		withDocker = Image{Release: "bookworm", Packages: []string{"docker.io"}}
	)
	return []Variant{
		{Name: "debian-12", About: "Debian 12, nothing else", Image: bookworm, Expect: Serves, Make: true},
		{Name: "debian-13", About: "Debian 13, nothing else", Image: Image{Release: "trixie"}, Expect: Serves},
		{
			Name: "docker", About: "Docker of Debian, with a container that has a published port", Image: withDocker, Expect: Serves,
			Prepare: docker, Still: dockerAnswers,
		},
		{
			Name: "docker-ce", About: "packages like those of docker.com: containerd.io brings runc and conflicts with Debian's", Image: bookworm, Expect: Serves,
			Prepare: dockerCE, Still: "dpkg-query -W -f '${db:Status-Abbrev}\n' containerd.io docker-ce | tee /dev/stderr | grep -c ^ii | grep -qx 2 && systemctl is-active docker",
		},
		{
			Name: "docker-late", About: "Docker is started while the landscape is up", Image: withDocker, Expect: Serves,
			Prepare:   "systemctl disable --now docker.service docker.socket containerd.service\nip link delete docker0\nnft flush ruleset\nsysctl -q net.ipv4.ip_forward=0",
			Meanwhile: "systemctl start docker\n" + docker,
			Kept: []string{
				`iptables: \+.*(DOCKER|docker0|172\.17\.).*`, `iptables: \+(\*filter|\*nat|COMMIT|:[A-Z]+ ACCEPT)`,
				`nft: \+.*(DOCKER|docker0|172\.17\.).*`, `nft: \+(table ip (filter|nat) \{|\tchain [A-Z]+ \{|\t\ttype (filter|nat) hook .*; policy accept;|\t\tcounter return|\t?\})`,
				`links: \+(docker0|veth).*`, `routes6?: \+.*(docker0|veth|172\.17\.).*`, `addresses: \+(docker0|veth).*`,
				`sysctls: [+-]net\.ipv4\.(ip_forward|conf\..*\.(forwarding|accept_redirects)) = [01]`, `mounts: \+.*docker.*`,
				`cgroups: \+.*/(docker|containerd)[^/]*`, `processes: \+.*(docker|containerd|/probe serve).*`, `containers: (-docker failed with 1|\+.* web .*)`,
				`starts: \+.*`, `services: \+(docker|containerd)\..*`,
			},
			Still: "! systemctl --quiet is-active docker || {\n" + dockerAnswers + "}",
		},
		{
			Name: "docker-network", About: "a Docker network has 172.18.0.0/16", Image: withDocker, Expect: Refuses,
			Prepare: "docker network create --subnet 172.18.0.0/16 other >/dev/null\n" + docker, Still: dockerAnswers,
			Refusal: []string{`172\.18\.0\.0/16`, `NETWORK=`},
		},
		{
			Name: "network", About: "NETWORK=172.30.0.0/16 beside a Docker network with 172.18.0.0/16", Image: withDocker, Expect: Serves,
			Prepare: "docker network create --subnet 172.18.0.0/16 other >/dev/null\n" + docker, Still: dockerAnswers,
			Network: "172.30.0.0/16",
		},
		{
			Name: "nftables", About: "nftables drops what nobody allowed, also what is forwarded", Image: bookworm, Expect: Serves,
			Prepare: `cat >/etc/nftables.conf <<'EOF'
flush ruleset
table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		iif lo accept
		meta l4proto { icmp, ipv6-icmp } accept
		tcp dport 22 accept
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
EOF
systemctl enable --quiet --now nftables`,
		},
		{
			Name: "ufw", About: "ufw is on", Image: Image{Release: "bookworm", Packages: []string{"ufw"}}, Expect: Serves,
			Prepare: "ufw allow 22/tcp >/dev/null\nufw --force enable >/dev/null",
			Still:   "ufw status | grep -q 'Status: active'",
		},
		{
			Name: "firewalld", About: "firewalld is on", Image: Image{Release: "bookworm", Packages: []string{"firewalld"}}, Expect: Serves,
			Prepare: "systemctl is-active firewalld\nfirewall-cmd --state",
			Still:   "firewall-cmd --state",
			// Once a zone has been used, firewalld keeps its chains until it is loaded again, which would drop what others have set
			// since.
			Kept: []string{
				`nft: \+\tchain (filter_IN|filter_FWD|nat_PRE|nat_POST|mangle_PRE)_trusted(_(pre|log|deny|allow|post))? \{`,
				`nft: \+\t\tjump (filter_IN|filter_FWD|nat_PRE|nat_POST|mangle_PRE)_trusted_(pre|log|deny|allow|post)`,
				`nft: \+\t\tjump (filter_INPUT|filter_FORWARD|nat_PREROUTING|nat_POSTROUTING|mangle_PREROUTING)_POLICIES_(pre|post)`,
				`nft: \+\t\taccept`, `nft: \+\t\}`,
			},
		},
		{
			Name: "other-kubernetes", About: "another Kubernetes, like k3s: cgroup kubepods, cni0, chains KUBE-, port 10250", Image: Image{Release: "bookworm", Packages: []string{"iptables"}}, Expect: Refuses,
			Prepare: otherKubernetes + serve("k3s", "0.0.0.0:10250"),
			Still:   answers("k3s", "127.0.0.1:10250"),
			Refusal: []string{`10250`, `(?i)kubelet|kubernetes`},
		},
		{
			Name: "port-5001", About: "another registry on port 5001", Image: bookworm, Expect: Refuses,
			Prepare: serve("registry", "127.0.0.1:5001"), Still: answers("registry", "127.0.0.1:5001"), Refusal: []string{`5001`, `probe`, `(?i)stop`},
		},
		{
			Name: "port-2379", About: "another etcd on port 2379", Image: bookworm, Expect: Refuses,
			Prepare: serve("etcd", "127.0.0.1:2379"), Still: answers("etcd", "127.0.0.1:2379"), Refusal: []string{`2379`, `probe`, `(?i)stop`},
		},
		{Name: "memory-4g", About: "4 GB of memory", Image: bookworm, Memory: 4096, Expect: Refuses, Refusal: []string{`(?i)memory`, `GB|GiB`}},
		{
			Name: "disk-3g", About: "3 GB of free disk", Image: bookworm, Expect: Refuses,
			Prepare: `fallocate -l $(($(df --output=avail -B1 /home/dev | tail -1) - 3000000000)) /home/dev/full`,
			Refusal: []string{`(?i)disk|free`, `GB|GiB`},
		},
		{
			Name: "sudo", About: "a user with sudo, who has Go in /usr/local/go", Image: bookworm, Expect: Serves, Prepare: asDev,
			Up: "su - dev -c 'cd provider-local && sudo make up UNTIL=dns'", Down: "su - dev -c 'cd provider-local && sudo make down'",
			Used: `su - dev -c 'set -ex; cd provider-local
make status
KUBECONFIG=.landscape/kubeconfig .landscape/bin/kubectl get nodes
CGO_ENABLED=0 go build -C test/landscape -trimpath -ldflags "-s -w" -o "$PWD/bin/landscape/landscape" .
foreign=$(find bin ~/.cache ~/go ! -user dev -print -quit)
[ -z "$foreign" ] || { echo "$foreign belongs to somebody else"; exit 1; }'`,
		},
		{
			Name: "non-root", About: "a user without root", Image: bookworm, Expect: Refuses, Prepare: asDev,
			Up: "su - dev -c 'cd provider-local && make up'", Down: "true", Refusal: []string{`root`, `sudo`},
		},
		{Name: "reboot", About: "the machine reboots while the landscape is up", Image: bookworm, Expect: Serves, Reboots: true},
		{Name: "power-cut", About: "the power fails half-way through make up", Image: bookworm, Expect: Serves, Halfway: "] apiserver"},
		{
			Name: "changes", About: "devices, routes, rules and a network namespace come while the landscape is up, and somebody tries a second clone", Image: Image{Release: "bookworm", Packages: []string{"iptables"}}, Expect: Serves,
			Prepare: "ip link add gone7 type dummy",
			Meanwhile: `ip link delete gone7
ip link add vpn7 type dummy
ip address add 10.99.0.1/24 dev vpn7
ip link set vpn7 up
ip route add 10.98.0.0/24 dev vpn7
ip link add veth7 type veth peer name veth8
iptables -A INPUT -p tcp --dport 9999 -j ACCEPT
iptables -N MINE
iptables -A FORWARD -j MINE
ip netns add mine
systemd-run --quiet --unit=mine sleep infinity
mkdir -p /sys/fs/cgroup/mine`,
			Used: otherClone,
			Kept: []string{
				`links: -gone7: .*`, `sysctls: -net\.ipv[46]\.(conf|neigh)\.gone7\..*`, `links: \+vpn7: .*`, `links: \+veth7@veth8: .*`, `links: \+veth8@veth7: .*`, `addresses: \+.*vpn7.*`,
				`routes: \+10\.98\.0\.0/24 dev vpn7.*`, `routes: \+.*10\.99\.0\.[0-9/]+ .*vpn7.*`, `routes6: \+.*vpn7.*`,
				`iptables: \+-A INPUT -p tcp -m tcp --dport 9999 -j ACCEPT`, `iptables: \+:MINE -`, `iptables: \+-A FORWARD -j MINE`,
				`iptables: \+(\*filter|COMMIT|:(INPUT|FORWARD|OUTPUT) ACCEPT)`, `nft: \+.*`,
				`namespaces: \+mine`, `mounts: \+.*/run/netns.*`, `processes: \+.*sleep infinity`, `services: \+mine\.service.*`,
				`cgroups: \+/sys/fs/cgroup/mine`, `cgroups: \+/sys/fs/cgroup/system\.slice/mine\.service`,
			},
		},
	}
}

// otherClone is refused what the first one has, and leaves that alone.
const otherClone = `set -ex
git clone -q . ../other
mkdir -p ../other/bin/landscape
cp -p bin/landscape/landscape ../other/bin/landscape/
cd ../other
if bin/landscape/landscape up --until dns >refused 2>&1; then exit 1; fi
grep provider-local refused
bin/landscape/landscape down
mkdir -p .landscape
bin/landscape/landscape down
cd ../provider-local
rm -r ../other
bin/landscape/landscape status`

// dockerCE makes packages of Debian's programs that have the names, places and conflicts of docker.com's.
const dockerCE = `set -e
cd "$(mktemp -d)"
apt-get update -q >/dev/null
apt-get download -q containerd runc >/dev/null 2>&1
mkdir files
for deb in *.deb; do dpkg-deb -x "$deb" files; done
mkdir -p io/DEBIAN io/usr/bin ce/DEBIAN ce/lib/systemd/system
cp files/usr/bin/containerd* files/usr/bin/ctr files/usr/sbin/runc io/usr/bin/
cat >io/DEBIAN/control <<'EOF'
Package: containerd.io
Version: 1.7.27-1
Architecture: amd64
Maintainer: nobody
Provides: containerd, runc
Conflicts: containerd, runc
Replaces: containerd, runc
Description: as docker.com packages it
EOF
cat >ce/DEBIAN/control <<'EOF'
Package: docker-ce
Version: 5:28.1.1-1
Architecture: amd64
Maintainer: nobody
Depends: containerd.io
Description: what goes when containerd.io goes
EOF
cat >ce/lib/systemd/system/docker.service <<'EOF'
[Service]
ExecStart=/usr/bin/containerd --address /run/docker-ce.sock --root /var/lib/docker-ce --state /run/docker-ce
EOF
dpkg-deb --build io >/dev/null
dpkg-deb --build ce >/dev/null
dpkg -i io.deb ce.deb >/dev/null
systemctl daemon-reload
systemctl start docker
`

// otherKubernetes makes what is left to see of a Kubernetes like k3s when its containers are looked at from outside.
const otherKubernetes = `mkdir -p /sys/fs/cgroup/kubepods/pod1
systemd-run --quiet --unit=pod sleep infinity
systemctl show -P MainPID pod >/sys/fs/cgroup/kubepods/pod1/cgroup.procs
ip link add cni0 type bridge
ip address add 10.42.0.1/24 dev cni0
ip link set cni0 up
iptables -N KUBE-FORWARD
iptables -A FORWARD -j KUBE-FORWARD
iptables -A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
iptables -t nat -N KUBE-SERVICES
iptables -t nat -A PREROUTING -j KUBE-SERVICES
iptables -t nat -N CNI-abc
`
