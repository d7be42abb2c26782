// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options are what a Puller needs. What has a default may be zero.
type Options struct {
	// Directory is where pulled charts are kept on the disk. It is created if it is not there, and belongs to the Puller.
	Directory string
	// MaxBytes is how large the charts in Directory, as they were pulled, may become together. Default 64 MiB.
	MaxBytes int64
	// MemoryBytes is how large the charts in memory, unpacked, may become together. Default 32 MiB.
	MemoryBytes int64
	// Reader reads the Secrets that are named in the configuration, in Namespace. It should not be that of a cache, which
	// would watch them all.
	Reader client.Reader
	// Namespace is where the instance runs.
	Namespace string
	// Registerer takes the metrics. None if nil.
	Registerer prometheus.Registerer
	// Log gets a line when a chart is pulled, when it is used although the registry could not be asked, and when
	// something is wrong with the directory.
	Log logr.Logger
	// Clock is for intervals and pauses. Default: the real one.
	Clock clock.Clock

	// CheckInterval is how long a tag is taken to mean what it meant, and how long a Secret is not read again. Default
	// 1 minute: a reconcile after that sees a tag that was moved, while a wave of reconciles makes one request (HEAD,
	// which public registries do not count as a pull).
	CheckInterval time.Duration
	// AccessInterval is after how long the registry is asked again whether the credentials may still pull, with them
	// rather than with a token it gave out for them. Default 10 minutes: what a digest means never changes, and to take
	// away a right to read is not urgent for something that has been read.
	AccessInterval time.Duration

	// Timeout bounds all that it takes to pull a chart, with all mirrors and attempts. Default 1 minute.
	Timeout time.Duration
	// AttemptTimeout bounds one attempt at one registry, so that one which sends a byte now and then leaves time for the
	// next one. Default 20 seconds.
	AttemptTimeout time.Duration
	// HeaderTimeout bounds the wait for the headers of a response. Default 10 seconds.
	HeaderTimeout time.Duration
	// CheckTimeout bounds asking one registry about a chart that is there already. It is short and there is no second
	// attempt, since the chart can be used without an answer. Default 5 seconds.
	CheckTimeout time.Duration
	// Attempts is how often each registry is asked for a chart when it fails in a way that may pass. Default 3.
	Attempts int
	// RetryWait is the pause after the first attempt; it doubles for each further one, and up to as much again is added
	// by chance. A registry's Retry-After counts if it is longer. Default 500 milliseconds.
	RetryWait time.Duration

	// Limits bound what is pulled.
	Limits Limits
}

// Limits bound a chart. Their zero values stand for the defaults.
type Limits struct {
	// ManifestBytes bounds the manifest. Default 256 KiB.
	ManifestBytes int64
	// ArchiveBytes bounds the compressed archive. Default 8 MiB.
	ArchiveBytes int64
	// UnpackedBytes bounds the archive when it is decompressed, together with archives of subcharts in it. Default 32 MiB.
	UnpackedBytes int64
	// FileBytes bounds each file in it. Default 5 MiB, as Helm has it.
	FileBytes int64
	// Files is how many files may be in it. Default 2000.
	Files int
}

const (
	// failureMemory is how long a failure is handed out again without asking again, so that many reconciles that fail
	// for the same reason do not wait for it one after the other.
	failureMemory = 5 * time.Second
	// maxFailureMemory bounds that where a registry asks to be left alone for longer.
	maxFailureMemory = 5 * time.Minute
	// maxRetryWait is the longest pause between attempts.
	maxRetryWait = 10 * time.Second
)

func (o Options) withDefaults() Options {
	setDefault(&o.MaxBytes, 64<<20)
	setDefault(&o.MemoryBytes, 32<<20)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	setDefault(&o.CheckInterval, time.Minute)
	setDefault(&o.AccessInterval, 10*time.Minute)
	setDefault(&o.Timeout, time.Minute)
	setDefault(&o.AttemptTimeout, 20*time.Second)
	setDefault(&o.HeaderTimeout, 10*time.Second)
	setDefault(&o.CheckTimeout, 5*time.Second)
	setDefault(&o.Attempts, 3)
	setDefault(&o.RetryWait, 500*time.Millisecond)
	setDefault(&o.Limits.ManifestBytes, 256<<10)
	setDefault(&o.Limits.ArchiveBytes, 8<<20)
	setDefault(&o.Limits.UnpackedBytes, 32<<20)
	setDefault(&o.Limits.FileBytes, 5<<20)
	setDefault(&o.Limits.Files, 2000)
	return o
}

func (o Options) validate() error {
	if o.Directory == "" {
		return errors.New("no directory for pulled charts: set Directory")
	}
	for _, value := range []int64{
		o.MaxBytes, o.MemoryBytes, int64(o.CheckInterval), int64(o.AccessInterval), int64(o.Timeout), int64(o.AttemptTimeout),
		int64(o.HeaderTimeout), int64(o.CheckTimeout), int64(o.Attempts), int64(o.RetryWait), o.Limits.ManifestBytes,
		o.Limits.ArchiveBytes, o.Limits.UnpackedBytes, o.Limits.FileBytes, int64(o.Limits.Files),
	} {
		if value < 0 {
			return errors.New("bounds, intervals and timeouts of the charts must not be negative")
		}
	}
	return nil
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
