// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// maxLife is the longest time from when an instance is ready until it is killed.
const maxLife = time.Second

var _ = Describe("A process that is killed", func() {
	It("again and again loses no object, makes none twice and leaves none stuck", func(ctx SpecContext) {
		kills, random := number("FAULT_KILLS", 3), rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		f := newFleet(ctx, "killed", number("FAULT_OBJECTS", 12))
		f.live(random)

		// left are the objects with steps to do, and todo is the number of these steps.
		left, todo := append([]*object{}, f.objects...), 0
		for _, o := range f.objects {
			todo += len(o.steps)
		}
		do := func(n int) {
			for try := 0; n > 0 && len(left) > 0 && try < 10*len(f.objects); try++ {
				i := random.IntN(len(left))
				if !left[i].next(ctx) {
					continue
				}
				n--
				if len(left[i].steps) == 0 {
					left = append(left[:i], left[i+1:]...)
				}
			}
		}

		i, steps := newInstance(), todo/kills+1
		for range kills {
			// Some steps before the process starts, some while it works. A few processes are killed while they start.
			do(steps / 2)
			if random.IntN(5) == 0 {
				i.startOnly()
			} else {
				i.start(ctx)
				do(steps - steps/2)
			}
			select {
			case <-time.After(time.Duration(random.Int64N(int64(maxLife)))):
			case <-i.process.Done():
				Fail("the instance has ended by itself")
			}
			Expect(i.process.Kill(ctx)).To(Succeed())
		}

		i.start(ctx)
		Eventually(func() int { do(1); return len(left) }).WithContext(ctx).WithTimeout(2 * time.Minute).Should(BeZero())
		f.isAsWanted(ctx)
		report("%d objects with %d steps of their lives, %d kills; repeat with -ginkgo.seed=%d", len(f.objects), todo, kills, GinkgoRandomSeed())
		f.remove(ctx)
	}, SpecTimeout(15*time.Minute))
})
