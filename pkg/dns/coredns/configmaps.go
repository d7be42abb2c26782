// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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

	// version counts the changes of the entries. written is the version that the ConfigMap has, and failure why it has no later
	// one.
	version, written uint64
	failure          error
	// names is how many names have changed since the last write.
	names int
	// exists tells that there is such a ConfigMap; resourceVersion and generation are those of the last write that succeeded.
	exists          bool
	resourceVersion string
	generation      uint64
}

// shards spreads names over ConfigMaps. A name stays where it is, and new ones go where there is room, so that a change
// of some names touches few ConfigMaps, however many there are.
type shards struct {
	// names are the names of all ConfigMaps that there may be.
	names []string
	all   map[string]*shard
	where map[string]*shard
}

func newShards(prefix string) *shards {
	s := &shards{all: map[string]*shard{}, where: map[string]*shard{}}
	for number := range maxShards {
		s.names = append(s.names, prefix+strconv.Itoa(number))
	}
	return s
}

// shardPrefix is what the names of the ConfigMaps of an instance start with.
func shardPrefix(instance string) string { return ConfigMapPrefix + instance + "-" }

// may reports whether there may be a ConfigMap of that name.
func (s *shards) may(name string) bool { return slices.Contains(s.names, name) }

// load takes over the entries of a ConfigMap of an earlier run, as far as they can be told and no other one has their names.
func (s *shards) load(name string, data map[string]string) *shard {
	loaded, lines := s.get(name), map[string][]string{}
	for key, value := range data {
		zone, ok := strings.CutSuffix(key, suffixZone)
		if !ok {
			continue
		}
		for line := range strings.Lines(value) {
			owner, _, ok := strings.Cut(line, "\t")
			name := strings.TrimSuffix(owner, ".")
			if in := s.where[name]; !ok || in != nil && (in != loaded || in.entries[name].zone != zone) {
				continue
			}
			s.where[name] = loaded
			loaded.entries[name] = entry{name: name, zone: zone}
			lines[name] = append(lines[name], strings.TrimSuffix(line, "\n")+"\n")
		}
	}
	for name, e := range loaded.entries {
		e.override, e.lines = data[e.key()], strings.Join(lines[name], "")
		loaded.entries[name] = e
		loaded.size += e.size()
	}
	return loaded
}

