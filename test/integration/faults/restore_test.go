// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lost is how many writes, at least, are in no backup.
const lost = 500

var _ = Describe("An etcd that is restored from an older backup", func() {
	It("takes no object with it for good, and nothing goes by what was afterwards", func(ctx SpecContext) {
		i := newInstance()
		i.start(ctx)
		f := newFleet(ctx, "restored", number("FAULT_OBJECTS", 12))
		f.do(ctx, append(f.some(0), f.some(1)...), creation, change)
		f.isAsWanted(ctx)

		By("making the backup")
		backup := filepath.Join(GinkgoT().TempDir(), "etcd")
		Expect(env.Restart(func(folder string) error { return os.CopyFS(backup, os.DirFS(folder)) })).To(Succeed())
		f.isAsWanted(ctx)
		Expect(i.process.Done()).NotTo(BeClosed(), "the API server was away for a moment")
		var then []object
		for _, o := range f.objects {
			then = append(then, *o)
		}

		By("changing, deleting and creating objects that are not in the backup like that")
		f.do(ctx, f.some(0), change)
		f.do(ctx, f.some(1), deletion)
		f.do(ctx, f.some(2), creation)
		f.isAsWanted(ctx)
		for n := range lost {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"write":"%d"}}}`, n)
			namespace := &corev1.Namespace{}
			namespace.Name = gardenNamespace
			Expect(c.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}

		By("restoring it")
		resourceManager.Stop()
		Expect(env.Restart(func(folder string) error {
			if err := os.RemoveAll(folder); err != nil {
				return err
			}
			return os.CopyFS(folder, os.DirFS(backup))
		})).To(Succeed())
		// It goes by what it remembers, too, so it is started again, as its pod would be.
		runResourceManager()
		Eventually(i.process.Done()).WithContext(ctx).WithTimeout(time.Minute).Should(BeClosed(), "the instance learns of it")
		Expect(i.process.ExitCode()).To(Equal(1))
		i.start(ctx)

		By("serving what is in the backup")
		for n := range then {
			// Folders are not in etcd: those of buckets and entries that were deleted are gone.
			then[n].filled = f.objects[n].filled
			*f.objects[n] = then[n]
		}
		Eventually(func(g Gomega) {
			f.checkObjects(ctx, g)
			f.checkDNS(ctx, g)
			f.checkSecrets(ctx, g)
			f.checkManagedResources(ctx, g)
		}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Succeed())

		By("doing again what was lost")
		f.do(ctx, f.some(0), change)
		f.do(ctx, f.some(1), change, deletion)
		f.do(ctx, f.some(2), creation)
		f.isAsWanted(ctx)
		report("%d objects, more than %d writes lost", len(f.objects), lost)
		f.remove(ctx)
	}, SpecTimeout(10*time.Minute))
})
