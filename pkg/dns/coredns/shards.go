// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	miekgdns "github.com/miekg/dns"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// shardSize is up to which size a ConfigMap is filled. Every write sends a whole ConfigMap, so it bounds what one more
// record costs; a ConfigMap may have 1 MiB, which leaves plenty for entries that grow.
const (
	shardSize    = 64 << 10
	maxShardSize = 256 << 10
	// maxShards is how many ConfigMaps there may be: an instance may write to those whose names are known beforehand. That is
	// room for some 50,000 names, and the last one takes whatever else comes.
	maxShards = 256
)

// shard is one ConfigMap.
type shard struct {
	name    string
	entries map[string]entry
	size    int

	// dirty tells that it has to be written, or deleted if it is empty.
	dirty bool
	// exists tells that there is such a ConfigMap; resourceVersion and generation are those of the last write.
	exists          bool
	resourceVersion string
	generation      uint64
	// waiting are those who wait until it is written.
	waiting []*ticket
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
	target.dirty = true
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
	from.dirty = true
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
