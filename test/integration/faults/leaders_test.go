// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/gardenlet-extension/app"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

const (
	lease         = app.Name + "-leader-election"
	leaseDuration = 8 * time.Second
	renewDeadline = 6 * time.Second
	retryPeriod   = 500 * time.Millisecond
	// longDeadline is the renew deadline of a leader that is to believe so for long enough to be seen.
	longDeadline = 20 * time.Second
	// slack is what a busy machine may take longer.
	slack = 5 * time.Second
)

// candidate is an instance with leader election, behind a proxy.
type candidate struct {
	*instance
	proxy *environment.HTTPProxy
}

func newCandidate() *candidate {
	GinkgoHelper()
	proxy, through, err := environment.NewHTTPProxy(access)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	i := newInstance()
	i.access = through
	election := &i.config.LeaderElection
	election.LeaderElect = new(true)
	election.LeaseDuration.Duration, election.RenewDeadline.Duration, election.RetryPeriod.Duration = leaseDuration, renewDeadline, retryPeriod
	return &candidate{instance: i, proxy: proxy}
}

// leads reports whether the instance believes to be the leader.
func (c *candidate) leads(ctx context.Context) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", c.config.Server.Metrics.Port), nil)
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return strings.Contains(string(body), fmt.Sprintf("leader_election_master_status{name=%q} 1", lease)), err
}

// startTwo starts two instances, of which the first one leads, and believes to do so until the deadline has passed.
func startTwo(ctx context.Context, deadline time.Duration) (first, second *candidate) {
	GinkgoHelper()
	first, second = newCandidate(), newCandidate()
	first.config.LeaderElection.RenewDeadline.Duration = deadline
	first.config.LeaderElection.LeaseDuration.Duration = deadline + leaseDuration - renewDeadline
	first.start(ctx)
	Eventually(first.leads).WithContext(ctx).Should(BeTrue())
	second.start(ctx)
	Eventually(second.leads).WithContext(ctx).Should(BeFalse(), "its metrics are there")
	return first, second
}

// changeLease changes the Lease as if another process had written it.
func changeLease(ctx context.Context, change func(*coordinationv1.LeaseSpec)) {
	GinkgoHelper()
	object := &coordinationv1.Lease{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: instanceNamespace, Name: lease}, object)).To(Succeed())
	before := object.DeepCopy()
	change(&object.Spec)
	Expect(c.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
}

var _ = Describe("Two processes", func() {
	AfterEach(func(ctx SpecContext) {
		// The next spec's processes need not wait until it has expired.
		Expect(client.IgnoreNotFound(c.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: instanceNamespace, Name: lease}}))).To(Succeed())
	})

	It("that both believe to lead lose no object, make none twice and leave none stuck", func(ctx SpecContext) {
		first, second := startTwo(ctx, longDeadline)
		f := newFleet(ctx, "led", number("FAULT_OBJECTS", 12))
		f.do(ctx, append(f.some(0), f.some(1)...), creation)
		f.isAsWanted(ctx)

		By("hiding the Lease from the leader and giving it to the other one")
		hung := first.proxy.Hung()
		first.proxy.Hang(func(request *http.Request) bool { return strings.HasSuffix(request.URL.Path, "/leases/"+lease) })
		Eventually(first.proxy.Hung).Should(BeNumerically(">", hung))
		changeLease(ctx, func(spec *coordinationv1.LeaseSpec) { spec.HolderIdentity = new("") })
		Eventually(func(g Gomega) {
			g.Expect(second.leads(ctx)).To(BeTrue())
			g.Expect(first.leads(ctx)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed(), "both lead")

		By("having the first one answer what the other one knows of")
		hung = second.proxy.Hung()
		second.proxy.Hang(func(request *http.Request) bool {
			return request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/dnsrecords/external/status")
		})
		Eventually(func() int {
			f.do(ctx, f.some(0), change)
			return second.proxy.Hung()
		}).WithContext(ctx).Should(BeNumerically(">", hung), "it serves records")
		// Two that write at once restore the ConfigMap against each other, until one of them ends.
		second.proxy.Hang(func(request *http.Request) bool {
			return request.Method != http.MethodGet && !strings.HasSuffix(request.URL.Path, "/leases/"+lease)
		})
		f.do(ctx, f.some(2), creation)
		f.do(ctx, f.some(0), change)
		f.isAsWanted(ctx)
		second.proxy.Hang(nil)

		By("working with both")
		f.do(ctx, f.some(0), change, change)
		f.do(ctx, f.some(1), deletion)
		// Before it ends, it tries to release the Lease. That request times out after half of the deadline.
		Eventually(first.process.Done()).WithTimeout(longDeadline*3/2+slack).Should(BeClosed(), "who cannot renew its Lease ends")
		Expect(first.process.ExitCode()).To(Equal(1))

		By("having the other one write all records")
		deleteRecords(ctx)
		first.proxy.Hang(nil)
		first.start(ctx)

		f.isAsWanted(ctx)
		Eventually(first.leads).WithContext(ctx).Should(BeFalse())
		report("%d objects, two leaders for up to %s", len(f.objects), longDeadline)
		f.remove(ctx)
	}, SpecTimeout(5*time.Minute))

	DescribeTable("have one leader when a clock jumps",
		func(ctx SpecContext, name string, by time.Duration) {
			jump := func() {
				changeLease(ctx, func(spec *coordinationv1.LeaseSpec) { spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(by)} })
			}
			first, second := startTwo(ctx, renewDeadline)
			f := newFleet(ctx, name, number("FAULT_OBJECTS", 12))
			f.do(ctx, append(f.some(0), f.some(1)...), creation)

			jump()
			Consistently(func(g Gomega) {
				g.Expect(first.leads(ctx)).To(BeTrue())
				g.Expect(second.leads(ctx)).To(BeFalse())
			}).WithContext(ctx).WithTimeout(leaseDuration+2*retryPeriod).Should(Succeed(), "the other one goes by its own clock")
			f.isAsWanted(ctx)

			By("killing the leader, whose last renewal is of another time")
			Expect(first.process.Kill(ctx)).To(Succeed())
			jump()
			f.do(ctx, f.some(2), creation)
			f.do(ctx, f.some(0), change)
			f.do(ctx, f.some(1), deletion)
			Eventually(second.leads).WithContext(ctx).WithTimeout(leaseDuration+slack).Should(BeTrue(), "it takes over in time")
			f.isAsWanted(ctx)
			report("%d objects, the Lease renewed %s from now; the other process leads within %s", len(f.objects), by, leaseDuration+slack)
			f.remove(ctx)
		},
		Entry("an hour ahead", SpecTimeout(5*time.Minute), "ahead", time.Hour),
		Entry("an hour back", SpecTimeout(5*time.Minute), "back", -time.Hour),
	)
})
