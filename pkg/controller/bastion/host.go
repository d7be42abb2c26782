// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"errors"
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// namePrefix begins the names of all objects of a Bastion. The name of the Bastion follows.
const namePrefix = "bastion-"

// host is what a Bastion asks for.
type host struct {
	// bastion is the name of the Bastion.
	bastion  string
	userData []byte
	image    image
	// ingress has the ranges of those who may connect, in their canonical form.
	ingress []networkingv1.IPBlock
}

// newHost validates a Bastion. What a user has to put right is a configuration problem.
func newHost(bastion *extensionsv1alpha1.Bastion, cluster *extensioncluster.Cluster) (*host, error) {
	if messages := validation.IsDNS1123Label(namePrefix + bastion.Name); len(messages) > 0 {
		return nil, common.ConfigurationProblem(
			fmt.Errorf("the name %q does not do for a bastion, whose pod is named %s%s (%s): create a Bastion of another name", bastion.Name, namePrefix, bastion.Name, strings.Join(messages, "; ")),
			common.RetryMistake,
		)
	}
	if len(bastion.Spec.UserData) == 0 {
		return nil, common.ConfigurationProblem(errors.New("spec.userData is empty: set the script that lets people in"), common.RetryMistake)
	}
	ingress, errs := parseIngress(bastion.Spec.Ingress)
	if len(errs) > 0 {
		return nil, common.ConfigurationProblem(errs.ToAggregate(), common.RetryMistake)
	}

	profile := cluster.CloudProfile()
	if profile == nil {
		return nil, common.NoCluster(bastion.Namespace, "a CloudProfile")
	}
	image, err := findImage(profile)
	if err != nil {
		return nil, err
	}
	return &host{bastion: bastion.Name, userData: bastion.Spec.UserData, image: image, ingress: ingress}, nil
}

// keyOf returns the key of each object of a Bastion, given the namespace of the machines.
func keyOf(namespace, bastion string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: namePrefix + bastion}
}
