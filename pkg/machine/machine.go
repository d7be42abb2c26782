// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package machine holds what all parts of this extension know of machines, which are pods: their names and labels, and
// how much of a node they get. The controllers for Infrastructures, Workers and Bastions, the webhook for Nodes and the
// machine driver use it, so that none of them has to know another.
package machine

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

const (
	// LabelApp with the value AppMachine is on all pods and Services of machines, and with AppBastion on those of bastions.
	LabelApp = "app"
	// AppMachine is a value of LabelApp.
	AppMachine = "machine"
	// AppBastion is a value of LabelApp.
	AppBastion = "bastion"
	// LabelProvider with the value Provider tells the machines of this extension's driver.
	LabelProvider = "machine-provider"
	// Provider is the value of LabelProvider, and the provider that a MachineClass names.
	Provider = "local"
	// LabelMachine names the Machine that a pod, Service or Secret belongs to.
	LabelMachine = "machine"
	// ContainerName is the name of the container in the pod of a machine.
	ContainerName = "node"
	// AllowedCIDRsFlag is the flag of the machine driver with the ranges to which servers of kubeconfigs may resolve.
	AllowedCIDRsFlag = "remote-allowed-cidrs"

	podPrefix  = "machine-"
	hashLength = 8
)

// Selector selects the pods of all machines.
func Selector() map[string]string {
	return map[string]string{LabelApp: AppMachine, LabelProvider: Provider}
}

// Labels are the labels of everything that belongs to a machine, given the name of the Machine.
func Labels(name string) map[string]string {
	labels := Selector()
	labels[LabelMachine] = name
	return labels
}

// PodName is the name of the pod and of the headless Service of a machine, given the name of the Machine. It is the name
// of its Node and its provider ID, too. It is a DNS label: the end of a name that is too long, as those of a shoot and a
// pool with long names together are, gives way to a hash.
func PodName(name string) string {
	pod := podPrefix + name
	if len(pod) <= validation.DNS1123LabelMaxLength {
		return pod
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:hashLength]
	return strings.TrimRight(pod[:validation.DNS1123LabelMaxLength-1-hashLength], "-.") + "-" + hash
}

// Name is the name of the Machine, given that of its pod if it was short enough. The label LabelMachine always has it.
func Name(podName string) string { return strings.TrimPrefix(podName, podPrefix) }

// RemoteNamespace is the namespace of a shoot's machines in a cluster other than the seed, given the shoot's technical ID,
// which is the name of its namespace in the seed.
func RemoteNamespace(technicalID string) string { return "infra-" + technicalID }

// IPPoolName is the name of Calico's IPPool for the machines of a shoot.
func IPPoolName(technicalID string, family gardencorev1beta1.IPFamily) string {
	return "shoot-machines-" + technicalID + "-" + strings.ToLower(string(family))
}
