// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionssecretsmanager "github.com/gardener/gardener/extensions/pkg/util/secret/manager"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

const (
	// secretsIdentity tells this controller's secrets from those of other managers in the namespace.
	secretsIdentity = "provider-local-controlplane"

	authorityName   = "ca-provider-local-controlplane"
	serverName      = cloudController + "-server"
	dummyServerName = "provider-local-example-server"
	dummyClientName = "provider-local-example-client"
	dummyAuthName   = "provider-local-example-auth"

	// dummyCertificateValidity has certificates renewed after 20 days: the manager does so ten days before they expire.
	dummyCertificateValidity = 30 * 24 * time.Hour
	// dummyAuthValidity has the credentials renewed by the first reconcile after an hour.
	dummyAuthValidity = (10*24 + 1) * time.Hour
)

// secretConfigs are the authority, the certificate of cloud-controller and three secrets which nobody uses: they are for
// the tests of Gardener's integration of the secrets manager (document provider-local, section ControlPlane). The
// validities are short enough for them to be renewed in a landscape's life. The manager changes the configs, so each
// reconcile needs its own.
func secretConfigs(namespace string) []extensionssecretsmanager.SecretConfigWithOptions {
	signed := []secretsmanager.GenerateOption{secretsmanager.SignedByCA(authorityName)}
	validity := dummyCertificateValidity
	return []extensionssecretsmanager.SecretConfigWithOptions{
		{
			Config:  &secretsutils.CertificateSecretConfig{Name: authorityName, CommonName: authorityName, CertType: secretsutils.CACert},
			Options: []secretsmanager.GenerateOption{secretsmanager.Persist()},
		},
		{
			Config: &secretsutils.CertificateSecretConfig{
				Name: serverName, CommonName: cloudController, DNSNames: kubernetesutils.DNSNamesForService(cloudController, namespace),
				CertType: secretsutils.ServerCert, SkipPublishingCACertificate: true,
			},
			Options: signed,
		},
		{
			Config: &secretsutils.CertificateSecretConfig{
				Name: dummyServerName, CommonName: dummyServerName, DNSNames: kubernetesutils.DNSNamesForService(dummyServerName, namespace),
				CertType: secretsutils.ServerCert, SkipPublishingCACertificate: true, Validity: &validity,
			},
			Options: signed,
		},
		{
			Config: &secretsutils.CertificateSecretConfig{
				Name: dummyClientName, CommonName: dummyClientName, Organization: []string{"provider-local"},
				CertType: secretsutils.ClientCert, SkipPublishingCACertificate: true, Validity: &validity,
			},
			Options: signed,
		},
		{
			Config:  &secretsutils.BasicAuthSecretConfig{Name: dummyAuthName, Format: secretsutils.BasicAuthFormatNormal, Username: "example", PasswordLength: 32},
			Options: []secretsmanager.GenerateOption{secretsmanager.Validity(dummyAuthValidity)},
		},
	}
}

// generateSecrets makes the secrets that are missing, in the phase of the CA rotation in which the shoot is. Of the
// manager it returns, Cleanup deletes those not used any more.
//
// It costs one request if nothing changed, and five more (read, look for one to take over, create, label, delete) for the
// credentials that are renewed every time.
func (a *actuator) generateSecrets(ctx context.Context, log logr.Logger, cluster *extensionscontroller.Cluster) (secretsmanager.Interface, error) {
	namespace := cluster.ObjectMeta.Name
	listed, err := listSecrets(ctx, a.client, namespace)
	if err != nil {
		return nil, err
	}

	configs := a.secretConfigs(namespace)
	manager, err := extensionssecretsmanager.SecretsManagerForCluster(ctx, log, a.Clock, listed, cluster, secretsIdentity, configs)
	if err != nil {
		return nil, fmt.Errorf("reading the secrets of namespace %s: %w", namespace, err)
	}
	if _, err := extensionssecretsmanager.GenerateAllSecrets(ctx, manager, configs); err != nil {
		return nil, fmt.Errorf("generating the secrets of namespace %s: %w", namespace, err)
	}
	return manager, nil
}

// deleteSecrets deletes all that generateSecrets has ever made. It needs no Cluster.
func (a *actuator) deleteSecrets(ctx context.Context, log logr.Logger, namespace string) error {
	manager, err := secretsmanager.New(ctx, log, a.Clock, a.client, secretsIdentity,
		secretsmanager.WithNamespaces(namespace), secretsmanager.WithoutAutomaticSecretRenewal())
	if err != nil {
		return err
	}
	// It has generated none, so it takes all for those that are not used any more.
	if err := manager.Cleanup(ctx); err != nil {
		return fmt.Errorf("deleting the secrets of namespace %s: %w", namespace, err)
	}
	return nil
}

// listedSecrets answers the secrets manager from one list: it reads each of its secrets by name and lists them twice or
// more in a run, and Secrets are not cached. What a run itself creates it does not read again, and does not delete.
type listedSecrets struct {
	client.Client
	namespace string
	items     []corev1.Secret
}

func listSecrets(ctx context.Context, c client.Client, namespace string) (*listedSecrets, error) {
	list := &corev1.SecretList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{
		secretsmanager.LabelKeyManagedBy:       secretsmanager.LabelValueSecretsManager,
		secretsmanager.LabelKeyManagerIdentity: secretsIdentity,
	}); err != nil {
		return nil, fmt.Errorf("listing the secrets of namespace %s: %w", namespace, err)
	}
	return &listedSecrets{Client: c, namespace: namespace, items: list.Items}, nil
}

// List answers for this identity's Secrets.
func (l *listedSecrets) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	list, ok := into.(*corev1.SecretList)
	if !ok || options.Namespace != l.namespace || !isOurs(options.LabelSelector) {
		return l.Client.List(ctx, into, opts...)
	}

	list.Items = nil
	for i := range l.items {
		if options.LabelSelector.Matches(labels.Set(l.items[i].Labels)) {
			list.Items = append(list.Items, *l.items[i].DeepCopy())
		}
	}
	return nil
}

func isOurs(selector labels.Selector) bool {
	if selector == nil {
		return false
	}
	identity, ok := selector.RequiresExactMatch(secretsmanager.LabelKeyManagerIdentity)
	return ok && identity == secretsIdentity
}

// Get answers for a Secret that was listed. Others are asked for: there may be one without labels.
func (l *listedSecrets) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if secret, ok := into.(*corev1.Secret); ok && key.Namespace == l.namespace {
		for i := range l.items {
			if l.items[i].Name == key.Name {
				l.items[i].DeepCopyInto(secret)
				return nil
			}
		}
	}
	return l.Client.Get(ctx, key, into, opts...)
}
