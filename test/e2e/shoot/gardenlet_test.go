// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	seedmanagementv1alpha1 "github.com/gardener/gardener/pkg/apis/seedmanagement/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/chart"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// registryOnHost is where this machine finds the registry that the cluster calls by another name.
const registryOnHost = "127.0.0.1:5001"

// gardenletSpecs are those of gardenlet, which minds itself.
func gardenletSpecs() {
	It("upgrades itself to another version of its chart", specPatience, func(ctx SpecContext) {
		gardenlet := landscape.Named[*seedmanagementv1alpha1.Gardenlet](gardenNamespace, seedName)
		Expect(g.Client.Get(ctx, client.ObjectKeyFromObject(gardenlet), gardenlet)).To(Succeed())
		before := gardenlet.Spec.Deployment.Helm.OCIRepository
		deployment := gardenletDeployment()
		Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		labelBefore := deployment.Labels["chart"]

		By("pushing its chart as another version")
		version := fmt.Sprintf("99.0.%d", time.Now().Unix())
		after := gardencorev1.OCIRepository{Ref: new(pushAs(ctx, before.GetURL(), version))}
		Expect(labelBefore).NotTo(Equal("gardenlet-" + version))

		DeferCleanup(func(ctx SpecContext) {
			setChart(ctx, gardenlet, before)
			eventuallyDeployed(ctx, gardenlet, before.GetURL(), labelBefore)
		})
		timed("gardenlet", "upgrade", func() {
			setChart(ctx, gardenlet, after)
			eventuallyDeployed(ctx, gardenlet, after.GetURL(), "gardenlet-"+version)
		})
	})
}

// setChart has a Gardenlet name another chart.
func setChart(ctx context.Context, gardenlet *seedmanagementv1alpha1.Gardenlet, repository gardencorev1.OCIRepository) {
	GinkgoHelper()
	Expect(g.Client.Get(ctx, client.ObjectKeyFromObject(gardenlet), gardenlet)).To(Succeed())
	patch := client.MergeFrom(gardenlet.DeepCopy())
	gardenlet.Spec.Deployment.Helm.OCIRepository = repository
	Expect(g.Client.Patch(ctx, gardenlet, patch)).To(Succeed())
}

// eventuallyDeployed waits until gardenlet is what the chart makes of it, says so, and the seed is ready again.
func eventuallyDeployed(ctx context.Context, gardenlet *seedmanagementv1alpha1.Gardenlet, url, label string) {
	GinkgoHelper()
	deployment := gardenletDeployment()
	Eventually(func() (map[string]string, error) {
		deployment = gardenletDeployment()
		err := l.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
		return deployment.Labels, err
	}).WithContext(ctx).Should(HaveKeyWithValue("chart", label))
	landscape.EventuallyReady(ctx, l.Client, deployment)
	Expect(deployment).To(HaveField("Spec.Template.Labels", HaveKeyWithValue("chart", label)))
	Eventually(func() ([]appsv1.ReplicaSet, error) { return replicaSets(ctx, label) }).WithContext(ctx).Should(HaveLen(1), "others are scaled down")

	Eventually(func() (*seedmanagementv1alpha1.Gardenlet, error) {
		fresh := &seedmanagementv1alpha1.Gardenlet{}
		return fresh, g.Client.Get(ctx, client.ObjectKeyFromObject(gardenlet), fresh)
	}).WithContext(ctx).Should(And(
		WithTransform(func(g *seedmanagementv1alpha1.Gardenlet) bool { return g.Status.ObservedGeneration == g.Generation }, BeTrue()),
		HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", seedmanagementv1alpha1.GardenletReconciled),
			HaveField("Status", gardencorev1beta1.ConditionTrue),
			HaveField("Message", ContainSubstring(url)),
		))),
	))
	Eventually(seedProblem(ctx, landscape.Named[*gardencorev1beta1.Seed]("", seedName))).WithContext(ctx).Should(BeEmpty(), "the seed is ready")
}

