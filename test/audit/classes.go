// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ExtensionsGroup is the API group of the objects that have a class.
const ExtensionsGroup = "extensions.gardener.cloud"

// ClassOfNone is the class of an object that has none in its spec, as Gardener has it.
const ClassOfNone = "shoot"

// Instance is a program of the extension as the API server knows it.
type Instance struct {
	// Name is for messages, and names it in a Judgement.
	Name string
	// Classes are those whose objects it may write.
	Classes []string
	// In reports whether the instance runs in a namespace, as whose ServiceAccounts it is known.
	In func(namespace string) bool
}

// Sent reports whether a request is the instance's.
func (i Instance) Sent(e Event) bool {
	account, found := strings.CutPrefix(e.User.Username, "system:serviceaccount:")
	namespace, _, separated := strings.Cut(account, ":")
	return found && separated && i.In(namespace)
}

// Judgement is what a log says about instances.
type Judgement struct {
	// Writes counts the successful writes to extension objects, by the name of the instance and by class.
	Writes map[string]map[string]int
	// Violations are the writes to objects of other classes, and those of whose class the log says nothing.
	Violations []string
}

// Judge looks at all successful writes of instances to extension objects. An object has the class that it has in the answer
// to the write or, where an answer has no object, in the one before.
func Judge(events []Event, instances ...Instance) Judgement {
	out := Judgement{Writes: map[string]map[string]int{}}
	known := classes(events)
	for _, event := range events {
		if !event.IsWrite() || !event.Succeeded() || event.ObjectRef.Group != ExtensionsGroup {
			continue
		}
		for _, instance := range instances {
			if !instance.Sent(event) {
				continue
			}
			class, found := known.at(event)
			switch {
			case !found:
				out.Violations = append(out.Violations, fmt.Sprintf("%s: the log does not tell of which class that is", event))
			case !slices.Contains(instance.Classes, class):
				out.Violations = append(out.Violations, fmt.Sprintf("%s: it is of class %s, but the %s instance is for %v", event, class, instance.Name, instance.Classes))
			}
			if found {
				if out.Writes[instance.Name] == nil {
					out.Writes[instance.Name] = map[string]int{}
				}
				out.Writes[instance.Name][class]++
			}
		}
	}
	return out
}

// Shared are the objects, of any kind but extensions', that several of the instances wrote to, sorted.
func Shared(events []Event, instances ...Instance) []Object {
	writers := map[Object]map[string]bool{}
	for _, event := range events {
		if !event.IsWrite() || !event.Succeeded() || event.ObjectRef.Group == ExtensionsGroup || event.ObjectRef.Name == "" {
			continue
		}
		ref := event.ObjectRef
		ref.Subresource = ""
		for _, instance := range instances {
			if instance.Sent(event) {
				if writers[ref] == nil {
					writers[ref] = map[string]bool{}
				}
				writers[ref][instance.Name] = true
			}
		}
	}
	maps.DeleteFunc(writers, func(_ Object, by map[string]bool) bool { return len(by) < 2 })
	return slices.SortedFunc(maps.Keys(writers), func(a, b Object) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// Created are the UIDs of all objects whose creation the log has.
func Created(events []Event) map[string]bool {
	out := map[string]bool{}
	for _, event := range events {
		if event.Response.Code == 201 && event.ObjectRef.Subresource == "" && event.Stored != nil && event.Stored.Metadata.UID != "" {
			out[event.Stored.Metadata.UID] = true
		}
	}
	return out
}

// history has the classes of objects over time.
type history map[Object][]moment

type moment struct {
	done  time.Time
	class string
}

func classes(events []Event) history {
	out := history{}
	for _, event := range events {
		if class, found := answered(event); found {
			key := keyOf(event)
			out[key] = append(out[key], moment{done: event.Done, class: class})
		}
	}
	for _, moments := range out {
		slices.SortStableFunc(moments, func(a, b moment) int { return a.done.Compare(b.done) })
	}
	return out
}

// at tells the class of the object that a request is about.
func (h history) at(e Event) (string, bool) {
	if class, found := answered(e); found {
		return class, true
	}
	class, found := "", false
	for _, m := range h[keyOf(e)] {
		if m.done.After(e.Done) {
			break
		}
		class, found = m.class, true
	}
	return class, found
}

// answered tells the class in the answer to a request.
func answered(e Event) (string, bool) {
	if !e.Succeeded() || e.ObjectRef.Group != ExtensionsGroup || e.Stored == nil || e.Stored.Spec == nil {
		return "", false
	}
	return cmp.Or(e.Stored.Spec.Class, ClassOfNone), true
}

func keyOf(e Event) Object {
	key := e.ObjectRef
	key.Subresource = ""
	if key.Name == "" && e.Stored != nil {
		key.Name = e.Stored.Metadata.Name
	}
	return key
}
