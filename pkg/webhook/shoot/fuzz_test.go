// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-provider-local/test/limitstest"
)

func FuzzHandle(f *testing.F) {
	configMap := func(config string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy-config-12345678"},
			Data:       map[string]string{"config.yaml": config},
		}
	}
	limitstest.Fuzz(f, newWebhook(f).Webhook.Handler, limitstest.About(configMap("")),
		configMap(config),
		// Decoded, this is 300 MB; with a longer text, or aliases of aliases, it is what no machine has.
		configMap("a: &a "+strings.Repeat("x", 1<<15)+"\nb: ["+strings.Repeat("*a,", 10000)+"]\n"),
		configMap("a: "+strings.Repeat("[", 20000)),
		configMap(strings.Repeat("a: {", 10000)),
		configMap(strings.Repeat("? ", 10000)))
}
