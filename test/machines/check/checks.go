// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

// namespace has all that the checks make.
const namespace = "machine-checks"

// addresses are those of the landscape's own network.
type addresses struct {
	// registry and names are where pods and this machine find registry and DNS.
	registry, names string
	// balancer is an address of the load balancers' pool.
	balancer string
	// kubernetes and clusterNames are the addresses of the Services kubernetes and kube-dns, which the API server knows.
	kubernetes, clusterNames string
}

// addressesOf places the addresses where the landscape has them: at the end of its network (test/landscape/README.md).
func addressesOf(network netip.Prefix) addresses {
	bytes := network.Masked().Addr().As4()
	at := func(third, fourth byte) string {
		return netip.AddrFrom4([4]byte{bytes[0], bytes[1], third, fourth}).String()
	}
	return addresses{registry: at(255, 1) + ":5001", names: at(255, 53), balancer: at(255, 200)}
}

// landscape is the one of this machine.
type landscape struct {
	config    *rest.Config
	client    kubernetes.Interface
	addresses addresses
	// server and agent are pods of package probe, as of when they were ready.
	server, agent *corev1.Pod
	service       *corev1.Service
}

// Ports of the server. Nothing listens on the last one.
const (
	portHTTP    = 8080
	portUDP     = 5000
	portRefused = 5001
)

