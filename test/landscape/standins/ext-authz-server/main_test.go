// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/bcrypt"
)

func TestAuthenticator(t *testing.T) {
	g := NewWithT(t)
	directory := filepath.Join(t.TempDir(), "secrets")
	g.Expect(os.Mkdir(directory, 0o700)).To(Succeed())
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	g.Expect(err).NotTo(HaveOccurred())
	for name, content := range map[string]string{"gu-local": "admin:" + string(hash), "broken": "admin", "../outside": "admin:" + string(hash)} {
		g.Expect(os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600)).To(Succeed())
	}
	root, err := os.OpenRoot(directory)
	g.Expect(err).NotTo(HaveOccurred())
	defer root.Close()

	for _, test := range []struct {
		name, host, user, password string
		expected                   int
	}{
		{"the user", "gu-local.ingress.local", "admin", "secret", http.StatusOK},
		{"nobody with another password", "gu-local.ingress.local", "admin", "other", http.StatusUnauthorized},
		{"nobody else", "gu-local.ingress.local", "root", "secret", http.StatusUnauthorized},
		{"nobody without a name", "gu-local.ingress.local", "", "", http.StatusUnauthorized},
		{"nobody at another host", "au-local.ingress.local", "admin", "secret", http.StatusUnauthorized},
		{"nobody by a broken file", "broken.ingress.local", "admin", "", http.StatusUnauthorized},
		{"nobody by a file elsewhere", "../outside", "admin", "secret", http.StatusUnauthorized},
		{"nobody without a host", ".local", "admin", "secret", http.StatusUnauthorized},
	} {
		t.Run("lets in "+test.name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			request.Host = test.host
			if test.user != "" {
				request.SetBasicAuth(test.user, test.password)
			}
			response := httptest.NewRecorder()
			authenticator{root}.ServeHTTP(response, request)
			NewWithT(t).Expect(response.Code).To(Equal(test.expected))
		})
	}
}
