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
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// defaultRetry is when an operation that failed is tried again where no behaviour says so.
const defaultRetry = 5 * time.Second

// behaviours decide for the objects of one kind which attempts of an operation take time and which fail. What they decide
// depends on the seed, the object's name, the operation and how many attempts there were since the program started, and on
// nothing else.
type behaviours struct {
	kind string
	seed int64
	// rules are those for the kind, in the order in which they count.
	rules []configv1alpha1.MockBehaviour

	mu sync.Mutex
	// objects have an entry only where there is something to remember, so they take no memory where nothing fails or waits.
	objects map[types.NamespacedName]*memory
}

// memory is what is remembered of an object.
type memory struct {
	// attempts is how many there were.
	attempts uint64
	// operation is the one under way, failed how many attempts of it did, and due when it goes on. Times in a status are of
	// whole seconds, so without this short times would pass too early.
	operation configv1alpha1.MockOperation
	failed    int32
	due       time.Time
}

// plan is how an attempt is to go.
type plan struct {
	// delay is how long it takes.
	delay time.Duration
	// failure is what it ends with; nil for success.
	failure error
	// retryAfter is when a failed attempt is followed by another one.
	retryAfter time.Duration
}

func newBehaviours(kind string, config configv1alpha1.MockConfiguration) *behaviours {
	b := &behaviours{kind: kind, seed: config.Seed, objects: map[types.NamespacedName]*memory{}}
	for _, rule := range config.Behaviours {
		if rule.Kind == "" || rule.Kind == kind {
			b.rules = append(b.rules, rule)
		}
	}
	return b
}

// operationFor translates the type of an operation. Retries of a creation are part of the creation.
func operationFor(operation gardencorev1beta1.LastOperationType, force bool) configv1alpha1.MockOperation {
	if operation == gardencorev1beta1.LastOperationTypeDelete && force {
		return configv1alpha1.MockOperationForceDelete
	}
	return configv1alpha1.MockOperation(operation)
}

// ruleFor returns the rule that counts, or nil.
func (b *behaviours) ruleFor(operation configv1alpha1.MockOperation) *configv1alpha1.MockBehaviour {
	for i := range b.rules {
		rule := &b.rules[i]
		if rule.Operation == operation || (rule.Operation == "" && operation != configv1alpha1.MockOperationForceDelete) {
			return rule
		}
	}
	return nil
}

// plan returns how the next attempt is to go. It returns the same until ended is called.
func (b *behaviours) plan(object types.NamespacedName, operation configv1alpha1.MockOperation) plan {
	rule := b.ruleFor(operation)
	if rule == nil {
		return plan{retryAfter: defaultRetry}
	}

	var known memory
	b.mu.Lock()
	if remembered := b.objects[object]; remembered != nil {
		known = *remembered
	}
	b.mu.Unlock()
	if known.operation != operation {
		known.failed = 0
	}

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
	// #nosec G115 G404 -- any bits of the seed will do, and what is wanted is that anybody can draw the same again
	return rand.New(rand.NewPCG(uint64(b.seed), hash.Sum64()+attempt))
}

// ended counts an attempt.
func (b *behaviours) ended(object types.NamespacedName, operation configv1alpha1.MockOperation, failed bool) {
	rule := b.ruleFor(operation)
	b.mu.Lock()
	defer b.mu.Unlock()
	if rule == nil || (rule.Jitter == nil && rule.ErrorRate == 0 && rule.Failures == 0) {
		// Nothing that follows depends on it.
		if known := b.objects[object]; known != nil && known.attempts == 0 {
			delete(b.objects, object)
		}
		return
	}
	known := b.rememberLocked(object, operation)
	known.attempts++
	known.due = time.Time{}
	if failed {
		known.failed++
	} else {
		known.failed = 0
	}
}

// waits remembers when an operation goes on.
func (b *behaviours) waits(object types.NamespacedName, operation configv1alpha1.MockOperation, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rememberLocked(object, operation).due = due
}

// due returns when an operation goes on. If the program has started since, that is fallback, which comes from the object.
func (b *behaviours) due(object types.NamespacedName, operation configv1alpha1.MockOperation, fallback time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.objects[object]; known != nil && known.operation == operation && !known.due.IsZero() {
		return known.due
	}
	return fallback
}

// forget is for objects that are gone.
func (b *behaviours) forget(object types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, object)
}

func (b *behaviours) rememberLocked(object types.NamespacedName, operation configv1alpha1.MockOperation) *memory {
	known := b.objects[object]
	if known == nil {
		known = &memory{}
		b.objects[object] = known
	}
	if known.operation != operation {
		*known = memory{attempts: known.attempts, operation: operation}
	}
	return known
}
