// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
)

// shootKubeconfigLifetime is how long a kubeconfig of a Shoot is valid.
const shootKubeconfigLifetime = 24 * time.Hour

// PrintKubeconfig writes a kubeconfig to Out that works on this machine: of the runtime cluster, of the virtual garden for
// "virtual-garden", or of the Shoot NAME or NAMESPACE/NAME.
func (l Landscape) PrintKubeconfig(ctx context.Context, of string) error {
	var content []byte
	var err error
	switch of {
	case "":
		content, err = os.ReadFile(l.Layout.Kubeconfig())
	case "virtual-garden":
		content, err = os.ReadFile(l.Layout.VirtualKubeconfig())
	default:
		if _, err = os.Stat(l.Layout.VirtualKubeconfig()); err == nil {
			content, err = l.shootKubeconfig(ctx, of)
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no such cluster yet: %w; bring it up with make up", err)
	}
	if err != nil {
		return err
	}
	_, err = l.Out.Write(content)
	return err
}

// shootKubeconfig asks Gardener for an admin's kubeconfig of a Shoot (subresource shoots/adminkubeconfig).
func (l Landscape) shootKubeconfig(ctx context.Context, of string) ([]byte, error) {
	namespace, name, found := strings.Cut(of, "/")
	if !found {
		namespace, name = "garden-local", of
	}
	c, err := cluster.Client(l.Layout.VirtualKubeconfig())
	if err != nil {
		return nil, err
	}
	shoot := &unstructured.Unstructured{}
	shoot.SetGroupVersionKind(shoots)
	shoot.SetNamespace(namespace)
	shoot.SetName(name)
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.gardener.cloud/v1alpha1", "kind": "AdminKubeconfigRequest",
		"spec": map[string]any{"expirationSeconds": int64(shootKubeconfigLifetime.Seconds())},
	}}
	if err := c.SubResource("adminkubeconfig").Create(ctx, shoot, request); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Shoot %s/%s; list them with: %s --kubeconfig %s get shoots -A", namespace, name, l.Layout.Kubectl(), l.Layout.VirtualKubeconfig())
	} else if err != nil {
		return nil, fmt.Errorf("requesting a kubeconfig of Shoot %s/%s: %w", namespace, name, err)
	}
	encoded, _, _ := unstructured.NestedString(request.Object, "status", "kubeconfig")
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of Shoot %s/%s: %w", namespace, name, err)
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of Shoot %s/%s: %w", namespace, name, err)
	}
	if err := reachFromHere(config, l.Layout.Network.HostServicesIP()); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of Shoot %s/%s: %w", namespace, name, err)
	}
	return clientcmd.Write(*config)
}

// next ends an `up` that succeeded with what to type next.
func (l Landscape) next() {
	kubectl := l.Layout.Kubectl()
	_, _ = fmt.Fprintf(l.Out, "\nThe landscape is up to step %s. What to type next:\n", l.until)
	lines := [][2]string{
		{"make status", "what runs, and how it is"},
		{fmt.Sprintf("%s --kubeconfig %s get pods -A", kubectl, l.Layout.Kubeconfig()), "the runtime cluster, which is the seed as well"},
	}
	if _, err := os.Stat(l.Layout.VirtualKubeconfig()); err == nil {
		lines = append(lines,
			[2]string{fmt.Sprintf("%s --kubeconfig %s get seeds,shoots -A", kubectl, l.Layout.VirtualKubeconfig()), "the virtual garden"},
			[2]string{l.Layout.Binary("landscape") + " kubeconfig local > local.kubeconfig", "a kubeconfig of the Shoot local"})
	}
	lines = append(lines, [2]string{"make down", "take everything away"})
	for _, line := range lines {
		_, _ = fmt.Fprintf(l.Out, "  # %s\n  %s\n", line[1], line[0])
	}
	_, _ = fmt.Fprintln(l.Out, "More: docs/usage/quick-start.md")
}
