// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// full has room for nothing but the folder at its root.
const full = "size=1m,nr_inodes=1,mode=0770"

// makeRoom gives a file system of the process room.
func makeRoom(ctx context.Context, process *environment.Process, directory string) {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "nsenter", "--mount=/proc/"+fmt.Sprint(process.ID())+"/ns/mnt", "mount", "-o", "remount,nr_inodes=1000", directory).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
}

var _ = Describe("A disk that is full", func() {
	BeforeEach(func() {
		if os.Getuid() != 0 {
			Skip("mounting a small file system needs root")
		}
	})

	It("keeps buckets from being made, says so on them, and lets them be made when there is room", func(ctx SpecContext) {
		i := newInstance()
		i.config.Backup.Directory = GinkgoT().TempDir()
		i.mounts = []environment.Tmpfs{{Directory: i.config.Backup.Directory, Options: full}}
		By("starting with a disk that is full already")
		i.start(ctx)

		n := number("FAULT_OBJECTS", 12) / 4
		var all []*extensionsv1alpha1.BackupBucket
		for j := range n {
			all = append(all, newBucket(fmt.Sprintf("full-%d", j)))
			Expect(c.Create(ctx, all[j])).To(Succeed())
		}
		get := func(bucket *extensionsv1alpha1.BackupBucket) func() (extensionsv1alpha1.Object, error) {
			return func() (extensionsv1alpha1.Object, error) {
				found := &extensionsv1alpha1.BackupBucket{}
				return found, c.Get(ctx, client.ObjectKeyFromObject(bucket), found)
			}
		}
		for _, bucket := range all {
			Eventually(get(bucket)).Should(HaveField("Status.LastError", HaveValue(HaveField("Description", And(ContainSubstring("no space left on device"), ContainSubstring("make room"))))))
		}

		By("deleting one that was never made")
		Expect(c.Delete(ctx, all[n-1])).To(Succeed())
		Eventually(func() error { _, err := get(all[n-1])(); return err }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		all = all[:n-1]

		makeRoom(ctx, i.process, i.config.Backup.Directory)
		for _, bucket := range all {
			Eventually(get(bucket)).Should(matchers.HaveSucceeded(), "nobody has to ask for it")
			Expect(i.process.Path(filepath.Join(i.config.Backup.Directory, bucket.Name))).To(BeADirectory())
		}
		Expect(os.ReadDir(i.process.Path(i.config.Backup.Directory))).To(HaveLen(len(all)))
		report("%d BackupBuckets", n)
		for _, bucket := range all {
			Expect(c.Delete(ctx, bucket)).To(Succeed())
		}
		Eventually(func() ([]os.DirEntry, error) { return os.ReadDir(i.process.Path(i.config.Backup.Directory)) }).Should(BeEmpty())
	}, SpecTimeout(3*time.Minute))

	It("of CoreDNS does not keep it from serving, and has its state when there is room", func(ctx SpecContext) {
		i := newInstance()
		i.start(ctx)
		f := newFleet(ctx, "kept", number("FAULT_OBJECTS", 12))
		f.do(ctx, f.objects, creation)
		f.isAsWanted(ctx)

		dir, port := GinkgoT().TempDir(), suite.FreePort()
		state := filepath.Join(dir, "state")
		Expect(os.Mkdir(state, 0o700)).To(Succeed())
		kubeconfig, err := env.ServiceAccountKubeconfig(dir, coreDNSNamespace, "coredns")
		Expect(err).NotTo(HaveOccurred())
		server, err := environment.StartCoreDNS(corefile, kubeconfig, coreDNSNamespace, dir, port, GinkgoWriter, environment.Tmpfs{Directory: state, Options: full})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(server.Kill(ctx)).To(Succeed()) })
		for _, o := range f.objects {
			if o.name == "DNSRecord" {
				Eventually(resolve).WithContext(ctx).WithArguments(server.Address, o).Should(Equal([]string{o.address()}))
			}
		}
		// It is written every 2 seconds.
		written := func() error { _, err := os.Stat(server.Path(filepath.Join(state, "state.json"))); return err }
		Consistently(written).WithTimeout(3 * time.Second).Should(MatchError(os.ErrNotExist))

		makeRoom(ctx, server.Process, state)
		Eventually(written).Should(Succeed(), "though nothing has changed since")
		report("%d DNSRecords", len(f.objects)/len(kinds))
		f.remove(ctx)
	}, SpecTimeout(5*time.Minute))
})
