// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gardener/gardener-extension-provider-local/test/audit"
)

// ClassCheck judges from the audit log of the runtime cluster, which is its own first seed, whether both instances of an extension wrote only
// to extension objects of their classes, and whether they shared any other object. It looks at what they wrote since a time; the zero
// time is the beginning of the log. shared are patterns (path.Match) of RESOURCE/NAMESPACE/NAME that both may write to. The error
// says how many writes were wrong, or that the log proves nothing as an instance wrote nothing.
func (l Landscape) ClassCheck(extension string, since time.Time, shared []string) error {
	for _, pattern := range shared {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("--shared %s: %w", pattern, err)
		}
	}
	if !exists(l.Layout.AuditLog()) {
		return errors.New("there is no audit log; bring a landscape up with " + l.make("up"))
	}
	// Names of ControllerInstallations are generated from that of the registration.
	ofSeed := regexp.MustCompile("^extension-" + regexp.QuoteMeta(extension) + "(-[a-z0-9]{5})?$")
	garden := audit.Instance{Name: "garden", Classes: []string{"garden"}, In: func(namespace string) bool { return namespace == "runtime-extension-"+extension }}
	seed := audit.Instance{Name: "seed", Classes: []string{"seed", "shoot"}, In: ofSeed.MatchString}
	events, err := audit.ReadFolder(l.Layout.AuditLog(), func(e audit.Event) bool {
		if garden.Sent(e) || seed.Sent(e) {
			return !e.Done.Before(since)
		}
		return e.ObjectRef.Group == audit.ExtensionsGroup
	})
	if err != nil {
		return err
	}
	return judgeClasses(l.Out, extension, events, shared, garden, seed)
}

// mostWrites is how many wrong writes are printed.
const mostWrites = 20

func judgeClasses(out io.Writer, extension string, events []audit.Event, shared []string, instances ...audit.Instance) error {
	judgement := audit.Judge(events, instances...)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "INSTANCE\tCLASS\tWRITES")
	var silent []string
	for _, instance := range instances {
		writes := judgement.Writes[instance.Name]
		for _, class := range slices.Sorted(maps.Keys(writes)) {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%d\n", instance.Name, class, writes[class])
		}
		if !slices.ContainsFunc(instance.Classes, func(class string) bool { return writes[class] > 0 }) {
			silent = append(silent, "that of the "+instance.Name)
		}
	}
	both := slices.DeleteFunc(audit.Shared(events, instances...), func(o audit.Object) bool {
		return slices.ContainsFunc(shared, func(pattern string) bool {
			is, _ := path.Match(pattern, o.Resource+"/"+o.Namespace+"/"+o.Name)
			return is
		})
	})
	if err := table.Flush(); err != nil {
		return err
	}
	wrong := judgement.Violations
	for _, o := range both {
		wrong = append(wrong, fmt.Sprintf("both instances wrote to %s %s/%s", o.Resource, o.Namespace, o.Name))
	}
	for _, line := range wrong[:min(len(wrong), mostWrites)] {
		_, _ = fmt.Fprintln(out, line)
	}
	switch {
	case len(wrong) > mostWrites:
		return fmt.Errorf("the instances of %s do not keep to their classes: %d cases, of which %d are above", extension, len(wrong), mostWrites)
	case len(wrong) > 0:
		return fmt.Errorf("the instances of %s do not keep to their classes: %d cases, above", extension, len(wrong))
	case len(silent) > 0:
		return fmt.Errorf("this proves nothing about %s: %s wrote to no extension object of its classes. Have it serve some (spec.extensions of Garden, Seed and Shoot)",
			extension, strings.Join(silent, " and "))
	}
	_, err := fmt.Fprintf(out, "Both instances of %s keep to the objects of their classes.\n", extension)
	return err
}
