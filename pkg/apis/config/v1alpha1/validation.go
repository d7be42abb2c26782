// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

var (
	logLevels  = []string{"debug", "info", "error"}
	logFormats = []string{"json", "text"}
	classes    = []string{
		string(extensionsv1alpha1.ExtensionClassGarden),
		string(extensionsv1alpha1.ExtensionClassSeed),
		string(extensionsv1alpha1.ExtensionClassShoot),
	}
)

// Validate checks a defaulted configuration.
func Validate(config *ExtensionConfiguration) field.ErrorList {
	allErrs := validateLogging(config.Logging)
	allErrs = append(allErrs, validateClasses(config.ExtensionClasses, field.NewPath("extensionClasses"))...)
	allErrs = append(allErrs, validateServers(&config.Server, field.NewPath("server"))...)
	allErrs = append(allErrs, validateControllers(&config.Controllers, field.NewPath("controllers"))...)
	allErrs = append(allErrs, validateDNS(&config.DNS, field.NewPath("dns"))...)
	allErrs = append(allErrs, validateLoadBalancers(&config.LoadBalancers, field.NewPath("loadBalancers"))...)
	allErrs = append(allErrs, validateIngress(&config.Ingress, field.NewPath("ingress"))...)
	allErrs = append(allErrs, validateBackup(&config.Backup, field.NewPath("backup"))...)
	allErrs = append(allErrs, validateWebhooks(&config.Webhooks, field.NewPath("webhooks"))...)
	allErrs = append(allErrs, validateCharts(&config.Charts, field.NewPath("charts"))...)
	allErrs = append(allErrs, validateControlPlane(&config.ControlPlane, field.NewPath("controlPlane"))...)
	allErrs = append(allErrs, validateMachines(&config.Machines, field.NewPath("machines"))...)
	allErrs = append(allErrs, validateNodes(&config.Nodes, field.NewPath("nodes"))...)
	allErrs = append(allErrs, validateMock(&config.Mock, field.NewPath("mock"))...)

	if *config.Heartbeat.RenewIntervalSeconds <= 0 {
		allErrs = append(allErrs, field.Invalid(field.NewPath("heartbeat", "renewIntervalSeconds"), *config.Heartbeat.RenewIntervalSeconds, "must be greater than 0"))
	}

	return allErrs
}

func validateLogging(logging Logging) field.ErrorList {
	var allErrs field.ErrorList
	if !slices.Contains(logLevels, logging.LogLevel) {
		allErrs = append(allErrs, field.NotSupported(field.NewPath("logLevel"), logging.LogLevel, logLevels))
	}
	if !slices.Contains(logFormats, logging.LogFormat) {
		allErrs = append(allErrs, field.NotSupported(field.NewPath("logFormat"), logging.LogFormat, logFormats))
	}
	return allErrs
}

func validateClasses(extensionClasses []extensionsv1alpha1.ExtensionClass, path *field.Path) field.ErrorList {
	if len(extensionClasses) == 0 {
		return field.ErrorList{field.Required(path, "name the classes of extension objects to serve: garden, or seed and shoot")}
	}

	var (
		allErrs field.ErrorList
		seen    = sets.New[extensionsv1alpha1.ExtensionClass]()
	)
	for i, class := range extensionClasses {
		switch {
		case !sets.New(classes...).Has(string(class)):
			allErrs = append(allErrs, field.NotSupported(path.Index(i), string(class), classes))
		case seen.Has(class):
			allErrs = append(allErrs, field.Duplicate(path.Index(i), class))
		}
		seen.Insert(class)
	}
	return allErrs
}

func validateServers(server *ServerConfiguration, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for name, s := range map[string]*Server{"healthProbes": server.HealthProbes, "metrics": server.Metrics, "webhooks": server.Webhooks} {
		allErrs = append(allErrs, validateServer(s.BindAddress, s.Port, path.Child(name))...)
	}
	if *server.HealthProbes == *server.Metrics {
		allErrs = append(allErrs, field.Duplicate(path.Child("metrics", "port"), server.Metrics.Port))
	}
	if *server.Webhooks == *server.Metrics || *server.Webhooks == *server.HealthProbes {
		allErrs = append(allErrs, field.Duplicate(path.Child("webhooks", "port"), server.Webhooks.Port))
	}
	return allErrs
}

func validateServer(bindAddress string, port int, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for _, msg := range validation.IsValidPortNum(port) {
		allErrs = append(allErrs, field.Invalid(path.Child("port"), port, msg))
	}
	if bindAddress != "" && net.ParseIP(bindAddress) == nil {
		allErrs = append(allErrs, field.Invalid(path.Child("bindAddress"), bindAddress, "must be an IP address"))
	}
	return allErrs
}

func validateControllers(controllers *ControllersConfiguration, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for name, controller := range map[string]ControllerConfiguration{
		"backupBucket":          controllers.BackupBucket,
		"backupEntry":           controllers.BackupEntry,
		"dnsRecord":             controllers.DNSRecord,
		"extension":             controllers.Extension,
		"bastion":               controllers.Bastion,
		"controlPlane":          controllers.ControlPlane,
		"infrastructure":        controllers.Infrastructure,
		"operatingSystemConfig": controllers.OperatingSystemConfig,
		"worker":                controllers.Worker,
		"healthCheck":           controllers.HealthCheck.ControllerConfiguration,
		"ingress":               controllers.Ingress,
		"service":               controllers.Service,
	} {
		if *controller.ConcurrentSyncs <= 0 {
			allErrs = append(allErrs, field.Invalid(path.Child(name, "concurrentSyncs"), *controller.ConcurrentSyncs, "must be greater than 0"))
		}
	}
	if period := controllers.HealthCheck.SyncPeriod.Duration; period < time.Second {
		allErrs = append(allErrs, field.Invalid(path.Child("healthCheck", "syncPeriod"), period.String(), "must be at least 1s"))
	}
	return allErrs
}

func validateBackup(backup *BackupConfiguration, path *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	for name, dir := range map[string]string{"directory": backup.Directory, "hostPath": backup.HostPath} {
		allErrs = append(allErrs, validatePath(dir, path.Child(name))...)
	}
	return allErrs
}
