// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// driverRules are what the machine driver needs in the namespace of a shoot besides what Gardener's own rules give it, which
// is to write Secrets and to watch Machines: it makes, watches and deletes the Pod of a machine, and makes and deletes the
// headless Service by which it is found. See package driver in pkg/machine.
func driverRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"pods"}, Verbs: []string{"create", "delete", "get", "list", "watch"}},
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"services"}, Verbs: []string{"create", "delete", "get"}},
	}
}

// withRules returns the rules and those wanted ones that are missing in them. Each wanted rule has one group and one resource.
// The rules themselves and their order stay as they are, so that doing it twice is the same as doing it once.
func withRules(rules, wanted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	all := slices.Clip(rules)
	for _, rule := range wanted {
		missing := slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool {
			return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return allows(r, rule.APIGroups[0], rule.Resources[0], verb) })
		})
		if len(missing) > 0 {
			all = append(all, rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: rule.Resources, Verbs: missing})
		}
	}
	return all
}

// allows reports whether a rule allows the verb for all objects of the resource.
func allows(rule rbacv1.PolicyRule, group, resource, verb string) bool {
	return len(rule.ResourceNames) == 0 &&
		contains(rule.APIGroups, group, rbacv1.APIGroupAll) &&
		contains(rule.Resources, resource, rbacv1.ResourceAll) &&
		contains(rule.Verbs, verb, rbacv1.VerbAll)
}

func contains(values []string, value, all string) bool {
	return slices.Contains(values, value) || slices.Contains(values, all)
}
