// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"cmp"
	"time"
)

// Timing are the waits of a Puller. Zero values stand for the default, but for the pause between attempts, which is short.
type Timing struct {
	Total, Pull, Check, Headers time.Duration
	Attempts                    int
}

// SetTiming changes the waits of a Puller that has no source yet.
func (p *Puller) SetTiming(t Timing) {
	p.timing.total = cmp.Or(t.Total, p.timing.total)
	p.timing.pull = cmp.Or(t.Pull, p.timing.pull)
	p.timing.check = cmp.Or(t.Check, p.timing.check)
	p.timing.headers = cmp.Or(t.Headers, p.timing.headers)
	p.timing.backoff.Steps = cmp.Or(t.Attempts, p.timing.backoff.Steps)
	p.timing.backoff.Duration = time.Millisecond
}
