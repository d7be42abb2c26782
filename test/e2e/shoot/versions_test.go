// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/Masterminds/semver/v3"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// patchVersions are two versions of Kubernetes of the CloudProfile, of which the second is the newest patch release of the
// minor version that the first is of as well.
func patchVersions(ctx context.Context) (before, after string) {
	GinkgoHelper()
	profile := landscape.Named[*gardencorev1beta1.CloudProfile]("", cloudProfile)
	Expect(g.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile)).To(Succeed())
	var versions []string
	for _, version := range profile.Spec.Kubernetes.Versions {
		versions = append(versions, version.Version)
	}
	before, after, err := newestPatch(versions)
	Expect(err).NotTo(HaveOccurred(), "the CloudProfile has a patch release")
	return before, after
}

// newestPatch picks the newest version, and the one before it of the same minor version.
func newestPatch(versions []string) (before, after string, err error) {
	var parsed []*semver.Version
	for _, version := range versions {
		v, err := semver.NewVersion(version)
		if err != nil {
			return "", "", fmt.Errorf("version %s: %w", version, err)
		}
		parsed = append(parsed, v)
	}
	slices.SortFunc(parsed, (*semver.Version).Compare)
	for i := len(parsed) - 1; i > 0; i-- {
		if parsed[i].Major() == parsed[i-1].Major() && parsed[i].Minor() == parsed[i-1].Minor() {
			return parsed[i-1].String(), parsed[i].String(), nil
		}
	}
	return "", "", fmt.Errorf("no two of %v are of the same minor version", versions)
}

func TestNewestPatch(t *testing.T) {
	for name, test := range map[string]struct {
		versions      []string
		before, after string
		fails         bool
	}{
		"of two versions it is these two":                   {versions: []string{"1.36.3", "1.36.2"}, before: "1.36.2", after: "1.36.3"},
		"numbers are not compared as text":                  {versions: []string{"1.36.10", "1.36.9", "1.36.2"}, before: "1.36.9", after: "1.36.10"},
		"a minor version with one release is passed over":   {versions: []string{"1.37.0", "1.36.3", "1.36.2"}, before: "1.36.2", after: "1.36.3"},
		"one version has no patch release":                  {versions: []string{"1.36.3"}, fails: true},
		"what is no version is an error":                    {versions: []string{"1.36.3", "newest"}, fails: true},
		"two minor versions with one each have none either": {versions: []string{"1.36.3", "1.35.3"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before, after, err := newestPatch(test.versions)
			g.Expect(err != nil).To(Equal(test.fails))
			g.Expect([]string{before, after}).To(Equal([]string{test.before, test.after}))
		})
	}
}
