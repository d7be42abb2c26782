// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package webhook_test has a real kube-apiserver call the webhook server, with no more permissions than package webhook
// says that it needs. The time of the certificates is the suite's, and lies in the past: so a rotation takes seconds, and
// what it makes is valid for the API server, which goes by the real time.
package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"

	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	instanceName      = "gardener-extension-provider-local-seed"
	instanceNamespace = "extension-provider-local"
	// objectNamespace has the objects that are mutated.
	objectNamespace = "objects"
	shootNamespace  = "shoot--local--one"
	day             = 24 * time.Hour
)

var (
	env            *environment.Environment
	c              client.Client
	scheme         *runtime.Scheme
	clock          = testclock.NewFakeClock(time.Now().Add(-25 * day))
	instanceConfig *rest.Config
	// api is between the replicas and the API server.
	api     *environment.HTTPProxy
	service *proxy
	// replicas are all that were started.
	replicas []*replica
)

func TestWebhook(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Webhooks called by a real API server")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))
	secretsutils.Clock = clock

	scheme = suite.NewScheme(resourcesv1alpha1.AddToScheme)

	By("starting the API server")
	var err error
	env, err = environment.Start(scheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	c = env.Client
	Expect(env.CreateNamespaces(ctx, instanceNamespace, shootNamespace)).To(Succeed())
	Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: objectNamespace, Labels: map[string]string{"mutate": "true"}}})).To(Succeed())

	for _, obj := range permissions() {
		Expect(c.Create(ctx, obj)).To(Succeed())
	}
	access, err := env.ServiceAccountConfig(instanceNamespace, instanceName)
	Expect(err).NotTo(HaveOccurred())
	api, instanceConfig, err = environment.NewHTTPProxy(access)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(api.Close)

	service, err = newProxy()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(service.close)
})

// permissions are those that package webhook asks for, those of package resources in the namespace of a shoot, and those
// for a leader election.
func permissions() []client.Object {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: instanceNamespace, Name: instanceName}}
	role := func(namespace, name string, rules ...rbacv1.PolicyRule) []client.Object {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
		if namespace == "" {
			return []client.Object{
				&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
				&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}},
			}
		}
		return []client.Object{
			&rbacv1.Role{ObjectMeta: meta, Rules: rules},
			&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}},
		}
	}
	rule := func(group, resource, name string, verbs ...string) rbacv1.PolicyRule {
		rule := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
		if name != "" {
			rule.ResourceNames = []string{name}
		}
		return rule
	}

	const admission, configurations, managed = "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "resources.gardener.cloud"
	objects := role(instanceNamespace, "webhooks",
		rule("", "secrets", "", "get", "list", "watch", "create", "patch", "delete"),
		rule("", "namespaces", instanceNamespace, "get"),
	)
	objects = append(objects, role("", "webhooks",
		rule(admission, configurations, "", "create"),
		rule(admission, configurations, instanceName, "get", "list", "watch", "patch", "delete"),
		rule(managed, "managedresources", "", "get", "list", "watch", "create", "patch", "delete"),
	)...)
	objects = append(objects, role(shootNamespace, "resources", rule("", "secrets", "", "get", "create", "patch", "delete"))...)
	return append(objects, role(instanceNamespace, "leader-election",
		rule("coordination.k8s.io", "leases", "", "get", "create", "update"),
		rule("", "events", "", "create", "patch"),
		rule("events.k8s.io", "events", "", "create", "patch"),
	)...)
}

// webhooks are what the replicas serve: one without which ConfigMaps with the label cannot be written, and one for
// ServiceAccounts which can do without.
func webhooks() []*extensionswebhook.Webhook {
	return []*extensionswebhook.Webhook{{
		Name:              "configmaps",
		Path:              "configmaps",
		Target:            extensionswebhook.TargetSeed,
		Types:             []extensionswebhook.Type{{Obj: &corev1.ConfigMap{}}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"mutate": "true"}},
		FailurePolicy:     new(admissionregistrationv1.Fail),
		Webhook:           &admission.Webhook{Handler: annotate},
	}, {
		Name:           "serviceaccounts",
		Path:           "serviceaccounts",
		Target:         extensionswebhook.TargetSeed,
		Types:          []extensionswebhook.Type{{Obj: &corev1.ServiceAccount{}}},
		FailurePolicy:  new(admissionregistrationv1.Ignore),
		TimeoutSeconds: new(int32(5)),
		Webhook:        &admission.Webhook{Handler: annotate},
	}, {
		Name:    "nodes",
		Path:    "nodes",
		Target:  extensionswebhook.TargetShoot,
		Types:   []extensionswebhook.Type{{Obj: &corev1.Node{}}},
		Webhook: &admission.Webhook{Handler: annotate},
	}}
}

// annotate is a mutator that puts an annotation on what it sees.
var annotate = admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
	obj := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(request.Object.Raw, obj); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var whole map[string]any
	if err := json.Unmarshal(request.Object.Raw, &whole); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	metav1.SetMetaDataAnnotation(&obj.ObjectMeta, "mutated", "yes")
	whole["metadata"] = obj.ObjectMeta
	mutated, err := json.Marshal(whole)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, mutated)
})

// replica is a running replica of an instance.
type replica struct {
	*suite.Running

	address, health string
	shoots          *webhook.ShootWebhooks
}

func startReplica(webhooks ...*extensionswebhook.Webhook) *replica {
	GinkgoHelper()
	port := suite.FreePort()
	health := net.JoinHostPort("127.0.0.1", strconv.Itoa(suite.FreePort()))

	mgr, err := manager.New(rest.CopyConfig(instanceConfig), manager.Options{
		Scheme:                        scheme,
		Controller:                    suite.Controllers(),
		Logger:                        logf.Log,
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:        health,
		LeaderElection:                true,
		LeaderElectionID:              instanceName,
		LeaderElectionNamespace:       instanceNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(6 * time.Second),
		RenewDeadline:                 new(4 * time.Second),
		RetryPeriod:                   new(200 * time.Millisecond),
	})
	Expect(err).NotTo(HaveOccurred())

	// A watch that hangs is found in the time of a test.
	watches := instance.NewWatches(4 * time.Second)
	Expect(mgr.Add(watches)).To(Succeed())
	shoots, err := webhook.AddToManager(mgr, webhook.Options{
		Webhooks:             webhooks,
		Name:                 instanceName,
		Namespace:            instanceNamespace,
		OwnerNamespace:       instanceNamespace,
		BindAddress:          "127.0.0.1",
		Port:                 port,
		URL:                  service.address(),
		CertificateNamespace: instanceNamespace,
		Identity:             instanceName,
		NewInformer:          watches.NewInformer,
		Resources:            resources.New(mgr.GetClient()),
		Log:                  logf.Log.WithName("webhooks").WithValues("port", port),
	})
	Expect(err).NotTo(HaveOccurred())

	r := &replica{
		Running: suite.Run("the replica", mgr.Start),
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		health:  "http://" + health,
		shoots:  shoots,
	}
	replicas = append(replicas, r)
	return r
}

func (r *replica) leads() bool {
	select {
	case <-r.shoots.Registered():
		return true
	default:
		return false
	}
}

// ready returns why the replica is not ready, or nil.
func (r *replica) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.health+"/readyz/webhook-server", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%d: %s", response.StatusCode, body)
	}
	return nil
}

// serves returns the certificate that the replica serves.
func (r *replica) serves() (*x509.Certificate, error) {
	conn, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	certs := conn.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return nil, errors.New("no certificate")
	}
	return certs[0], nil
}
