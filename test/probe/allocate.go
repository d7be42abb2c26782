// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"os"
	"runtime"
)

// chunk is how many bytes are taken at a time.
const chunk = 16 << 20

// Allocate takes so many bytes of memory and keeps them until ctx ends. It returns how many it has; where a limit is lower,
// it is killed instead.
func Allocate(ctx context.Context, bytes int) int {
	var kept [][]byte
	taken := 0
	for taken < bytes && ctx.Err() == nil {
		size := min(chunk, bytes-taken)
		part := make([]byte, size)
		// What nobody writes to takes no memory.
		for i := 0; i < size; i += os.Getpagesize() {
			part[i] = 1
		}
		kept, taken = append(kept, part), taken+size
	}
	<-ctx.Done()
	runtime.KeepAlive(kept)
	return taken
}
