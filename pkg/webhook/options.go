// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// DefaultTimeoutSeconds is how long an API server waits for a webhook that says nothing else. The mutators ask nobody
	// but caches; who waits longer waits for a server that is gone.
	DefaultTimeoutSeconds = 5

	modeService = extensionswebhook.ModeService
	modeURL     = extensionswebhook.ModeURL
)

// Options are what the webhooks of an instance are run with.
type Options struct {
	// Webhooks are the webhooks to serve: mutating, with a handler, and told apart by target and path. None at all is valid:
	// what an earlier run has registered is removed then. They are not changed.
	//
	// Defaults: path "/NAME", failure policy Ignore, DefaultTimeoutSeconds. A webhook for the seed may only have failure
	// policy Fail if a namespace selector keeps it away from the namespaces kube-system and garden.
	Webhooks []*extensionswebhook.Webhook
	// Name is the name of the instance. The Service before the server and the registration in the seed have the same name,
	// the registration in shoots has the suffix "-shoot".
	Name string
	// Namespace is the namespace in which the instance runs. The registration in the seed goes when it goes.
	Namespace string
	// Classes are the classes that the instance serves. Without class shoot, webhooks for shoots are left out.
	Classes class.Set
	// Server is what the server listens on.
	Server configv1alpha1.Server
	// ServicePort is the port of the Service before the server.
	ServicePort int
	// Mode is "service" (default), or "url" for a program that runs outside of the seed.
	Mode string
	// URL is "HOST:PORT" by which API servers reach the server in mode "url".
	URL string
	// Resources writes the ManagedResources of shoots.
	Resources *resources.Writer
	// Clock is the time. Default: the real one.
	Clock clock.Clock
	// Log is the logger.
	Log logr.Logger
}

// complete returns options with defaults and with just the webhooks that are to be served. What the caller has is left
// alone.
func (o Options) complete() Options {
	if o.Mode == "" {
		o.Mode = modeService
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}

	_, shoots := o.Classes.Only(extensionsv1alpha1.ExtensionClassShoot)
	var webhooks []*extensionswebhook.Webhook
	for _, given := range o.Webhooks {
		if given.Target == extensionswebhook.TargetShoot && !shoots {
			continue
		}
		webhook := *given
		if webhook.Path = strings.Trim(webhook.Path, "/"); webhook.Path == "" {
			webhook.Path = webhook.Name
		}
		if webhook.FailurePolicy == nil {
			webhook.FailurePolicy = new(admissionregistrationv1.Ignore)
		}
		if webhook.TimeoutSeconds == nil {
			webhook.TimeoutSeconds = new(int32(DefaultTimeoutSeconds))
		}
		webhooks = append(webhooks, &webhook)
	}
	o.Webhooks = webhooks
	return o
}

func (o Options) has(target string) bool {
	return slices.ContainsFunc(o.Webhooks, func(w *extensionswebhook.Webhook) bool { return w.Target == target })
}

// identity is the secrets manager's name for us.
func (o Options) identity() string {
	return o.Name + "-webhooks"
}

// serverNames are the names and addresses by which API servers call.
func (o Options) serverNames() ([]string, []net.IP, error) {
	if o.Mode == modeService {
		return []string{o.Name + "." + o.Namespace + ".svc", o.Name + "." + o.Namespace, o.Name}, nil, nil
	}

	host, _, err := net.SplitHostPort(o.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("the URL of the webhooks is not HOST:PORT: %w", err)
	}
	if address := net.ParseIP(host); address != nil {
		return nil, []net.IP{address}, nil
	}
	return []string{host}, nil, nil
}

// validate checks completed options. All errors are of whoever wrote the program or its deployment.
func (o Options) validate(c client.Client) error {
	if o.Namespace == "" {
		return errors.New("the namespace of the instance is missing")
	}
	if msgs := validation.IsDNS1035Label(o.Name); len(msgs) > 0 {
		return fmt.Errorf("name %q cannot be that of a Service: %s", o.Name, strings.Join(msgs, ", "))
	}
	if msgs := validation.IsValidLabelValue(o.identity()); len(msgs) > 0 {
		return fmt.Errorf("name %q is too long: %s", o.Name, strings.Join(msgs, ", "))
	}
	if o.Mode != modeService && o.Mode != modeURL {
		return fmt.Errorf("mode %q is none of %s, %s", o.Mode, modeService, modeURL)
	}
	if o.Mode == modeService {
		if msgs := validation.IsValidPortNum(o.ServicePort); len(msgs) > 0 {
			return fmt.Errorf("service port %d: %s", o.ServicePort, strings.Join(msgs, ", "))
		}
	}
	if _, _, err := o.serverNames(); err != nil {
		return err
	}

	seen := sets.New[string]()
	for _, webhook := range o.Webhooks {
		if err := validateWebhook(webhook, c); err != nil {
			return fmt.Errorf("webhook %q: %w", webhook.Name, err)
		}
		for _, key := range []string{webhook.Target + " path " + webhook.Path, webhook.Target + " name " + webhook.Name} {
			if seen.Has(key) {
				return fmt.Errorf("two webhooks with target, %s", key)
			}
			seen.Insert(key)
		}
	}
	return nil
}

