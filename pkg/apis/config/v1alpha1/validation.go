// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const mustBePositive = "must be greater than 0"

// minMockRetry is the shortest time until a mock object is reconciled again.
const minMockRetry = 10 * time.Millisecond

var (
	logLevels       = []string{"debug", "info", "error"}
	logFormats      = []string{"json", "text"}
	classes         = []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot}
	componentCharts = []string{"cloud-controller", "coredns", "local-path-provisioner"}
	dnsProviders    = []DNSProvider{DNSProviderCoreDNS, DNSProviderRFC2136}
	ipModes         = []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy}
	mockOperations  = []MockOperation{
		MockOperationCreate, MockOperationReconcile, MockOperationDelete, MockOperationForceDelete, MockOperationMigrate, MockOperationRestore,
	}
	mockErrorCodes = []gardencorev1beta1.ErrorCode{
		gardencorev1beta1.ErrorInfraUnauthenticated, gardencorev1beta1.ErrorInfraUnauthorized, gardencorev1beta1.ErrorInfraQuotaExceeded,
		gardencorev1beta1.ErrorInfraRateLimitsExceeded, gardencorev1beta1.ErrorInfraDependencies,
		gardencorev1beta1.ErrorRetryableInfraDependencies, gardencorev1beta1.ErrorInfraResourcesDepleted,
		gardencorev1beta1.ErrorCleanupClusterResources, gardencorev1beta1.ErrorConfigurationProblem,
		gardencorev1beta1.ErrorRetryableConfigurationProblem, gardencorev1beta1.ErrorProblematicWebhook,
	}
)

// validate implements Configuration.
func (config *ExtensionConfiguration) validate() field.ErrorList {
	return slices.Concat(
		validateLogging(config.Logging),
		validateClasses(field.NewPath("extensionClasses"), config.ExtensionClasses),
		validateServers(field.NewPath("server"), &config.Server),
		validateClient(&config.ClientConnection, &config.LeaderElection),
		validateControllers(field.NewPath("controllers"), &config.Controllers),
		validateDNS(field.NewPath("dns"), &config.DNS),
		validateLoadBalancers(field.NewPath("loadBalancers"), &config.LoadBalancers),
		each(field.NewPath("ingress", "gateways"), config.Ingress.Gateways, validateReference),
		validatePath(field.NewPath("backup", "directory"), config.Backup.Directory),
		validatePath(field.NewPath("backup", "hostPath"), config.Backup.HostPath),
		validatePort(field.NewPath("webhooks", "servicePort"), *config.Webhooks.ServicePort),
		validateCharts(field.NewPath("charts"), &config.Charts),
		validateImage(field.NewPath("controlPlane", "cloudController", "image"), config.ControlPlane.CloudController.Image, *config.ControlPlane.CloudController.Deploy),
		validateMachines(field.NewPath("machines"), &config.Machines),
		unless(config.Nodes.Capacity.CPU.Sign() > 0, field.Invalid(field.NewPath("nodes", "capacity", "cpu"), config.Nodes.Capacity.CPU.String(), mustBePositive)),
		unless(config.Nodes.Capacity.Memory.Sign() > 0, field.Invalid(field.NewPath("nodes", "capacity", "memory"), config.Nodes.Capacity.Memory.String(), mustBePositive)),
		validateMock(field.NewPath("mock"), &config.Mock),
	)
}

// validate implements Configuration.
func (config *AdmissionConfiguration) validate() field.ErrorList {
	path := field.NewPath("webhooks")
	return slices.Concat(
		validateLogging(config.Logging),
		validateServers(field.NewPath("server"), &config.Server),
		validateClient(&config.ClientConnection, &config.LeaderElection),
		validatePort(path.Child("servicePort"), *config.Webhooks.ServicePort),
		validateNamespace(path.Child("certificateNamespace"), config.Webhooks.CertificateNamespace),
		validateNamespace(path.Child("ownerNamespace"), config.Webhooks.OwnerNamespace),
		each(field.NewPath("machines", "nodeCIDRs"), config.Machines.NodeCIDRs, validateCIDR),
	)
}

