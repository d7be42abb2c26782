// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTheCacheForgetsWhatWasNotUsedForLongest(t *testing.T) {
	g := NewWithT(t)
	c := newCache(10)
	has := func(key string) bool {
		_, ok := c.get(key)
		return ok
	}

	c.add("a", nil, 4)
	c.add("b", nil, 4)
	g.Expect(has("a")).To(BeTrue(), "and thereby it is used")
	c.add("c", nil, 4)
	g.Expect(has("b")).To(BeFalse())
	g.Expect(has("a")).To(BeTrue())
	g.Expect(has("c")).To(BeTrue())

	c.add("all", nil, 10)
	g.Expect(has("a")).To(BeFalse())
	g.Expect(has("all")).To(BeTrue())

	c.add("too large", nil, 11)
	g.Expect(has("too large")).To(BeFalse())
	g.Expect(has("all")).To(BeTrue())
}

func TestTheCacheStaysWithinItsBound(t *testing.T) {
	g := NewWithT(t)
	c := newCache(1000)
	for i := range 10_000 {
		c.add(fmt.Sprint(i%1500), []client.Object{&unstructured.Unstructured{}}, i%70)
		if c.size > 1000 {
			t.Fatalf("%d bytes after %d entries", c.size, i)
		}
	}
	for c.recent.Len() > 0 {
		c.recent.RemoveOldest()
	}
	g.Expect(c.size).To(BeZero())
}
