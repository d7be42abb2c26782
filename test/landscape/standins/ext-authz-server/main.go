// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command ext-authz-server stands in for Gardener's server of that name, whose module can't be had. It knows who may see the
// dashboards behind the ingress gateway: the file /secrets/NAME has user and bcrypt hash (user:hash) for the hosts whose first
// label is NAME. The original speaks Envoy's protocol of external authorization, with TLS; this one answers the stand-in of the
// gateway by plain HTTP, 200 or 401.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
)

func main() {
	program.Main(func(ctx context.Context) error {
		secrets, err := os.OpenRoot("/secrets")
		if err != nil {
			return fmt.Errorf("opening the secrets: %w", err)
		}
		return program.Serve(ctx, "tcp", ":10000", authenticator{secrets})
	})
}

// authenticator answers for the credentials in a directory.
type authenticator struct{ secrets *os.Root }

func (a authenticator) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	if !a.allowed(request) {
		response.WriteHeader(http.StatusUnauthorized)
	}
}

func (a authenticator) allowed(request *http.Request) bool {
	user, password, given := request.BasicAuth()
	host, _, _ := strings.Cut(request.Host, ".")
	if !given || host == "" {
		return false
	}
	credentials, err := a.secrets.ReadFile(host)
	name, hash, found := bytes.Cut(bytes.TrimSpace(credentials), []byte(":"))
	return err == nil && found && string(name) == user && bcrypt.CompareHashAndPassword(hash, []byte(password)) == nil
}
