// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

// coreDNS starts our CoreDNS, once, with the Corefile of its chart, and returns its address.
func (w *World) coreDNS(ctx context.Context, config *configv1alpha1.ExtensionConfiguration) (string, error) {
	if w.coreDNSAddress != "" {
		return w.coreDNSAddress, nil
	}
	namespace := config.DNS.CoreDNS.Namespace
	if err := w.env.CreateNamespaces(ctx, namespace); err != nil {
		return "", err
	}
	corefile, err := renderCorefile(ctx, namespace, config.DNS.Zones)
	if err != nil {
		return "", err
	}
	dir, err := w.folder("coredns")
	if err != nil {
		return "", err
	}
	if err := w.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "coredns"}},
	}); client.IgnoreAlreadyExists(err) != nil {
		return "", err
	}
	kubeconfig, err := w.env.ServiceAccountKubeconfig(dir, namespace, "coredns")
	if err != nil {
		return "", err
	}
	logs, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return "", err
	}
	free, err := ports(1)
	if err != nil {
		return "", err
	}
	server, err := environment.StartCoreDNS(corefile, kubeconfig, namespace, dir, free[0], logs)
	if err != nil {
		return "", errors.Join(err, logs.Close())
	}
	w.stop = append(w.stop, func() error { return errors.Join(server.Kill(context.WithoutCancel(ctx)), logs.Close()) })
	w.coreDNSAddress = server.Address
	return w.coreDNSAddress, nil
}

func renderCorefile(ctx context.Context, namespace string, zones []string) (string, error) {
	renderer, err := chart.NewRenderer("v1.36.3")
	if err != nil {
		return "", err
	}
	objects, err := renderer.Render(ctx, chart.Embedded(components.FS, components.CoreDNS), chart.Release{Name: "coredns", Namespace: namespace},
		map[string]any{"image": "coredns:bench", "zones": anySlice(zones)})
	if err != nil {
		return "", err
	}
	for _, obj := range objects {
		if obj.GetObjectKind().GroupVersionKind().Kind != "ConfigMap" {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return "", err
		}
		configMap := &corev1.ConfigMap{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, configMap); err != nil {
			return "", err
		}
		if corefile := configMap.Data["Corefile"]; corefile != "" {
			return corefile, nil
		}
	}
	return "", errors.New("the chart of CoreDNS has no Corefile")
}

func anySlice(in []string) []any {
	out := make([]any, len(in))
	for i := range in {
		out[i] = in[i]
	}
	return out
}
