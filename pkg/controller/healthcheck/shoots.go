// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsconfigv1alpha1 "github.com/gardener/gardener/extensions/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener/extensions/pkg/util"
)

const (
	// shootsMax is how many clients are kept. What was not used for longest goes first.
	shootsMax = 512
	// requestTimeout is how long a shoot's API server may take for all its Nodes.
	requestTimeout = 5 * time.Second
	// pauseAfterFailure is how long a shoot's API server is left alone after it did not answer. Its Machines change a lot
	// just then.
	pauseAfterFailure = 15 * time.Second
)

// ShootClient makes a client for the API server of the shoot whose control plane is in a namespace. It need not know
// more than Nodes.
type ShootClient func(ctx context.Context, namespace string) (client.Client, error)

// newShootClient returns a ShootClient with the access that gardenlet gives to extensions: the Secret gardener-internal,
// or else gardener. The client makes no requests but those it is asked for, as it knows Nodes without discovery.
func newShootClient(seed client.Client) (ShootClient, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)

	return func(ctx context.Context, namespace string) (client.Client, error) {
		_, c, err := util.NewClientForShoot(ctx, seed, namespace, client.Options{Scheme: scheme, Mapper: mapper}, extensionsconfigv1alpha1.RESTOptions{})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("the Secret with the access to it is missing: %w", err)
		}
		return c, err
	}, nil
}

// shoots asks the API servers of shoots. It keeps a client for each of them until a request fails, and then takes the
// access anew from its Secret: that it was replaced shows by nothing else. So a request for Nodes costs no other one.
type shoots struct {
	open  ShootClient
	clock clock.Clock
	// known has a *shoot per namespace.
	known *lru.Cache
}

// shoot is what is known of one. It has a client or else an error.
type shoot struct {
	client client.Client
	err    error
	until  time.Time
}

func newShoots(open ShootClient, clock clock.Clock) *shoots {
	return &shoots{open: open, clock: clock, known: lru.New(shootsMax)}
}

// nodes returns the Nodes of the shoot in a namespace. It asks at most twice, with a new client the second time.
func (s *shoots) nodes(ctx context.Context, namespace string) ([]node, error) {
	known := s.get(namespace)
	if known.err != nil && s.clock.Now().Before(known.until) {
		return nil, known.err
	}
	if known.client != nil {
		if nodes, err := ask(ctx, known.client); err == nil {
			return nodes, nil
		}
	}

	c, nodes, err := s.askAnew(ctx, namespace)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		err = lasting(err)
		s.known.Add(namespace, shoot{err: err, until: s.clock.Now().Add(pauseAfterFailure)})
		return nil, err
	}
	s.known.Add(namespace, shoot{client: c})
	return nodes, nil
}

// forget drops what is known of the shoot in a namespace.
func (s *shoots) forget(namespace string) {
	s.known.Remove(namespace)
}

func (s *shoots) get(namespace string) shoot {
	value, ok := s.known.Get(namespace)
	if !ok {
		return shoot{}
	}
	known, _ := value.(shoot)
	return known
}

func (s *shoots) askAnew(ctx context.Context, namespace string) (client.Client, []node, error) {
	c, err := s.open(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := ask(ctx, c)
	return c, nodes, err
}

func ask(ctx context.Context, c client.Client) ([]node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	nodes, err := listNodes(ctx, c)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no answer within %s", requestTimeout)
	}
	return nodes, err
}

// lasting returns an error without what differs from one attempt to the next, the port of a connection and the time:
// each new message would be a new condition.
func lasting(err error) error {
	text := regexp.MustCompile(`\S+:\d+->`).ReplaceAllString(err.Error(), "")
	return errors.New(regexp.MustCompile(`current time \S+`).ReplaceAllString(text, "current time"))
}
