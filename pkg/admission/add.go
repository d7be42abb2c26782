// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"net"
	"net/netip"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
)

// Name is the name of the deployment, its Service, its ServiceAccount in the garden runtime cluster and its registrations
// in the virtual garden, as charts/admission-local has it.
const Name = "gardener-extension-admission-local"

// AddToManager adds the webhooks to a manager of the virtual garden. The options need no webhooks and no names, and their
// URL defaults to the Service: the virtual garden knows no Services of the garden runtime cluster. Shoots may have nodes in
// nodeRanges besides private ranges.
//
// Needed permissions beside those of webhook.AddToManager: get on CloudProfiles, NamespacedCloudProfiles, Seeds,
// CredentialsBindings, SecretBindings, Secrets, InternalSecrets and WorkloadIdentities of the virtual garden.
func AddToManager(mgr manager.Manager, opts webhook.Options, nodeRanges ...netip.Prefix) error {
	opts, err := complete(mgr, opts, nodeRanges...)
	if err != nil {
		return err
	}
	_, err = webhook.AddToManager(mgr, opts)
	return err
}

func complete(mgr manager.Manager, opts webhook.Options, nodeRanges ...netip.Prefix) (webhook.Options, error) {
	opts.Name, opts.Identity = Name, Name
	if opts.URL == "" {
		opts.URL = net.JoinHostPort(Name+"."+opts.Namespace+".svc", strconv.Itoa(opts.ServicePort))
	}
	var err error
	opts.Webhooks, err = newWebhooks(mgr, mgr.GetAPIReader(), nodeRanges...)
	return opts, err
}