// validate implements Configuration.
func (config *CloudControllerConfiguration) validate() field.ErrorList {
	return slices.Concat(
		validateLogging(config.Logging),
		validateServer(field.NewPath("server"), &Server{BindAddress: config.Server.BindAddress, Port: config.Server.Port}),
		validateNamespace(field.NewPath("seed", "namespace"), config.Seed.Namespace),
		each(field.NewPath("seed", "allowedCIDRs"), config.Seed.AllowedCIDRs, validateCIDR),
		unless(config.Shoot.Kubeconfig != "", field.Required(field.NewPath("shoot", "kubeconfig"), "how else would the shoot be found")),
	)
}

// unless returns an error unless a condition holds.
func unless(ok bool, err *field.Error) field.ErrorList {
	if ok {
		return nil
	}
	return field.ErrorList{err}
}

// invalid returns an error for each message of a check of apimachinery.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var allErrs field.ErrorList
	for _, message := range messages {
		allErrs = append(allErrs, field.Invalid(path, value, message))
	}
	return allErrs
}

// oneOf returns an error unless a value is one of those that are supported.
func oneOf[T ~string](path *field.Path, value T, supported []T) field.ErrorList {
	return unless(slices.Contains(supported, value), field.NotSupported(path, value, supported))
}

// each checks the values of a list.
func each[T any](path *field.Path, values []T, check func(*field.Path, T) field.ErrorList) field.ErrorList {
	var allErrs field.ErrorList
	for i, value := range values {
		allErrs = append(allErrs, check(path.Index(i), value)...)
	}
	return allErrs
}

// distinct returns an error for each value that is in a list twice.
func distinct[T comparable](path *field.Path, values []T) field.ErrorList {
	var allErrs field.ErrorList
	for i, value := range values {
		allErrs = append(allErrs, unless(!slices.Contains(values[:i], value), field.Duplicate(path.Index(i), value))...)
	}
	return allErrs
}

func validateLogging(logging Logging) field.ErrorList {
	return append(oneOf(field.NewPath("logLevel"), logging.LogLevel, logLevels), oneOf(field.NewPath("logFormat"), logging.LogFormat, logFormats)...)
}

func validateClasses(path *field.Path, extensionClasses []extensionsv1alpha1.ExtensionClass) field.ErrorList {
	return slices.Concat(
		unless(len(extensionClasses) > 0, field.Required(path, "name the classes of extension objects to serve: garden, or seed and shoot")),
		each(path, extensionClasses, func(path *field.Path, class extensionsv1alpha1.ExtensionClass) field.ErrorList {
			return oneOf(path, class, classes)
		}),
		distinct(path, extensionClasses),
	)
}

func validateServers(path *field.Path, server *ServerConfiguration) field.ErrorList {
	probes, metrics, webhooks := server.HealthProbes, server.Metrics, server.Webhooks
	return slices.Concat(
		validateServer(path.Child("healthProbes"), probes),
		validateServer(path.Child("metrics"), metrics),
		validateServer(path.Child("webhooks"), webhooks),
		unless(!clash(metrics, probes), field.Duplicate(path.Child("metrics", "port"), metrics.Port)),
		unless(!clash(webhooks, metrics) && !clash(webhooks, probes), field.Duplicate(path.Child("webhooks", "port"), webhooks.Port)),
	)
}

// clash reports whether two servers can't listen both. Without an address a server listens on all.
func clash(a, b *Server) bool {
	return a.Port == b.Port && (a.BindAddress == b.BindAddress || a.BindAddress == "" || b.BindAddress == "")
}

