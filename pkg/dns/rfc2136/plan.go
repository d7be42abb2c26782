// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"slices"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// change is what is to be done that a record is served in place of what was written for it before.
type change struct {
	wanted localv1alpha1.WrittenRecord
	// isDone tells that the server has what is wanted and nothing that is to be replaced.
	isDone bool
	// replaced is what goes in the same message, as it is in the same zone; elsewhere is what is not.
	replaced, elsewhere []localv1alpha1.WrittenRecord
	// present is what was written under the name and type of what is wanted and is still there.
	present []localv1alpha1.WrittenRecord
}

// plan works out the change by what was written and what the server answers.
func plan(written []localv1alpha1.WrittenRecord, wanted localv1alpha1.WrittenRecord, current answer) change {
	out := change{wanted: wanted}
	for _, old := range written {
		switch {
		case old.Server != wanted.Server || old.Zone != wanted.Zone:
			out.elsewhere = append(out.elsewhere, old)
		case old.Name != wanted.Name || old.Type != wanted.Type:
			out.replaced = append(out.replaced, old)
		case slices.Equal(old.Values, current.values):
			out.present = append(out.present, old)
		}
	}
	// A wildcard may answer for a name that isn't there, so the answer alone isn't enough.
	out.isDone = len(out.replaced) == 0 && current.is(wanted.Values, wanted.TTL) &&
		slices.ContainsFunc(out.present, func(old localv1alpha1.WrittenRecord) bool { return isSame(old, wanted) })
	return out
}

// isSame reports whether the same was written under one name and type.
func isSame(a, b localv1alpha1.WrittenRecord) bool {
	return slices.Equal(a.Values, b.Values) && a.Mark == b.Mark
}

// undone returns the status for when the server has rejected the change.
func (c change) undone(request dns.Request) localv1alpha1.DNSRecordStatus {
	return localv1alpha1.DNSRecordStatus{Provider: request.Serving, Written: slices.Concat(c.elsewhere, c.replaced, c.present)}
}

// pending returns the status for while the change is being sent. What served the record before still does.
func (c change) pending(request dns.Request) localv1alpha1.DNSRecordStatus {
	written := slices.Concat(c.elsewhere, c.replaced)
	for _, old := range c.present {
		if !isSame(old, c.wanted) {
			written = append(written, old)
		}
	}
	return localv1alpha1.DNSRecordStatus{Provider: request.Serving, Written: append(written, c.wanted)}
}