func validateWebhook(webhook *extensionswebhook.Webhook, c client.Client) error {
	if msgs := validation.IsDNS1123Subdomain(webhook.Name); len(msgs) > 0 {
		return errors.New("bad name: " + strings.Join(msgs, ", "))
	}
	for segment := range strings.SplitSeq(webhook.Path, "/") {
		if msgs := validation.IsDNS1123Label(segment); len(msgs) > 0 {
			return fmt.Errorf("path %q: %s", webhook.Path, strings.Join(msgs, ", "))
		}
	}
	if webhook.Webhook == nil || webhook.Webhook.Handler == nil {
		return errors.New("no handler")
	}
	if webhook.Action != "" && webhook.Action != extensionswebhook.ActionMutating {
		return fmt.Errorf("action %q is not served, only %q", webhook.Action, extensionswebhook.ActionMutating)
	}
	if len(webhook.Types) == 0 {
		return errors.New("no types")
	}
	if timeout := *webhook.TimeoutSeconds; timeout < 1 || timeout > 30 {
		return fmt.Errorf("timeout of %d seconds is not within 1 and 30", timeout)
	}

	switch webhook.Target {
	case extensionswebhook.TargetShoot:
		return nil
	case extensionswebhook.TargetSeed:
		return validateSeedFailurePolicy(webhook, c)
	default:
		return fmt.Errorf("target %q is none of %s, %s", webhook.Target, extensionswebhook.TargetSeed, extensionswebhook.TargetShoot)
	}
}

// validateSeedFailurePolicy sees to it that the seed comes up without us: what it needs for this is in these namespaces,
// or in none at all.
func validateSeedFailurePolicy(webhook *extensionswebhook.Webhook, c client.Client) error {
	if *webhook.FailurePolicy != admissionregistrationv1.Fail {
		return nil
	}
	if webhook.NamespaceSelector == nil {
		return errors.New("failure policy Fail in the seed needs a namespace selector")
	}
	selector, err := metav1.LabelSelectorAsSelector(webhook.NamespaceSelector)
	if err != nil {
		return fmt.Errorf("namespace selector: %w", err)
	}
	for _, namespace := range []string{metav1.NamespaceSystem, v1beta1constants.GardenNamespace} {
		if selector.Matches(labels.Set{corev1.LabelMetadataName: namespace}) {
			return fmt.Errorf("failure policy Fail, and the namespace selector matches namespace %s", namespace)
		}
	}

	for _, t := range webhook.Types {
		gvk, err := c.GroupVersionKindFor(t.Obj)
		if err != nil {
			return err
		}
		mapping, err := c.RESTMapper().RESTMapping(gvk.GroupKind())
		if err != nil {
			return fmt.Errorf("looking up %s: %w", gvk.GroupKind(), err)
		}
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			return fmt.Errorf("failure policy Fail for %s, to which no namespace selector applies", gvk.Kind)
		}
	}
	return nil
}

// buildConfigs returns the registrations for the seed and for shoots, nil where there is nothing to register. They have
// all fields set that an API server would set otherwise, so that one can be compared with what the API server has, and
// the URLs of those for shoots lack the shoot's namespace.
func buildConfigs(c client.Client, o Options) (seed, shoot *admissionregistrationv1.MutatingWebhookConfiguration, err error) {
	seedConfigs, shootConfigs, err := extensionswebhook.BuildWebhookConfigs(o.Webhooks, c, o.Namespace, o.Name, true, o.ServicePort, o.Mode, o.URL, nil, false)
	if err != nil {
		return nil, nil, err
	}

	for _, config := range []*admissionregistrationv1.MutatingWebhookConfiguration{seedConfigs.MutatingWebhookConfig, shootConfigs.MutatingWebhookConfig} {
		if config == nil {
			continue
		}
		for i := range config.Webhooks {
			webhook := &config.Webhooks[i]
			// An object may be written by any version of its API. The server gets it in the one that it asked for.
			webhook.MatchPolicy = new(admissionregistrationv1.Equivalent)
			// The mutators can be asked twice. So the outcome doesn't depend on which webhook of whom comes first.
			webhook.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
			webhook.NamespaceSelector = ptr.To(ptr.Deref(webhook.NamespaceSelector, metav1.LabelSelector{}))
			webhook.ObjectSelector = ptr.To(ptr.Deref(webhook.ObjectSelector, metav1.LabelSelector{}))
			for j := range webhook.Rules {
				webhook.Rules[j].Scope = new(admissionregistrationv1.AllScopes)
			}
		}
	}
	return seedConfigs.MutatingWebhookConfig, shootConfigs.MutatingWebhookConfig, nil
}

// withBundle returns a copy of a registration in which all webhooks trust the bundle, and whose URLs end in the suffix.
func withBundle(config *admissionregistrationv1.MutatingWebhookConfiguration, bundle []byte, urlSuffix string) *admissionregistrationv1.MutatingWebhookConfiguration {
	config = config.DeepCopy()
	for i := range config.Webhooks {
		clientConfig := &config.Webhooks[i].ClientConfig
		clientConfig.CABundle = bundle
		if clientConfig.URL != nil {
			clientConfig.URL = new(*clientConfig.URL + urlSuffix)
		}
	}
	return config
}