// validateClient checks what client-go would refuse once all is set up, or at each request.
func validateClient(connection *componentbaseconfigv1alpha1.ClientConnectionConfiguration, election *componentbaseconfigv1alpha1.LeaderElectionConfiguration) field.ErrorList {
	lease, renew, retry := election.LeaseDuration.Duration, election.RenewDeadline.Duration, election.RetryPeriod.Duration
	inOrder := lease > renew && 5*renew > 6*retry && retry > 0
	return append(
		unless(connection.QPS <= 0 || connection.Burst > 0, field.Invalid(field.NewPath("clientConnection", "burst"), connection.Burst, mustBePositive)),
		unless(inOrder || !*election.LeaderElect, field.Invalid(field.NewPath("leaderElection", "leaseDuration"), lease.String(),
			fmt.Sprintf("must be longer than renewDeadline (%s), and that longer than 1.2 times retryPeriod (%s)", renew, retry)))...,
	)
}

func validateServer(path *field.Path, server *Server) field.ErrorList {
	isAddress := server.BindAddress == "" || net.ParseIP(server.BindAddress) != nil
	return append(validatePort(path.Child("port"), server.Port), unless(isAddress, field.Invalid(path.Child("bindAddress"), server.BindAddress, "must be an IP address"))...)
}

func validatePort[T int | int32](path *field.Path, port T) field.ErrorList {
	return invalid(path, port, validation.IsValidPortNum(int(port)))
}

func validateControllers(path *field.Path, controllers *ControllersConfiguration) field.ErrorList {
	period := controllers.HealthCheck.SyncPeriod
	allErrs := unless(period.Duration >= time.Second, field.Invalid(path.Child("healthCheck", "syncPeriod"), period, "must be at least 1s"))
	for name, controller := range controllers.byName() {
		allErrs = append(allErrs, unless(*controller.ConcurrentSyncs > 0, field.Invalid(path.Child(name, "concurrentSyncs"), *controller.ConcurrentSyncs, mustBePositive))...)
	}
	return allErrs
}

func validateDNS(path *field.Path, dns *DNSConfiguration) field.ErrorList {
	updates, coreDNS := &dns.RFC2136, &dns.CoreDNS
	rfc2136Path, coreDNSPath := path.Child("rfc2136"), path.Child("coreDNS")
	return slices.Concat(
		validateZones(path.Child("zones"), dns.Zones),
		validateZones(path.Child("reservedDomains"), dns.ReservedDomains),
		unless(*dns.DefaultTTL > 0 && *dns.DefaultTTL <= math.MaxInt32, field.Invalid(path.Child("defaultTTL"), *dns.DefaultTTL, fmt.Sprintf("must be between 1 and %d", math.MaxInt32))),
		oneOf(path.Child("provider"), dns.Provider, dnsProviders),

		validateZones(rfc2136Path.Child("zones"), updates.Zones),
		unless(updates.Server == "" || isHost(updates.Server), field.Invalid(rfc2136Path.Child("server"), updates.Server, "must be HOST[:PORT]")),
		each(rfc2136Path.Child("allowedServers"), updates.AllowedServers, func(path *field.Path, server string) field.ErrorList {
			_, _, err := ParseAllowedServer(server)
			return parsed(path, server, err)
		}),
		unless(updates.Timeout.Duration > 0, field.Invalid(rfc2136Path.Child("timeout"), updates.Timeout, mustBePositive)),

		validateNamespace(coreDNSPath.Child("namespace"), coreDNS.Namespace),
		validateDomain(coreDNSPath.Child("clusterDomain"), coreDNS.ClusterDomain),
		validateImage(coreDNSPath.Child("image"), coreDNS.Image, *coreDNS.Deploy),
		unless(*coreDNS.Replicas > 0, field.Invalid(coreDNSPath.Child("replicas"), *coreDNS.Replicas, mustBePositive)),
		unless(coreDNS.ClusterIP == "" || net.ParseIP(coreDNS.ClusterIP) != nil, field.Invalid(coreDNSPath.Child("clusterIP"), coreDNS.ClusterIP, "must be an IP address")),
		unless(coreDNS.ServiceNetwork == "" || validateCIDR(nil, coreDNS.ServiceNetwork) == nil, field.Invalid(coreDNSPath.Child("serviceNetwork"), coreDNS.ServiceNetwork, "must be a CIDR")),
		each(coreDNSPath.Child("clientNetworks"), coreDNS.ClientNetworks, validateCIDR),
		each(coreDNSPath.Child("servers"), coreDNS.Servers, func(path *field.Path, server string) field.ErrorList {
			_, _, err := net.SplitHostPort(server)
			return unless(err == nil, field.Invalid(path, server, "must be host:port"))
		}),
		unless(coreDNS.BatchWindow.Duration >= 0, field.Invalid(coreDNSPath.Child("batchWindow"), coreDNS.BatchWindow, "must not be negative")),
		unless(coreDNS.ConfirmTimeout.Duration > 0, field.Invalid(coreDNSPath.Child("confirmTimeout"), coreDNS.ConfirmTimeout, mustBePositive)),
	)
}

