// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const fieldOwner = client.FieldOwner("landscape")

// Config reads a kubeconfig for a program that may ask often.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = 100, 200
	return config, nil
}

// Client returns a client for the runtime cluster that reads and writes directly.
func Client(kubeconfig string) (client.WithWatch, error) {
	config, err := Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting with %s: %w", kubeconfig, err)
	}
	return c, nil
}

// Apply applies the objects by server-side apply. A fresh API server may not know its own newest kinds and roles for a
// moment, which is waited for.
func Apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		var last error
		err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			last = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership)
			if last == nil {
				return true, nil
			}
			// What is wrong with the object itself doesn't get better.
			if apierrors.IsInvalid(last) || apierrors.IsBadRequest(last) {
				return false, last
			}
			return false, nil
		})
		if err != nil {
			if wait.Interrupted(err) && last != nil {
				err = last
			}
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// WaitNodeReady waits until the node is Ready, and says which of its conditions keeps it if that takes too long.
func WaitNodeReady(ctx context.Context, c client.Client, name string, timeout time.Duration) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		node := &corev1.Node{}
		if last = c.Get(ctx, client.ObjectKey{Name: name}, node); last != nil {
			return false, nil
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				last = fmt.Errorf("%s: %s", condition.Reason, condition.Message)
				return condition.Status == corev1.ConditionTrue, nil
			}
		}
		last = fmt.Errorf("the node has no condition Ready yet")
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting %s for node %s to be Ready: %w", timeout, name, last)
	}
	return nil
}

// LacksSysResource reports whether this machine has no CAP_SYS_RESOURCE to give, as in some virtual machines and containers.
func LacksSysResource() (bool, error) {
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, fmt.Errorf("reading the capabilities: %w", err)
	}
	return lacksSysResource(string(content))
}

func lacksSysResource(status string) (bool, error) {
	const sysResource = 24
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, "CapBnd:")
		if !found {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return false, fmt.Errorf("reading the capabilities: %w", err)
		}
		return bits&(1<<sysResource) == 0, nil
	}
	return false, fmt.Errorf("reading the capabilities: /proc/self/status has no CapBnd")
}
