// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
)

// defaultLevel is the Brotli level. See docs/development/performance.md, section Benchmarks: what the higher levels save in size, they
// cost many times over in time.
const defaultLevel = 6

// compressor compresses with writers that are used again: a new one allocates and clears megabytes of tables, whatever
// the size of what is compressed.
type compressor struct {
	pool sync.Pool
}

func newCompressor(level int) *compressor {
	return &compressor{pool: sync.Pool{New: func() any {
		return brotli.NewWriterLevel(io.Discard, level)
	}}}
}

func (c *compressor) compress(data []byte) ([]byte, error) {
	var (
		out    bytes.Buffer
		writer = c.pool.Get().(*brotli.Writer)
	)

	writer.Reset(&out)
	if _, err := writer.Write(data); err != nil {
		// A writer with an error is not put back.
		return nil, fmt.Errorf("compressing %d bytes: %w", len(data), err)
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("compressing %d bytes: %w", len(data), err)
	}

	// Else the pool would keep the result alive.
	writer.Reset(io.Discard)
	c.pool.Put(writer)
	return out.Bytes(), nil
}