// validateZones checks domains. CoreDNS does not start if it is to serve a zone twice.
func validateZones(path *field.Path, zones []string) field.ErrorList {
	return append(each(path, zones, validateDomain), distinct(path, zones)...)
}

func validateDomain(path *field.Path, domain string) field.ErrorList {
	return invalid(path, domain, validation.IsDNS1123Subdomain(domain))
}

func validateNamespace(path *field.Path, namespace string) field.ErrorList {
	return invalid(path, namespace, validation.IsDNS1123Label(namespace))
}

func validateImage(path *field.Path, image string, isDeployed bool) field.ErrorList {
	return unless(image != "" || !isDeployed, field.Required(path, "needed as long as deploy is true"))
}

func validateReference(path *field.Path, reference ServiceReference) field.ErrorList {
	return append(validateNamespace(path.Child("namespace"), reference.Namespace), invalid(path.Child("name"), reference.Name, validation.IsDNS1035Label(reference.Name))...)
}

func validateCIDR(path *field.Path, cidr string) field.ErrorList {
	_, err := ParseCIDRs([]string{cidr})
	return unless(err == nil, field.Invalid(path, cidr, "must be a range such as 192.168.0.0/16"))
}

// parsed returns an error for a value that can't be parsed.
func parsed(path *field.Path, value string, err error) field.ErrorList {
	if err == nil {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, err.Error())}
}

func validateLoadBalancers(path *field.Path, loadBalancers *LoadBalancersConfiguration) field.ErrorList {
	allErrs := slices.Concat(
		validateAddresses(path.Child("hostAddresses"), loadBalancers.HostAddresses),
		each(path.Child("pools"), loadBalancers.Pools, func(path *field.Path, pool string) field.ErrorList {
			_, err := ParseAddressRange(pool)
			return parsed(path, pool, err)
		}),
	)
	for zone, addresses := range loadBalancers.ZoneAddresses {
		allErrs = append(allErrs, validateAddresses(path.Child("zoneAddresses").Key(zone), addresses)...)
	}
	services, nodePorts := sets.New[ServiceReference](), sets.New[int32]()
	return append(allErrs, each(path.Child("services"), loadBalancers.Services, func(path *field.Path, service LoadBalancerService) field.ErrorList {
		reference := ServiceReference{Namespace: service.Namespace, Name: service.Name}
		allErrs := slices.Concat(
			unless(!services.Has(reference), field.Duplicate(path, service.Namespace+"/"+service.Name)),
			validateReference(path, reference),
			validateAddresses(path.Child("addresses"), service.Addresses),
		)
		services.Insert(reference)
		if service.IPMode != nil {
			allErrs = append(allErrs, oneOf(path.Child("ipMode"), *service.IPMode, ipModes)...)
		}
		ports := sets.New[int32]()
		return append(allErrs, each(path.Child("nodePorts"), service.NodePorts, func(path *field.Path, fixed LoadBalancerNodePort) field.ErrorList {
			allErrs := slices.Concat(
				validatePort(path.Child("port"), fixed.Port),
				validatePort(path.Child("nodePort"), fixed.NodePort),
				unless(!ports.Has(fixed.Port), field.Duplicate(path.Child("port"), fixed.Port)),
				unless(!nodePorts.Has(fixed.NodePort), field.Duplicate(path.Child("nodePort"), fixed.NodePort)),
			)
			ports.Insert(fixed.Port)
			nodePorts.Insert(fixed.NodePort)
			return allErrs
		})...)
	})...)
}

