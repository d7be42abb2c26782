// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

const (
	admin           = "admin"
	extensionsGroup = "extensions.gardener.cloud"
)

// object is an extension object as the audit log names it.
type object struct {
	resource, namespace, name string
}

func objectOf(obj extensionsv1alpha1.Object) object {
	var resource string
	switch obj.(type) {
	case *extensionsv1alpha1.BackupBucket:
		resource = "backupbuckets"
	case *extensionsv1alpha1.BackupEntry:
		resource = "backupentries"
	case *extensionsv1alpha1.DNSRecord:
		resource = "dnsrecords"
	case *extensionsv1alpha1.Extension:
		resource = "extensions"
	}
	return object{resource: resource, namespace: obj.GetNamespace(), name: obj.GetName()}
}

// gardenBackup is made for all BackupEntries of the garden.
var gardenBackup = object{resource: "secrets", namespace: gardenNamespace, name: "etcd-backup"}

// ledger is of which class an object was, from each time that the suite created it or changed its class.
type ledger struct {
	lock    sync.Mutex
	classes map[object][]extensionsv1alpha1.ExtensionClass
}

func (l *ledger) note(obj extensionsv1alpha1.Object, class extensionsv1alpha1.ExtensionClass) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.classes[objectOf(obj)] = append(l.classes[objectOf(obj)], class)
}

// term is the time in which an object, or what is made for it, is one instance's.
type term struct {
	user     string
	from, to time.Time
}

func userFor(class extensionsv1alpha1.ExtensionClass) string {
	if class == garden {
		return gardenUser
	}
	return seedUser
}

// terms puts the times of the audit log to the classes of the ledger. While a change is under way, the object is of both
// sides, as nobody can tell when within the request it took place.
func (l *ledger) terms(events []environment.AuditEvent) (map[object][]term, error) {
	changes := map[object][]environment.AuditEvent{}
	for _, event := range events {
		if ref := event.ObjectRef; event.User.Username == admin && event.Succeeded() && ref.Group == extensionsGroup && ref.Subresource == "" &&
			(event.Verb == "create" || event.Verb == "patch") {
			changed := object{resource: ref.Resource, namespace: ref.Namespace, name: ref.Name}
			changes[changed] = append(changes[changed], event)
		}
	}

	out := map[object][]term{}
	for obj, classes := range l.classes {
		if len(changes[obj]) != len(classes) {
			return nil, fmt.Errorf("%v: the suite changed its class %d times, but the audit log says %d", obj, len(classes), len(changes[obj]))
		}
		slices.SortFunc(changes[obj], func(a, b environment.AuditEvent) int { return a.Received.Compare(b.Received) })
		for i, class := range classes {
			current := term{user: userFor(class), from: changes[obj][i].Received, to: time.Now()}
			if i+1 < len(classes) {
				current.to = changes[obj][i+1].Done
			}
			out[obj] = append(out[obj], current)
			if obj.resource == "backupentries" && strings.HasPrefix(obj.name, "garden--") {
				out[gardenBackup] = append(out[gardenBackup], current)
			}
		}
	}
	return out, nil
}

// verdict tells what is wrong with a write of one of the instances, or nothing.
func verdict(event environment.AuditEvent, terms map[object][]term) string {
	if event.ObjectRef.Group == "" && event.ObjectRef.Resource == "services" {
		return verdictOnService(event)
	}
	user, owner, shared := ownerOf(event.ObjectRef)
	switch {
	case shared || user == event.User.Username:
		return ""
	case user != "":
		return "it belongs to " + user
	case len(terms[owner]) == 0:
		return "nobody knows for which extension object it is"
	}
	for _, term := range terms[owner] {
		if term.user == event.User.Username && !event.Done.Before(term.from) && !event.Received.After(term.to) {
			return ""
		}
	}
	return fmt.Sprintf("%v was not of a class of this instance by then", owner)
}

// verdictOnService is verdict for a Service: it names the namespace of the instance that has written it, unless it is one that a
// garden does not need.
func verdictOnService(event environment.AuditEvent) string {
	users := map[string]string{gardenPlace: gardenUser, seedPlace: seedUser, "": seedUser}
	if instance := event.Stored.Metadata.Annotations[loadbalancer.AnnotationInstance]; users[instance] != event.User.Username {
		return fmt.Sprintf("it is of the instance in namespace %q", instance)
	}
	return ""
}

