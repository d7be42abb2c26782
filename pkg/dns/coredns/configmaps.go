// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	miekgdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	suffixOverride = ".override"
	suffixZone     = ".zone"
	// maxKeyLength is that of a key of a ConfigMap.
	maxKeyLength = 253
	// wildcardKey and hashKey stand for what a key can't hold. They are in upper case, so that no name, which never is,
	// looks like one of them.
	wildcardKey = "WILDCARD."
	hashKey     = "SHA256."

	// shardSize is up to which size a ConfigMap is filled. Every write sends a whole ConfigMap, so it bounds what one more
	// record costs; a ConfigMap may have 1 MiB, which leaves plenty for entries that grow.
	shardSize    = 64 << 10
	maxShardSize = 256 << 10
	// maxShards is how many ConfigMaps there may be: an instance may write to those whose names are known beforehand. That is
	// room for some 50,000 names, and the last one takes whatever else comes.
	maxShards = 256

	firstRetry = 100 * time.Millisecond
	maxRetry   = 5 * time.Second
	// maxRestore is how long a ConfigMap waits at most to be restored that somebody else changes again and again, such as another
	// instance that takes itself for the leader.
	maxRestore = time.Minute
)

// entry is what is written for one name.
type entry struct {
	name, zone string
	// override is the line of the entry <name>.override; empty if there is no gateway.
	override string
	// lines are the records in master file format.
	lines string
}

// size is about how many bytes the entry adds to a ConfigMap.
func (e entry) size() int {
	size := len(e.lines)
	if e.override != "" {
		size += len(e.key()) + len(e.override) + 8
	}
	return size
}

// key is that of the override entry.
func (e entry) key() string {
	key := e.name
	if rest, ok := strings.CutPrefix(key, "*."); ok {
		key = wildcardKey + rest
	}
	if len(key)+len(suffixOverride) > maxKeyLength {
		sum := sha256.Sum256([]byte(e.name))
		key = hashKey + hex.EncodeToString(sum[:])
	}
	return key + suffixOverride
}

// render returns the entry of a name with its records. service is the name of the gateway's Service, or empty.
func render(name, zone string, records []dns.Record, service string) entry {
	e := entry{name: name, zone: zone}
	if service != "" {
		e.override = "rewrite stop name regex " + quote(name) + " " + service + " answer auto\n"
	}
	var lines strings.Builder
	for _, record := range records {
		for _, value := range record.Values {
			lines.WriteString(record.ResourceRecord(value).String())
			lines.WriteByte('\n')
		}
	}
	e.lines = lines.String()
	return e
}

// quote returns the regular expression that matches a name as a server sees it, and nothing else: in lower case with a
// dot at the end. A wildcard stands for one label or more.
func quote(name string) string {
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		return `^.+\.` + regexp.QuoteMeta(rest) + `\.$`
	}
	return `^` + regexp.QuoteMeta(name) + `\.$`
}

// shard is one ConfigMap.
type shard struct {
	name    string
	entries map[string]entry
	size    int

	// version counts the changes of the entries; written is the version that the ConfigMap has, and why it has no later one.
	version uint64
	written *progress
	// names is how many names have changed since the last write.
	names int
	// sent is what the last write sent, whether or not it succeeded.
	sent *corev1.ConfigMap
	// exists tells that there is such a ConfigMap; resourceVersion and generation are those of the last write that succeeded.
	exists          bool
	resourceVersion string
	generation      uint64
}

// shards spreads names over ConfigMaps. A name stays where it is, and new ones go where there is room, so that a change
// of some names touches few ConfigMaps, however many there are.
type shards struct {
	prefix string
	all    map[string]*shard
	where  map[string]*shard
	// former are the lines of the names as they were loaded, until it is known what is to stay of them.
	former map[string][]string
}

func newShards(prefix string) *shards {
	return &shards{prefix: prefix, all: map[string]*shard{}, where: map[string]*shard{}, former: map[string][]string{}}
}

// shardPrefix is what the names of the ConfigMaps of an instance start with.
func shardPrefix(instance string) string { return ConfigMapPrefix + instance + "-" }

// names returns the names of all ConfigMaps that there may be.
func (s *shards) names() []string {
	names := make([]string, 0, maxShards)
	for number := range maxShards {
		names = append(names, s.prefix+strconv.Itoa(number))
	}
	return names
}

// may reports whether there may be a ConfigMap of that name.
func (s *shards) may(name string) bool {
	suffix, ok := strings.CutPrefix(name, s.prefix)
	number, err := strconv.ParseUint(suffix, 10, 8)
	return ok && err == nil && number < maxShards && suffix == strconv.FormatUint(number, 10)
}