// replicaSets are those of gardenlet that run pods of this version of the chart; it is an error if any other one does.
func replicaSets(ctx context.Context, label string) ([]appsv1.ReplicaSet, error) {
	list := &appsv1.ReplicaSetList{}
	if err := l.Client.List(ctx, list, client.InNamespace(gardenNamespace), gardenletLabels); err != nil {
		return nil, err
	}
	var running []appsv1.ReplicaSet
	for _, replicaSet := range list.Items {
		if replicaSet.Status.Replicas == 0 {
			continue
		}
		if replicaSet.Labels["chart"] != label {
			return nil, fmt.Errorf("%s still has pods", replicaSet.Name)
		}
		running = append(running, replicaSet)
	}
	return running, nil
}

// pushAs pushes the chart that is at a URL once more, as another version, and returns the reference.
func pushAs(ctx context.Context, url, version string) string {
	GinkgoHelper()
	cluster, path, _ := strings.Cut(strings.TrimPrefix(url, "oci://"), "/")
	reference, err := name.ParseReference(registryOnHost+"/"+path, name.Insecure)
	Expect(err).NotTo(HaveOccurred())
	archive := repackaged(pull(ctx, reference), version)

	publisher, err := oci.NewClient(oci.Options{PlainHTTP: true})
	Expect(err).NotTo(HaveOccurred())
	tag := reference.Context().Tag(version).Name()
	_, err = archive.Push(ctx, publisher, tag)
	Expect(err).NotTo(HaveOccurred())
	return cluster + strings.TrimPrefix(tag, registryOnHost)
}

// pull gets a chart from a registry.
func pull(ctx context.Context, reference name.Reference) *helmchart.Chart {
	GinkgoHelper()
	img, err := remote.Image(reference, remote.WithContext(ctx))
	Expect(err).NotTo(HaveOccurred(), reference.String())
	layers, err := img.Layers()
	Expect(err).NotTo(HaveOccurred())
	for _, layer := range layers {
		mediaType, err := layer.MediaType()
		Expect(err).NotTo(HaveOccurred())
		if mediaType == chart.MediaTypeContent {
			archive, err := layer.Compressed()
			Expect(err).NotTo(HaveOccurred())
			loaded, err := loader.LoadArchive(archive)
			Expect(errors.Join(err, archive.Close())).To(Succeed())
			return loaded
		}
	}
	Fail(reference.String() + " is no chart")
	return nil
}

var chartVersion = regexp.MustCompile(`(?m)^version:.*$`)

// repackaged is a chart with another version, packaged.
func repackaged(loaded *helmchart.Chart, version string) *chart.Archive {
	GinkgoHelper()
	folder, err := os.MkdirTemp("", "chart")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(os.RemoveAll(folder)).To(Succeed()) }()
	for _, file := range loaded.Raw {
		data := file.Data
		if file.Name == "Chart.yaml" {
			data = chartVersion.ReplaceAll(data, []byte("version: "+version))
		}
		path := filepath.Join(folder, file.Name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		Expect(os.WriteFile(path, data, 0o600)).To(Succeed())
	}
	archive, err := chart.Package(folder)
	Expect(err).NotTo(HaveOccurred())
	Expect(archive.Version).To(Equal(version))
	return archive
}

func TestRepackagedChartDiffersInItsVersionOnly(t *testing.T) {
	RegisterTestingT(t)
	raw := []*helmchart.File{
		{Name: "Chart.yaml", Data: []byte("apiVersion: v1\nname: gardenlet\nversion: 0.1.0\ndescription: version 7\n")},
		{Name: "templates/some.yaml", Data: []byte("version: as it was\n")},
	}
	archive := repackaged(&helmchart.Chart{Raw: raw}, "99.0.1")
	loaded, err := loader.LoadArchive(bytes.NewReader(archive.Content))
	Expect(err).NotTo(HaveOccurred())
	Expect(loaded.Metadata).To(And(HaveField("Name", "gardenlet"), HaveField("Version", "99.0.1"), HaveField("Description", "version 7")))
	Expect(loaded.Templates).To(ConsistOf(HaveField("Data", BeEquivalentTo("version: as it was\n"))))
}