// prepare makes what the checks ask: two pods, and a Service of type LoadBalancer for one of them; and a machine.
func (l *landscape) prepare(ctx context.Context, program string) error {
	reference, err := l.push(ctx, program)
	if err != nil {
		return err
	}
	for key, address := range map[types.NamespacedName]*string{
		{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}: &l.addresses.kubernetes,
		{Namespace: metav1.NamespaceSystem, Name: "kube-dns"}:    &l.addresses.clusterNames,
	} {
		service, err := l.client.CoreV1().Services(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("looking for the address of a Service: %w", err)
		}
		*address = service.Spec.ClusterIP
	}
	if err := l.clean(ctx); err != nil {
		return err
	}
	if _, err := l.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making namespace %s: %w", namespace, err)
	}
	if err := l.createMachine(ctx); err != nil {
		return err
	}
	// The controller manager has to make the namespace's account first.
	if err := poll(ctx, func() error {
		_, err := l.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("waiting for the account of namespace %s: %w", namespace, err)
	}
	pod := func(name string, args ...string) (*corev1.Pod, error) {
		return l.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
			Spec: corev1.PodSpec{
				Containers:                    []corev1.Container{{Name: "probe", Image: reference, Args: args}},
				TerminationGracePeriodSeconds: new(int64),
			},
		}, metav1.CreateOptions{})
	}
	if _, err := pod("server", "serve", "-name", "server", "-http", fmt.Sprintf(":%d", portHTTP), "-udp", fmt.Sprintf(":%d", portUDP)); err != nil {
		return fmt.Errorf("making a pod: %w", err)
	}
	if _, err := pod("agent", "agent", "-http", fmt.Sprintf(":%d", portHTTP)); err != nil {
		return fmt.Errorf("making a pod: %w", err)
	}
	l.service, err = l.client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Spec: corev1.ServiceSpec{
			// Nobody else gives it an address, whether an instance of the extension is there or not.
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("example.org/check"), Selector: map[string]string{"app": "server"},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(portHTTP)},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: portUDP, TargetPort: intstr.FromInt32(portUDP)},
				{Name: "refused", Protocol: corev1.ProtocolUDP, Port: portRefused, TargetPort: intstr.FromInt32(portRefused)},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a Service: %w", err)
	}
	l.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: l.addresses.balancer, IPMode: new(corev1.LoadBalancerIPModeVIP)}}
	if l.service, err = l.client.CoreV1().Services(namespace).UpdateStatus(ctx, l.service, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("giving the Service its address: %w", err)
	}
	for name, into := range map[string]**corev1.Pod{"server": &l.server, "agent": &l.agent} {
		if *into, err = l.ready(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// push pushes the image of the probe into the landscape's registry.
func (l *landscape) push(ctx context.Context, program string) (string, error) {
	img, err := image.Build(image.Spec{Files: []image.File{{Source: program, Destination: "/probe"}}, Entrypoint: []string{"/probe"}})
	if err != nil {
		return "", fmt.Errorf("making the image of the probe: %w", err)
	}
	reference, err := image.Push(ctx, l.addresses.registry+"/machines/probe:latest", img, oci.Options{PlainHTTP: true})
	if err != nil {
		return "", fmt.Errorf("pushing the image of the probe: %w", err)
	}
	return reference, nil
}

// ready waits until a pod is Ready.
func (l *landscape) ready(ctx context.Context, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var pod *corev1.Pod
	err := poll(ctx, func() (err error) {
		if pod, err = l.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("phase %s%s", pod.Status.Phase, waiting(pod))
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for pod %s: %w", name, errors.Join(err, l.events(context.WithoutCancel(ctx), name)))
	}
	return pod, nil
}

func waiting(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Waiting != nil {
			return ", " + status.State.Waiting.Reason + ": " + status.State.Waiting.Message
		}
	}
	return ""
}

// events is an error with what was reported about a pod, nil if nothing was.
func (l *landscape) events(ctx context.Context, name string) error {
	events, err := l.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return err
	}
	var errs []error
	for _, event := range events.Items {
		if event.Type == corev1.EventTypeWarning {
			errs = append(errs, errors.New(event.Message))
		}
	}
	return errors.Join(errs...)
}

// clean removes what the checks made, and waits until pods are gone.
func (l *landscape) clean(ctx context.Context) error {
	err := l.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("removing namespace %s: %w", namespace, err)
	}
	err = poll(ctx, func() error {
		_, err := l.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
	if err != nil {
		return fmt.Errorf("removing namespace %s: %w", namespace, err)
	}
	return nil
}

// poll repeats until it succeeds or ctx ends, and returns the last error then.
func poll(ctx context.Context, do func() error) error {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// networkChecks are in the order in which one depends on the other.
func (l *landscape) networkChecks() []check {
	const patience = 20 * time.Second
	url := func(host string) string { return "http://" + host + "/" }
	port := func(host string, number int) string { return net.JoinHostPort(host, fmt.Sprint(number)) }
	return []check{
		{"host to pod", patience, func(ctx context.Context) (string, error) {
			return l.server.Status.PodIP, expectServer(probe.Fetch(ctx, url(port(l.server.Status.PodIP, portHTTP)), ""))
		}},
		{"pod to pod", patience, func(ctx context.Context) (string, error) {
			return l.asks(ctx, "/fetch", "url", url(port(l.server.Status.PodIP, portHTTP)))
		}},
		{"pod to pod by UDP", patience, func(ctx context.Context) (string, error) {
			return l.asks(ctx, "/echo", "address", port(l.server.Status.PodIP, portUDP))
		}},
		{"pod to ClusterIP of a pod on the same bridge", patience, func(ctx context.Context) (string, error) {
			return l.asks(ctx, "/fetch", "url", url(l.service.Spec.ClusterIP))
		}},
		{"pod to ClusterIP of a pod on the same bridge by UDP", patience, func(ctx context.Context) (string, error) {
			return l.asks(ctx, "/echo", "address", port(l.service.Spec.ClusterIP, portUDP))
		}},
		{"refusal of a ClusterIP's UDP port reaches the pod", patience, func(ctx context.Context) (string, error) {
			_, err := l.asks(ctx, "/echo", "address", port(l.service.Spec.ClusterIP, portRefused))
			if err == nil || !strings.Contains(err.Error(), "connection refused") {
				return "", fmt.Errorf("expected that the connection is refused, got: %w", err)
			}
			return err.Error(), nil
		}},
		{"host to ClusterIP", patience, func(ctx context.Context) (string, error) {
			return l.service.Spec.ClusterIP, expectServer(probe.Fetch(ctx, url(l.service.Spec.ClusterIP), ""))
		}},
		{"host to load balancer", patience, func(ctx context.Context) (string, error) {
			return l.addresses.balancer, expectServer(probe.Fetch(ctx, url(l.addresses.balancer), ""))
		}},
		{"host to load balancer by UDP", patience, func(ctx context.Context) (string, error) {
			return l.addresses.balancer, expectServer(probe.Echo(ctx, port(l.addresses.balancer, portUDP)))
		}},
		{"pod to load balancer", patience, func(ctx context.Context) (string, error) {
			return l.asks(ctx, "/fetch", "url", url(l.addresses.balancer))
		}},
		{"pod to kube-apiserver", patience, func(ctx context.Context) (string, error) {
			// Its version is told to anybody, as an object like the one that servers answer with.
			report, err := l.ask(ctx, "/fetch", "url", "https://"+l.addresses.kubernetes+"/version")
			return l.addresses.kubernetes, errors.Join(err, report.Err())
		}},
		{"names for the host by UDP", patience, func(ctx context.Context) (string, error) {
			return l.dig(ctx, "udp")
		}},
		{"names for the host by TCP", patience, func(ctx context.Context) (string, error) {
			return l.dig(ctx, "tcp")
		}},
		{"names for pods by UDP", patience, func(ctx context.Context) (string, error) {
			return l.resolves(ctx, "udp")
		}},
		{"names for pods by TCP", patience, func(ctx context.Context) (string, error) {
			return l.resolves(ctx, "tcp")
		}},
		{"pods have the cluster's DNS", patience, func(ctx context.Context) (string, error) {
			report, err := l.ask(ctx, "/resolve", "name", "server")
			return strings.Join(report.Addresses, " "), errors.Join(err, report.Err(), l.expectClusterIP(report.Addresses))
		}},
	}
}

// expectServer checks that it was the server that answered.
func expectServer(answer probe.Answer, err error) error {
	if err == nil && answer.Name != "server" {
		return fmt.Errorf("%q answered instead of the server", answer.Name)
	}
	return err
}

// ask has the agent ask, from inside of its pod.
func (l *landscape) ask(ctx context.Context, path string, parameters ...string) (probe.Report, error) {
	var report probe.Report
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	body, err := get(ctx, "http://"+net.JoinHostPort(l.agent.Status.PodIP, fmt.Sprint(portHTTP))+path+"?"+query.Encode())
	if err != nil {
		return report, fmt.Errorf("asking the agent: %w", err)
	}
	if err := json.Unmarshal(body, &report); err != nil {
		return report, fmt.Errorf("asking the agent: %w", err)
	}
	return report, nil
}

// asks has the agent ask the server.
func (l *landscape) asks(ctx context.Context, path string, parameters ...string) (string, error) {
	report, err := l.ask(ctx, path, parameters...)
	if err == nil {
		err = report.Err()
	}
	return "seen as " + report.Answer.Client, expectServer(report.Answer, err)
}

// dig asks the landscape's DNS for this machine.
func (l *landscape) dig(ctx context.Context, network string) (string, error) {
	query := new(dns.Msg).SetQuestion("registry.local.gardener.cloud.", dns.TypeA)
	client := &dns.Client{Net: network, Timeout: 3 * time.Second}
	reply, _, err := client.ExchangeContext(ctx, query, net.JoinHostPort(l.addresses.names, "53"))
	if err != nil {
		return "", err
	}
	want, _, _ := strings.Cut(l.addresses.registry, ":")
	for _, answer := range reply.Answer {
		if a, ok := answer.(*dns.A); ok && a.A.String() == want {
			return want, nil
		}
	}
	return "", fmt.Errorf("expected %s, got %s", want, reply)
}

// resolves has the agent ask the cluster's DNS.
func (l *landscape) resolves(ctx context.Context, network string) (string, error) {
	report, err := l.ask(ctx, "/resolve", "network", network, "server", net.JoinHostPort(l.addresses.clusterNames, "53"),
		"name", "server."+namespace+".svc.cluster.local.")
	return strings.Join(report.Addresses, " "), errors.Join(err, report.Err(), l.expectClusterIP(report.Addresses))
}

func (l *landscape) expectClusterIP(found []string) error {
	if len(found) != 1 || found[0] != l.service.Spec.ClusterIP {
		return fmt.Errorf("expected %s, got %v", l.service.Spec.ClusterIP, found)
	}
	return nil
}

// userdata brings and starts a kubelet. It has REGISTRY where the landscape's registry is to be.
//
//go:embed userdata.sh
var userdata string

// createMachine makes a pod as the extension's driver makes it for a machine of a shoot (pkg/machine/driver).
func (l *landscape) createMachine(ctx context.Context) error {
	_, err := l.client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "userdata"},
		Data:       map[string][]byte{"userdata": []byte(strings.ReplaceAll(userdata, "REGISTRY", l.addresses.registry))},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a machine: %w", err)
	}
	volume := func(name string, source corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: source}
	}
	memory := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}
	disk := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	_, err = l.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "machine"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false), DNSPolicy: corev1.DNSDefault,
			TerminationGracePeriodSeconds: new(int64(5)),
			Containers: []corev1.Container{{
				Name: "node", Image: "registry.example.org/gardener-extension-provider-local/machine:1.0.0", TTY: true,
				Env:             []corev1.EnvVar{{Name: "NODE_NAME", Value: "machine"}, {Name: "MACHINE_IMAGE_VERSION", Value: "1.0.0"}},
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "userdata", MountPath: "/etc/machine"}, {Name: "containerd", MountPath: "/var/lib/containerd"},
					{Name: "kubelet", MountPath: "/var/lib/kubelet"}, {Name: "run", MountPath: "/run"}, {Name: "tmp", MountPath: "/tmp"},
					{Name: "modules", MountPath: "/lib/modules", ReadOnly: true},
				},
			}},
			Volumes: []corev1.Volume{
				volume("userdata", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "userdata", DefaultMode: new(int32(0o500))}}),
				volume("containerd", disk), volume("kubelet", disk), volume("run", memory), volume("tmp", memory),
				volume("modules", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/lib/modules", Type: new(corev1.HostPathDirectoryOrCreate)}}),
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a machine: %w", err)
	}
	return nil
}

