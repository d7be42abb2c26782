// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits/limitstest"
)

func FuzzHandle(f *testing.F) {
	webhook, err := New(fakeManager{})
	NewWithT(f).Expect(err).NotTo(HaveOccurred())

	many := &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: RoleName},
	}
	for i := range 5000 {
		many.Rules = append(many.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{fmt.Sprint(i)}, Verbs: []string{"get"}})
	}
	long := many.DeepCopy()
	long.Rules = []rbacv1.PolicyRule{{APIGroups: strings.Split(strings.Repeat(",", 50000), ","), Resources: []string{"pods"}, Verbs: strings.Split(strings.Repeat("get,", 50000), ",")}}
	few := many.DeepCopy()
	few.Rules = few.Rules[:1]
	limitstest.Fuzz(f, webhook.Webhook.Handler, limitstest.About(many), few, many, long)
}