// put writes an entry in place of what its name had. It returns the shards that are touched.
func (s *shards) put(e entry) []*shard {
	var touched []*shard
	target := s.where[e.name]
	if target != nil {
		old := target.entries[e.name]
		if old == e {
			return nil
		}
		if target.size-old.size()+e.size() > maxShardSize {
			touched, target = s.remove(e.name), nil
		}
	}
	if target == nil {
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
	from.size -= from.entries[name].size()
	from.version++
	delete(from.entries, name)
	delete(s.where, name)
	return []*shard{from}
}

// values returns the values and the TTL that a name has for a type; none for a type that isn't served.
func (s *shards) values(name, recordType string) ([]string, int64) {
	in := s.where[name]
	if in == nil || !slices.Contains([]string{dns.TypeA, dns.TypeAAAA, dns.TypeCNAME, dns.TypeTXT}, recordType) {
		return nil, 0
	}
	var (
		values []string
		ttl    int64
	)
	for line := range strings.Lines(in.entries[name].lines) {
		if rr, err := miekgdns.NewRR(line); err == nil && rr != nil && rr.Header().Rrtype == miekgdns.StringToType[recordType] {
			values, ttl = append(values, dns.ValueOf(rr)), int64(rr.Header().Ttl)
		}
	}
	slices.Sort(values)
	return values, ttl
}

// room returns the first shard with room, or a new one. There are few shards, so they are just looked through.
func (s *shards) room(size int) *shard {
	for _, name := range s.names {
		candidate := s.get(name)
		if candidate.size+size <= shardSize || len(candidate.entries) == 0 {
			return candidate
		}
	}
	return s.get(s.names[maxShards-1])
}

func (s *shards) get(name string) *shard {
	if _, ok := s.all[name]; !ok {
		s.all[name] = &shard{name: name, entries: map[string]entry{}}
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

// versions are those of ConfigMaps that somebody waits for.
type versions map[*shard]uint64

// await returns nil once all are written, or why one is not.
func (p *Provider) await(ctx context.Context, wanted versions) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.written.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, version := range wanted {
		for s.written < version {
			if ctx.Err() != nil {
				return cmp.Or(s.failure, ctx.Err())
			}
			p.written.Wait()
		}
	}
	return nil
}

// update renders names, has the ConfigMaps written that this changes, and returns what has to be written until all of the
// names are as they are wanted.
func (p *Provider) update(names ...string) versions {
	out := versions{}
	for _, name := range names {
		for _, s := range p.renderName(name) {
			s.names++
			out[s] = s.version
			p.queue.AddAfter(s.name, p.DNS.CoreDNS.BatchWindow.Duration)
		}
		if in, ok := p.shards.where[name]; ok {
			out[in] = in.version
		}
	}
	return out
}

// updateWhere renders the names of the records that a function chooses.
func (p *Provider) updateWhere(chosen func(dns.Record) bool) {
	for _, record := range p.desired.owners {
		if chosen(record) {
			p.update(record.Name)
		}
	}
}

// renderName puts a name into its ConfigMap, and returns those that this changes.
func (p *Provider) renderName(name string) []*shard {
	records := p.desired.effective(name)
	zone, ok := dns.ZoneOf(name, p.DNS.Zones)
	if len(records) == 0 || !ok {
		return p.shards.remove(name)
	}
	service := ""
	if found, ok := p.gateways.find(records); ok {
		service = found.service.Name + "." + found.service.Namespace + ".svc." + p.DNS.CoreDNS.ClusterDomain
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

// writeShard writes a ConfigMap that has changed, or that somebody else has, or deletes it if nothing is in it. What changes
// meanwhile is in the queue again.
func (p *Provider) writeShard(ctx context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shards.get(name)
	version, remove := s.version, len(s.entries) == 0
	if s.written == version {
		if restore, err := p.mustRestore(ctx, s); err != nil || !restore {
			return err
		}
		start := time.Now()
		if p.restores.IsInBackOffSinceUpdate(name, start) {
			p.queue.AddAfter(name, p.restores.Get(name))
			return nil
		}
		p.restores.Next(name, start)
		p.Log.Info("Restoring a ConfigMap that is not as it was written", "configMap", name)
	}
	if s.exists || !remove {
		// Generations grow even if the ConfigMap with the last one is lost, as the time does.
		start := time.Now()
		generation := max(s.generation+1, uint64(start.UnixMicro())) // #nosec G115 -- not negative.
		configMap := p.configMap(s, generation)
		exists := s.exists
		p.Metrics.Batch(s.names)
		s.names = 0

		p.mu.Unlock()
		err := p.send(ctx, configMap, exists, remove)
		p.mu.Lock()
		p.Metrics.Written(time.Since(start), len(p.shards.where), err)
		if err != nil {
			s.failure = fmt.Errorf("writing ConfigMap %s/%s: %w", configMap.Namespace, name, err)
			return s.failure
		}
		s.exists, s.generation = !remove, generation
		if !remove {
			s.resourceVersion = configMap.ResourceVersion
		}
	}
	s.written, s.failure = version, nil
	p.written.Broadcast()
	return nil
}

// mustRestore reports whether a ConfigMap is not as it was written, as far as the cache tells.
func (p *Provider) mustRestore(ctx context.Context, s *shard) (bool, error) {
	key, found := client.ObjectKey{Namespace: p.DNS.CoreDNS.Namespace, Name: s.name}, &corev1.ConfigMap{}
	err := p.Cache.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		s.exists = false
		return len(s.entries) > 0, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading ConfigMap %s from the cache: %w", key, err)
	}
	if order, err := resourceversion.CompareResourceVersion(found.ResourceVersion, s.resourceVersion); err == nil && order <= 0 {
		return false, nil // It is the last one that was written, or the cache is behind.
	}
	s.exists = true
	wanted := p.configMap(s, s.generation)
	// This is what matters to CoreDNS and to the garbage collector.
	isAsWritten := len(s.entries) > 0 && maps.Equal(found.Data, wanted.Data) && len(found.BinaryData) == 0 &&
		equality.Semantic.DeepDerivative(wanted.Labels, found.Labels) &&
		equality.Semantic.DeepDerivative(wanted.Annotations, found.Annotations) &&
		equality.Semantic.DeepDerivative(wanted.OwnerReferences, found.OwnerReferences)
	return !isAsWritten, nil
}

// send writes a ConfigMap whatever is there: what was edited by hand in between is not to survive.
func (p *Provider) send(ctx context.Context, configMap *corev1.ConfigMap, exists, remove bool) error {
	if remove {
		return client.IgnoreNotFound(p.Client.Delete(ctx, configMap))
	}
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
			Namespace:       p.DNS.CoreDNS.Namespace,
			Name:            s.name,
			Labels:          p.labels(),
			Annotations:     map[string]string{AnnotationGeneration: strconv.FormatUint(generation, 10)},
			OwnerReferences: []metav1.OwnerReference{p.owner},
		},
		Data: s.data(),
	}
}

func (p *Provider) labels() map[string]string {
	return map[string]string{LabelConfig: "true", LabelInstance: p.Place}
}

// configMapChanged has a ConfigMap looked at: it may have been changed by somebody else.
func (p *Provider) configMapChanged(found *corev1.ConfigMap, _ bool) {
	if p.shards.may(found.Name) {
		p.queue.AddAfter(found.Name, p.DNS.CoreDNS.BatchWindow.Duration)
	}
}