// load takes over where names are, from a ConfigMap of an earlier run.
func (s *shards) load(name string, data map[string]string) *shard {
	loaded := s.get(name)
	for key, value := range data {
		if !strings.HasSuffix(key, suffixZone) {
			continue
		}
		for line := range strings.Lines(value) {
			owner, _, ok := strings.Cut(line, "\t")
			if ok {
				name := strings.TrimSuffix(owner, ".")
				s.where[name] = loaded
				s.former[name] = append(s.former[name], strings.TrimSuffix(line, "\n"))
			}
		}
	}
	return loaded
}

// put writes an entry in place of what its name had. It returns the shards that are touched.
func (s *shards) put(e entry) []*shard {
	target, moved := s.where[e.name], false
	if target != nil {
		old, ok := target.entries[e.name]
		if ok && old == e {
			return nil
		}
		grown := target.size - old.size() + e.size()
		moved = grown > maxShardSize
	}

	var touched []*shard
	if target == nil || moved {
		touched = s.remove(e.name)
		target = s.room(e.size())
	}
	target.size += e.size() - target.entries[e.name].size()
	target.entries[e.name] = e
	target.version++
	s.where[e.name] = target
	return append(touched, target)
}

// remove forgets a name. It returns the shard that is touched.
func (s *shards) remove(name string) []*shard {
	from, ok := s.where[name]
	if !ok {
		return nil
	}
	delete(s.where, name)
	old, ok := from.entries[name]
	if !ok {
		return nil
	}
	delete(from.entries, name)
	from.size -= old.size()
	from.version++
	return []*shard{from}
}

// formerValues returns the values and the TTL that a name had for a type as it was loaded; none for a type that isn't served.
func (s *shards) formerValues(name, recordType string) ([]string, int64) {
	if !slices.Contains([]string{dns.TypeA, dns.TypeAAAA, dns.TypeCNAME, dns.TypeTXT}, recordType) {
		return nil, 0
	}
	var (
		values []string
		ttl    int64
	)
	for _, line := range s.former[name] {
		if rr, err := miekgdns.NewRR(line); err == nil && rr != nil && rr.Header().Rrtype == miekgdns.StringToType[recordType] {
			values, ttl = append(values, dns.ValueOf(rr)), int64(rr.Header().Ttl)
		}
	}
	slices.Sort(values)
	return values, ttl
}

// prune forgets all names that have a place and no entry.
func (s *shards) prune() {
	maps.DeleteFunc(s.where, func(name string, in *shard) bool {
		_, ok := in.entries[name]
		return !ok
	})
	s.former = nil
}

// room returns the first shard with room, or a new one. There are few shards, so they are just looked through.
func (s *shards) room(size int) *shard {
	for number := 0; ; number++ {
		name := s.prefix + strconv.Itoa(number)
		candidate, ok := s.all[name]
		if !ok {
			return s.get(name)
		}
		if candidate.size+size <= shardSize || len(candidate.entries) == 0 || number == maxShards-1 {
			return candidate
		}
	}
}

func (s *shards) get(name string) *shard {
	if _, ok := s.all[name]; !ok {
		s.all[name] = &shard{name: name, entries: map[string]entry{}, written: newProgress()}
	}
	return s.all[name]
}

// data is the content of the ConfigMap.
func (s *shard) data() map[string]string {
	data := make(map[string]string, len(s.entries)+1)
	zones := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[name]
		if e.override != "" {
			data[e.key()] = e.override
		}
		zones[e.zone] = append(zones[e.zone], e.lines)
	}
	for zone, lines := range zones {
		data[zone+suffixZone] = strings.Join(lines, "")
	}
	return data
}

// revisions are versions of ConfigMaps that somebody waits for.
type revisions map[*shard]uint64

// await returns nil once all are written, or why one is not.
func (r revisions) await(ctx context.Context) error {
	for s, version := range r {
		if err := s.written.await(ctx, version); err != nil {
			return err
		}
	}
	return nil
}

// update renders names, has the ConfigMaps written that this changes, and returns what has to be written until all of the
// names are as they are wanted.
func (p *Provider) update(names ...string) revisions {
	pending := revisions{}
	for _, name := range names {
		for _, s := range p.renderName(name) {
			s.names++
			pending[s] = s.version
			p.queue.AddAfter(s.name, p.BatchWindow)
		}
		if in, ok := p.shards.where[name]; ok {
			pending[in] = in.version
		}
	}
	return pending
}

// renderName puts a name into its ConfigMap, and returns those that this changes.
func (p *Provider) renderName(name string) []*shard {
	records := p.desired.effective(name)
	zone, ok := dns.ZoneOf(name, p.Zones)
	if len(records) == 0 || !ok {
		return p.shards.remove(name)
	}
	service := ""
	if found, ok := p.gateways.find(records); ok {
		service = found.service.Name + "." + found.service.Namespace + ".svc." + p.ClusterDomain
	}
	return p.shards.put(render(name, zone, records, service))
}

