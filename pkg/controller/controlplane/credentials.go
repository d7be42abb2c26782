// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"

	"golang.org/x/crypto/bcrypt"

	"github.com/gardener/gardener/pkg/utils"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
)

// credentialsConfig is a user name with a random password for the secrets manager, with the data that the library's
// BasicAuthSecretConfig has. That one hashes the password slowly, which protects passwords that can be guessed, and takes
// a tenth of a second of CPU time. This one is of random characters, too many to try.
type credentialsConfig struct {
	Name           string
	Username       string
	PasswordLength int
}

var _ secretsutils.ConfigInterface = &credentialsConfig{}

// GetName implements secretsutils.ConfigInterface.
func (c *credentialsConfig) GetName() string { return c.Name }

// Generate implements secretsutils.ConfigInterface.
func (c *credentialsConfig) Generate() (secretsutils.DataInterface, error) {
	password, err := utils.GenerateRandomString(c.PasswordLength)
	if err != nil {
		return nil, fmt.Errorf("making a password: %w", err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		return nil, fmt.Errorf("hashing the password: %w", err)
	}
	return secretData{
		secretsutils.DataKeyUserName: []byte(c.Username),
		secretsutils.DataKeyPassword: []byte(password),
		secretsutils.DataKeyAuth:     fmt.Appendf(nil, "%s:%s", c.Username, hash),
	}, nil
}
