// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/utils/secrets"
)

// ErrNoCredentials is what a Connector says of a shoot without credentials: it has no API server yet, or no more.
var ErrNoCredentials = errors.New("the shoot has no credentials for us")

// Connector returns the access to the API server of the shoot with a namespace in the seed, as it is at present.
type Connector func(ctx context.Context, namespace string) (*rest.Config, error)

// FromSecrets returns a Connector for the credentials that gardenlet leaves in the namespace of a shoot: the Secret
// gardener-internal, or gardener if there is none, or if the variable GARDENER_SHOOT_CLIENT is "external" (as Gardener's
// extension library has it in NewClientForShoot, which cannot be used itself: it hands out a client that forgets its config's
// changes). The reader asks the API server or a cache of these Secrets.
func FromSecrets(reader client.Reader) Connector {
	names := []string{v1beta1constants.SecretNameGardenerInternal, v1beta1constants.SecretNameGardener}
	if os.Getenv("GARDENER_SHOOT_CLIENT") == "external" {
		names = names[1:]
	}
	return func(ctx context.Context, namespace string) (*rest.Config, error) {
		for _, name := range names {
			secret := &corev1.Secret{}
			err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("reading the credentials in Secret %s/%s: %w", namespace, name, err)
			}
			config, err := kubernetesclient.RESTConfigFromKubeconfig(secret.Data[secrets.DataKeyKubeconfig])
			if err != nil {
				return nil, fmt.Errorf("reading the kubeconfig in Secret %s/%s: %w", namespace, name, err)
			}
			return config, nil
		}
		return nil, fmt.Errorf("shoot %s: %w", namespace, ErrNoCredentials)
	}
}

// keyOf changes when an open connection is of no use any more, because of another address or other certificates. Tokens
// come and go without it.
func keyOf(config *rest.Config) string {
	tls := config.TLSClientConfig
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %v", config.Host, tls.CAData, tls.CertData, tls.KeyData, tls.ServerName, tls.Insecure)))
}

// newClient returns a client without a limit of its own: how many requests are under way is limited by who sends them.
// Tokens are taken from the Secret anew when the API server refuses the one at hand, as gardener-resource-manager renews them.
func newClient(config *rest.Config, namespace string, connect Connector) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.RateLimiter = nil
	config.UserAgent = "gardener-extension-provider-local/mock-nodes"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if token := config.BearerToken; token != "" {
		config.BearerToken = ""
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return &bearer{next: next, token: token, read: func(ctx context.Context) (*rest.Config, error) { return connect(ctx, namespace) }}
		})
	}
	return kubernetes.NewForConfig(config)
}

// readPause is how long a token that was refused is offered nevertheless before the Secret is read again.
const readPause = 5 * time.Second

// bearer puts the current token on requests. One that is refused is for its sender to send again, as all here do.
type bearer struct {
	next http.RoundTripper
	read func(context.Context) (*rest.Config, error)

	lock   sync.Mutex
	token  string
	isRead time.Time
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	b.lock.Lock()
	token := b.token
	b.lock.Unlock()
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := b.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		b.renew(request.Context(), token)
	}
	return response, err
}

// renew reads the token that comes after one that was refused. The requests that come meanwhile wait, but the Secret is read
// once for all of them.
func (b *bearer) renew(ctx context.Context, refused string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.token != refused || time.Since(b.isRead) < readPause {
		return
	}
	b.isRead = time.Now()
	if config, err := b.read(ctx); err == nil && config.BearerToken != "" {
		b.token = config.BearerToken
	}
}