// validateAddresses checks addresses, of which there may be one of each family.
func validateAddresses(path *field.Path, addresses []string) field.ErrorList {
	families := sets.New[bool]()
	return each(path, addresses, func(path *field.Path, value string) field.ErrorList {
		address, err := netip.ParseAddr(value)
		if err != nil || !isPlain(address) {
			return field.ErrorList{field.Invalid(path, value, "must be an IP address")}
		}
		defer families.Insert(address.Is4())
		return unless(!families.Has(address.Is4()), field.Invalid(path, value, "there is another address of its family"))
	})
}

func validateCharts(path *field.Path, charts *ChartsConfiguration) field.ErrorList {
	allErrs := append(validatePath(path.Child("cache", "directory"), charts.Cache.Directory),
		unless(charts.Cache.MaxBytes.Sign() > 0, field.Invalid(path.Child("cache", "maxBytes"), charts.Cache.MaxBytes.String(), mustBePositive))...)
	for name, source := range charts.Sources {
		path := path.Child("sources").Key(name)
		allErrs = slices.Concat(allErrs, oneOf(path, name, componentCharts), validateOCIChart(path, source))
	}
	return allErrs
}

func validateOCIChart(path *field.Path, source OCIChart) field.ErrorList {
	ref, err := name.ParseReference(source.Ref, name.StrictValidation)
	allErrs := parsed(path.Child("ref"), source.Ref, err)
	if err == nil {
		allErrs = unless(isHost(ref.Context().RegistryStr()), field.Invalid(path.Child("ref"), source.Ref, "must begin with HOST[:PORT]"))
	}
	for key, secret := range map[string]*corev1.LocalObjectReference{"pullSecretRef": source.PullSecretRef, "caBundleSecretRef": source.CABundleSecretRef} {
		if secret != nil {
			allErrs = append(allErrs, validateDomain(path.Child(key, "name"), secret.Name)...)
		}
	}
	return append(allErrs, each(path.Child("mirrors"), source.Mirrors, func(path *field.Path, mirror string) field.ErrorList {
		host, _, _ := strings.Cut(mirror, "/")
		_, err := name.NewRepository(mirror+"/chart", name.StrictValidation)
		return unless(err == nil && isHost(host), field.Invalid(path, mirror, "must be HOST[:PORT][/PREFIX]"))
	})...)
}

func validateMachines(path *field.Path, machines *MachinesConfiguration) field.ErrorList {
	gpu := string(machines.GPUResourceName)
	return slices.Concat(
		localv1alpha1.ValidateMachineSizing(path.Child("sizing"), machines.Sizing),
		each(path.Child("allowedSizings"), machines.AllowedSizings, localv1alpha1.ValidateMachineSizing),
		unless(slices.Contains(machines.AllowedSizings, machines.Sizing), field.Invalid(path.Child("sizing"), machines.Sizing, "must be one of allowedSizings")),
		unless(strings.Contains(gpu, "/") && len(validation.IsQualifiedName(gpu)) == 0, field.Invalid(path.Child("gpuResourceName"), gpu, "must be the name of an extended resource, such as nvidia.com/gpu")),
		each(path.Child("egressCIDRs"), machines.EgressCIDRs, validateCIDR),
		each(path.Child("nodeCIDRs"), machines.NodeCIDRs, validateCIDR),
		each(path.Child("remote", "allowedCIDRs"), machines.Remote.AllowedCIDRs, validateCIDR),
		each(path.Child("registryMirrors"), machines.RegistryMirrors, validateRegistryMirror),
	)
}