// machineChecks are those of the machine, which takes minutes under emulation.
func (l *landscape) machineChecks() []check {
	const patience = 6 * time.Minute
	return []check{
		{"machine runs as a pod", patience, func(ctx context.Context) (string, error) {
			pod, err := l.ready(ctx, "machine")
			if err != nil {
				return "", err
			}
			return pod.Status.PodIP, nil
		}},
		{"systemd in the machine is running", patience, func(ctx context.Context) (string, error) {
			state, err := l.execute(ctx, "systemctl", "is-system-running")
			if err != nil || state != "running" {
				units, _ := l.execute(ctx, "systemctl", "list-units", "--failed", "--no-legend", "--plain")
				return "", fmt.Errorf("systemd is %q (%w), failed units: %s", state, err, units)
			}
			cgroups, err := l.execute(ctx, "stat", "-fc", "%T", "/sys/fs/cgroup")
			if err == nil && cgroups == "" {
				err = errors.New("systemd is running, but who knows on which cgroups")
			}
			return "running, on " + cgroups, err
		}},
		{"kubelet in the machine is healthy", patience, func(ctx context.Context) (string, error) {
			pod, err := l.client.CoreV1().Pods(namespace).Get(ctx, "machine", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			body, err := get(ctx, "http://"+net.JoinHostPort(pod.Status.PodIP, "10248")+"/healthz")
			if err != nil {
				log, _ := l.execute(ctx, "journalctl", "--no-pager", "-n", "5", "-u", "kubelet", "-u", "run-userdata")
				return "", fmt.Errorf("%w; its log ends with: %s", err, log)
			}
			return string(body), nil
		}},
		{"kubelet in the machine runs a pod", patience, func(ctx context.Context) (string, error) {
			// The command is the second process of the pod, beside that which holds its namespaces.
			return l.execute(ctx, "sh", "-c", "ctr -n k8s.io tasks ls | grep RUNNING | wc -l | grep -x 2")
		}},
	}
}

// execute runs a command in the machine.
func (l *landscape) execute(ctx context.Context, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request := l.client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name("machine").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(l.config, http.MethodGet, request.URL().String())
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &out})
	return strings.TrimSpace(out.String()), err
}

// get returns what a URL answers with.
func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return body, err
}