// ownerOf tells to whom an object belongs: always to the same user, to an extension object, or to both instances.
func ownerOf(ref environment.AuditObject) (user string, owner object, shared bool) {
	switch ref.Group + "/" + ref.Resource {
	case extensionsGroup + "/backupbuckets", extensionsGroup + "/backupentries", extensionsGroup + "/dnsrecords", extensionsGroup + "/extensions":
		return "", object{resource: ref.Resource, namespace: ref.Namespace, name: ref.Name}, false
	case "resources.gardener.cloud/managedresources":
		return ownerOfManagedResource(ref.Namespace, ref.Name)
	case "/secrets":
		return ownerOfSecret(ref.Namespace, ref.Name)
	case "/configmaps":
		// Those with the records, one or more for each instance.
		return userOfPlace(strings.TrimPrefix(ref.Name, coredns.ConfigMapPrefix)), object{}, false
	case "events.k8s.io/events":
		// Those about a Service may be of both.
		return "", object{}, ref.Namespace != gardenPlace && ref.Namespace != seedPlace
	case "coordination.k8s.io/leases", "/events":
		if ref.Namespace == gardenPlace {
			return gardenUser, object{}, false
		}
		return seedUser, object{}, false
	}
	return "", object{}, false
}

func ownerOfManagedResource(namespace, name string) (string, object, bool) {
	switch {
	case name == coredns.ManagedResourceName:
		// The one CoreDNS of the cluster. Each instance names its own namespace among the owners.
		return "", object{}, true
	case strings.HasPrefix(name, coredns.ManagedResourceName+"-"):
		return userOfPlace(strings.TrimPrefix(name, coredns.ManagedResourceName+"-")), object{}, false
	default:
		return "", object{resource: "extensions", namespace: namespace, name: name}, false
	}
}

func ownerOfSecret(namespace, name string) (string, object, bool) {
	for _, prefix := range []string{"generated-bucket-", "backup-bucket-"} {
		if bucket, ok := strings.CutPrefix(name, prefix); ok {
			return "", object{resource: "backupbuckets", name: bucket}, false
		}
	}
	if entry, ok := strings.CutPrefix(name, "backup-entry-"); ok {
		return "", object{resource: "backupentries", name: "garden--" + entry}, false
	}
	switch name {
	case ofGarden:
		return gardenUser, object{}, false
	case ofSeed:
		return seedUser, object{}, false
	}
	if name == gardenBackup.name {
		if namespace == gardenBackup.namespace {
			return "", gardenBackup, false
		}
		return seedUser, object{}, false
	}
	if managedResource, ok := strings.CutPrefix(name, "managedresource-"); ok {
		// The hash of the data is behind the last hyphen.
		return ownerOfManagedResource(namespace, managedResource[:strings.LastIndex(managedResource, "-")])
	}
	return "", object{resource: "secrets", namespace: namespace, name: name}, false
}

func userOfPlace(rest string) string {
	switch {
	case strings.HasPrefix(rest, "garden"):
		return gardenUser
	case strings.HasPrefix(rest, "seed"):
		return seedUser
	default:
		return "nobody"
	}
}

// isOfInstance lets the requests of both instances through.
func isOfInstance(event environment.AuditEvent) bool {
	return event.User.Username == gardenUser || event.User.Username == seedUser
}

// history is all that was written to an object and to the extension object to which it belongs, for messages.
func history(events []environment.AuditEvent, of environment.AuditObject) string {
	var lines []string
	_, owner, _ := ownerOf(of)
	for _, event := range events {
		ref := event.ObjectRef
		if name := (object{ref.Resource, ref.Namespace, ref.Name}); event.IsWrite() && (name == owner || name == object{of.Resource, of.Namespace, of.Name}) {
			lines = append(lines, "\t"+event.String()+", done "+event.Done.Format("05.000000"))
		}
	}
	return strings.Join(lines, "\n")
}
