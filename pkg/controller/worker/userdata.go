// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/worker"
)

// userData fetches the user data of pools, that of each once.
type userData struct {
	client client.Client
	byPool map[string][]byte
}

func newUserData(c client.Client) *userData {
	return &userData{client: c, byPool: map[string][]byte{}}
}

func (u *userData) of(ctx context.Context, namespace string, p *pool) ([]byte, error) {
	if data, ok := u.byPool[p.Name]; ok {
		return data, nil
	}
	data, err := worker.FetchUserData(ctx, u.client, namespace, p.WorkerPool)
	if err != nil {
		return nil, err
	}
	u.byPool[p.Name] = data
	return data, nil
}
