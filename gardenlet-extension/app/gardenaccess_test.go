// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

func TestTheSeedIsAnnotatedWithTheTimeOfAccess(t *testing.T) {
	g := NewWithT(t)
	kinds := scheme.Scheme
	g.Expect(gardencorev1beta1.AddToScheme(kinds)).To(Succeed())
	seed := &gardencorev1beta1.Seed{}
	seed.Name, seed.Annotations = "local", map[string]string{"other": "kept"}
	garden := fake.NewClientBuilder().WithScheme(kinds).WithObjects(seed).Build()

	before := time.Now().Truncate(time.Second)
	g.Expect(annotateSeed(t.Context(), garden, "local")).To(Succeed())
	g.Expect(garden.Get(t.Context(), client.ObjectKeyFromObject(seed), seed)).To(Succeed())
	g.Expect(seed.Annotations).To(HaveKeyWithValue("other", "kept"))
	at, err := time.Parse(time.RFC3339, seed.Annotations[gardenAccessAnnotation])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(at).To(BeTemporally(">=", before))

	g.Expect(annotateSeed(t.Context(), garden, "another")).To(MatchError(ContainSubstring("annotating Seed another in the garden")))
}

func TestWithoutAKubeconfigOfTheGardenNothingIsAccessed(t *testing.T) {
	t.Setenv(gardenKubeconfig, "")
	NewWithT(t).Expect(addGardenAccess(nil)).To(Succeed())
}

func TestAKubeconfigThatCannotBeReadIsAnErrorThatNamesIt(t *testing.T) {
	t.Setenv(gardenKubeconfig, t.TempDir()+"/none")
	NewWithT(t).Expect(addGardenAccess(nil)).To(MatchError(And(ContainSubstring(gardenKubeconfig), ContainSubstring("none"))))
}