func validateRegistryMirror(path *field.Path, mirror RegistryMirror) field.ErrorList {
	return slices.Concat(
		// Gardener takes no IPv6 address here.
		unless(isHost(mirror.Upstream) && !strings.Contains(mirror.Upstream, "["), field.Invalid(path.Child("upstream"), mirror.Upstream, "must be HOST[:PORT], and no IPv6 address")),
		validateURL(path.Child("server"), mirror.Server),
		unless(len(mirror.Hosts) > 0, field.Required(path.Child("hosts"), "name at least one mirror")),
		each(path.Child("hosts"), mirror.Hosts, validateURL),
	)
}

func validateMock(path *field.Path, mock *MockConfiguration) field.ErrorList {
	return slices.Concat(
		unless(*mock.ConcurrentSyncs > 0, field.Invalid(path.Child("concurrentSyncs"), *mock.ConcurrentSyncs, mustBePositive)),
		validatePort(path.Child("nodes", "kubeletPort"), *mock.Nodes.KubeletPort),
		each(path.Child("behaviours"), mock.Behaviours, validateMockBehaviour),
	)
}

func validateMockBehaviour(path *field.Path, behaviour MockBehaviour) field.ErrorList {
	atLeast := func(name string, duration *metav1.Duration, shortest time.Duration) field.ErrorList {
		return unless(duration == nil || duration.Duration >= shortest, field.Invalid(path.Child(name), duration, "must be at least "+shortest.String()))
	}
	allErrs := slices.Concat(
		atLeast("delay", behaviour.Delay, 0),
		atLeast("jitter", behaviour.Jitter, 0),
		atLeast("retryAfter", behaviour.RetryAfter, minMockRetry),
		unless(behaviour.Failures >= 0, field.Invalid(path.Child("failures"), behaviour.Failures, "must not be negative")),
		unless(behaviour.ErrorRate >= 0 && behaviour.ErrorRate <= 1, field.Invalid(path.Child("errorRate"), behaviour.ErrorRate, "must be from 0 to 1")),
		each(path.Child("error", "codes"), behaviour.Error.Codes, func(path *field.Path, code gardencorev1beta1.ErrorCode) field.ErrorList {
			return oneOf(path, code, mockErrorCodes)
		}),
	)
	if behaviour.Kind != "" {
		allErrs = append(allErrs, oneOf(path.Child("kind"), behaviour.Kind, sets.List(extensionsv1alpha1.AllExtensionKinds))...)
	}
	if behaviour.Operation != "" {
		allErrs = append(allErrs, oneOf(path.Child("operation"), behaviour.Operation, mockOperations)...)
	}
	return allErrs
}

// isHost reports whether value is HOST[:PORT], where HOST is a domain or an IP address, an IPv6 address in brackets.
func isHost(value string) bool {
	host := value
	if name, port, err := net.SplitHostPort(value); err == nil {
		number, err := strconv.Atoi(port)
		if err != nil || len(validation.IsValidPortNum(number)) > 0 {
			return false
		}
		host = name
	} else if inner, ok := strings.CutPrefix(value, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && strings.Contains(inner, ":") && net.ParseIP(inner) != nil
	}
	return net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0
}

func validateURL(path *field.Path, value string) field.ErrorList {
	address, err := url.Parse(value)
	return unless(err == nil && address.Host != "" && (address.Scheme == "http" || address.Scheme == "https"), field.Invalid(path, value, "must be a URL with http or https"))
}

func validatePath(path *field.Path, dir string) field.ErrorList {
	return unless(filepath.IsAbs(dir) && filepath.Clean(dir) == dir && dir != "/", field.Invalid(path, dir, "must be an absolute, clean path other than /"))
}