// write writes the ConfigMaps of the queue until ctx is done. It is the only one who does. One that can't be written doesn't
// keep the others from it.
func (p *Provider) write(ctx context.Context) {
	context.AfterFunc(ctx, p.queue.ShutDown)
	for {
		name, shutdown := p.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		if err := p.writeShard(ctx, name); err == nil {
			p.queue.Forget(name)
		} else if ctx.Err() == nil {
			p.Log.Error(err, "Writing the configuration of CoreDNS, trying again")
			p.queue.AddRateLimited(name)
		}
		p.queue.Done(name)
	}
}

// writeShard writes a ConfigMap that has changed, or deletes it if nothing is in it. What changes meanwhile is in the queue
// again.
func (p *Provider) writeShard(ctx context.Context, name string) error {
	p.mu.Lock()
	s := p.shards.all[name]
	version, exists, remove := s.version, s.exists, len(s.entries) == 0
	if remove && !exists {
		s.written.report(version, nil)
	}
	if s.written.has(version) {
		p.mu.Unlock()
		return nil
	}
	// Generations grow even if the ConfigMap with the last one is lost, as the time does.
	start := p.Clock.Now()
	generation := max(s.generation+1, uint64(max(start.UnixMicro(), 0))) // #nosec G115 -- not negative.
	configMap := p.configMap(s, generation)
	s.sent, s.exists = configMap.DeepCopy(), !remove // the answer of the API server is written to configMap
	p.Metrics.Batch(s.names)
	s.names = 0
	names := len(p.shards.where)
	p.mu.Unlock()

	var err error
	if remove {
		err = client.IgnoreNotFound(p.Client.Delete(ctx, configMap))
	} else {
		err = p.createOrUpdate(ctx, configMap, exists)
	}
	p.Metrics.Written(err)
	p.Metrics.Flushed(p.Clock.Since(start), names, err)

	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		s.exists = exists
		err = fmt.Errorf("writing ConfigMap %s/%s: %w", p.Namespace, name, err)
		s.written.report(0, err)
		return err
	}
	s.generation = generation
	if !remove {
		s.resourceVersion = configMap.ResourceVersion
	}
	s.written.report(version, nil)
	return nil
}

// createOrUpdate writes a ConfigMap whatever is there: what was edited by hand in between is not to survive.
func (p *Provider) createOrUpdate(ctx context.Context, configMap *corev1.ConfigMap, exists bool) error {
	if !exists {
		if err := p.Client.Create(ctx, configMap); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	err := p.Client.Update(ctx, configMap)
	if !apierrors.IsNotFound(err) {
		return err
	}
	configMap.ResourceVersion = ""
	return p.Client.Create(ctx, configMap)
}

func (p *Provider) configMap(s *shard, generation uint64) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       p.Namespace,
			Name:            s.name,
			Labels:          p.labels(),
			Annotations:     map[string]string{AnnotationGeneration: strconv.FormatUint(generation, 10)},
			OwnerReferences: slices.Clone(p.owner),
		},
		Data: s.data(),
	}
}

func (p *Provider) labels() map[string]string {
	return map[string]string{LabelConfig: "true", LabelInstance: p.Instance}
}

// configMapChanged restores a ConfigMap that somebody else has changed, deleted or created, later and later if that happens
// again and again.
func (p *Provider) configMapChanged(object any, deleted bool) {
	_, missed := object.(toolscache.DeletedFinalStateUnknown)
	found, ok := unwrap[*corev1.ConfigMap](object)
	if !ok || !p.shards.may(found.Name) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shards.get(found.Name)
	order, err := resourceversion.CompareResourceVersion(found.ResourceVersion, s.resourceVersion)
	isOlder := err == nil && order < 0 && !missed
	switch {
	case isOlder || deleted && !s.exists || !deleted && (found.ResourceVersion == s.resourceVersion || isAsWritten(found, s.sent)):
		return
	case deleted:
		p.Log.Info("A ConfigMap is gone, writing it again", "configMap", s.name)
		s.exists = false
	default:
		p.Log.Info("A ConfigMap was changed by somebody else, restoring it", "configMap", s.name)
		s.exists = true
	}
	if s.written.has(s.version) {
		p.restores.Next(s.name, p.Clock.Now())
	}
	s.version++
	p.queue.AddAfter(s.name, max(p.BatchWindow, p.restores.Get(s.name)))
}

// isAsWritten compares what matters to CoreDNS and to the garbage collector.
func isAsWritten(found, written *corev1.ConfigMap) bool {
	if written == nil {
		return false
	}
	for key, value := range written.Labels {
		if found.Labels[key] != value {
			return false
		}
	}
	for _, reference := range written.OwnerReferences {
		if !slices.ContainsFunc(found.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == reference.UID }) {
			return false
		}
	}
	return found.Annotations[AnnotationGeneration] == written.Annotations[AnnotationGeneration] && len(found.BinaryData) == 0 && maps.Equal(found.Data, written.Data)
}
