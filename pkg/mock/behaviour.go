// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// defaultRetry is the time until the next attempt after a failure for which no behaviour sets one.
const defaultRetry = 5 * time.Second

// behaviours decide for the objects of one kind which attempts of an operation take time and which fail. Decisions depend only on
// the seed, the object's name, the operation and the number of attempts since the program started.
type behaviours struct {
	kind string
	seed int64
	// rules are those for the kind, in the order in which they count.
	rules []configv1alpha1.MockBehaviour

	// objects has a memory by the key of an object, or none if nothing needs to be remembered: it is empty where nothing fails or
	// waits.
	objects sync.Map
}

// memory is what is remembered of an object.
type memory struct {
	// attempts counts all attempts.
	attempts uint64
	// operation is the one under way, failed counts its failures in a row, and due is when it goes on. Times in a status are of
	// whole seconds: without due, short delays would end too early.
	operation configv1alpha1.MockOperation
	failed    int32
	due       time.Time
}

// plan decides an attempt.
type plan struct {
	// delay is how long it takes.
	delay time.Duration
	// failure is its error; nil for success.
	failure error
	// retryAfter is the time until the next attempt after a failure.
	retryAfter time.Duration
}

func newBehaviours(kind string, config configv1alpha1.MockConfiguration) *behaviours {
	b := &behaviours{kind: kind, seed: config.Seed}
	for _, rule := range config.Behaviours {
		if rule.Kind == "" || rule.Kind == kind {
			b.rules = append(b.rules, rule)
		}
	}
	return b
}

// ruleFor returns the first rule that matches, or nil.
func (b *behaviours) ruleFor(operation configv1alpha1.MockOperation) *configv1alpha1.MockBehaviour {
	for i := range b.rules {
		rule := &b.rules[i]
		if rule.Operation == operation || (rule.Operation == "" && operation != configv1alpha1.MockOperationForceDelete) {
			return rule
		}
	}
	return nil
}

// plan decides the next attempt. It returns the same until ended is called.
func (b *behaviours) plan(object types.NamespacedName, operation configv1alpha1.MockOperation) plan {
	rule := b.ruleFor(operation)
	if rule == nil {
		return plan{retryAfter: defaultRetry}
	}

	known := b.known(object, operation)
	out := plan{retryAfter: rule.RetryAfter.Duration}
	chance := b.chance(object, operation, known.attempts)
	longer, fails := chance.Float64(), chance.Float64() < rule.ErrorRate
	if rule.Delay != nil {
		out.delay = rule.Delay.Duration
	}
	if rule.Jitter != nil {
		out.delay += time.Duration(longer * float64(rule.Jitter.Duration))
	}
	if fails || known.failed < rule.Failures {
		out.failure = errors.New(rule.Error.Message)
		if len(rule.Error.Codes) > 0 {
			out.failure = v1beta1helper.NewErrorWithCodes(out.failure, rule.Error.Codes...)
		}
	}
	return out
}

func (b *behaviours) chance(object types.NamespacedName, operation configv1alpha1.MockOperation, attempt uint64) *rand.Rand {
	hash := fnv.New64a()
	for _, part := range []string{b.kind, object.Namespace, object.Name, string(operation)} {
		_, _ = hash.Write(append([]byte(part), 0))
	}
	// #nosec G404 -- everybody must be able to draw the same again
	return rand.New(rand.NewPCG(uint64(b.seed), hash.Sum64()+attempt))
}

// known returns the memory of an object; of earlier operations that is only the number of attempts.
func (b *behaviours) known(object types.NamespacedName, operation configv1alpha1.MockOperation) memory {
	stored, _ := b.objects.Load(object)
	known, _ := stored.(memory)
	if known.operation != operation {
		return memory{attempts: known.attempts, operation: operation}
	}
	return known
}

// forget drops the memory of an object that is gone.
func (b *behaviours) forget(object types.NamespacedName) { b.objects.Delete(object) }

// ended counts an attempt.
func (b *behaviours) ended(object types.NamespacedName, operation configv1alpha1.MockOperation, failed bool) {
	rule, known := b.ruleFor(operation), b.known(object, operation)
	if rule == nil || (rule.Jitter == nil && rule.ErrorRate == 0 && rule.Failures == 0) {
		// No later decision depends on it.
		if known.attempts == 0 {
			b.forget(object)
		}
		return
	}
	known.attempts, known.failed, known.due = known.attempts+1, known.failed+1, time.Time{}
	if !failed {
		known.failed = 0
	}
	b.objects.Store(object, known)
}
