// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"slices"
	"sync"
)

// ahead is what later steps do that needs only a part of the steps before: it is begun as soon as that part is there, while
// the others still wait. A nil one begins nothing, so that each step does its own work when it is its turn.
type ahead struct {
	// planned are the steps that this `up` comes to.
	planned []string

	mu      sync.Mutex
	begun   map[string]chan result
	running sync.WaitGroup
}

type result struct {
	text string
	err  error
}

// begin does some work of a step in the background, if `up` comes to that step and it wasn't begun before. Its name tells it
// from other work.
func (a *ahead) begin(ctx context.Context, step, name string, work func(context.Context) (string, error)) {
	if a == nil || !slices.Contains(a.planned, step) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun == nil {
		a.begun = map[string]chan result{}
	}
	if a.begun[name] != nil {
		return
	}
	done := make(chan result, 1)
	a.begun[name] = done
	a.running.Go(func() {
		text, err := work(ctx)
		done <- result{text, err}
	})
}

// wait waits until nothing is going on any more.
func (a *ahead) wait() { a.running.Wait() }

// finish waits for the work of that name. If it wasn't begun, or if it failed, as it may have been too early, it is done now.
func (a *ahead) finish(ctx context.Context, name string, work func(context.Context) (string, error)) (string, error) {
	if a != nil {
		a.mu.Lock()
		done := a.begun[name]
		a.mu.Unlock()
		if done != nil {
			if r := <-done; r.err == nil {
				return r.text, nil
			}
		}
	}
	return work(ctx)
}
