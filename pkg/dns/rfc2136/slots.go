// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"context"
	"sync"
)

// slots bounds how much is done at a time for each of any number of names. It forgets a name that is not in use.
type slots struct {
	max int

	mu    sync.Mutex
	inUse map[string]*slot
}

type slot struct {
	// tokens has room for max; users hold one or wait for one.
	tokens chan struct{}
	users  int
}

func newSlots(limit int) *slots {
	return &slots{max: limit, inUse: map[string]*slot{}}
}

// acquire waits for one of the slots of a name and returns what gives it back.
func (s *slots) acquire(ctx context.Context, name string) (func(), error) {
	s.mu.Lock()
	in, ok := s.inUse[name]
	if !ok {
		in = &slot{tokens: make(chan struct{}, s.max)}
		s.inUse[name] = in
	}
	in.users++
	s.mu.Unlock()

	select {
	case in.tokens <- struct{}{}:
		return func() {
			<-in.tokens
			s.leave(name, in)
		}, nil
	case <-ctx.Done():
		s.leave(name, in)
		return nil, ctx.Err()
	}
}

func (s *slots) leave(name string, in *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.users--; in.users == 0 {
		delete(s.inUse, name)
	}
}
