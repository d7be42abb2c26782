// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

// transport answers requests.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

func TestRecorderKnowsAllButWatches(t *testing.T) {
	g := NewWithT(t)
	recorder := &suite.Recorder{}
	client := recorder.Wrap(transport(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodDelete {
			return nil, errors.New("no server")
		}
		return &http.Response{StatusCode: http.StatusConflict}, nil
	}))
	for _, request := range []struct{ method, url string }{
		{http.MethodGet, "/api/v1/services?watch=true"}, {http.MethodGet, "/api/v1/services?watch=1"},
		{http.MethodGet, "/api/v1/services?limit=1"}, {http.MethodPatch, "/api/v1/namespaces/a"}, {http.MethodDelete, "/api/v1/namespaces/a"},
	} {
		_, _ = client.RoundTrip(httptest.NewRequest(request.method, request.url, nil))
	}

	writes := []suite.Request{
		{Method: http.MethodPatch, Path: "/api/v1/namespaces/a", Code: http.StatusConflict},
		{Method: http.MethodDelete, Path: "/api/v1/namespaces/a"},
	}
	g.Expect(recorder.Writes()).To(Equal(writes))
	g.Expect(recorder.List()).To(Equal(append([]suite.Request{{Method: http.MethodGet, Path: "/api/v1/services", Code: http.StatusConflict}}, writes...)))
	recorder.Reset()
	g.Expect(recorder.List()).To(BeEmpty())
}

func TestRecorderWaitsForRequestsUnderWay(t *testing.T) {
	g := NewWithT(t)
	recorder := &suite.Recorder{}
	sent, answer := make(chan struct{}), make(chan struct{})
	client := recorder.Wrap(transport(func(*http.Request) (*http.Response, error) {
		close(sent)
		<-answer
		return &http.Response{StatusCode: http.StatusOK}, nil
	}))
	go func() { _, _ = client.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil)) }()
	<-sent
	listed := make(chan []suite.Request, 1)
	go func() { listed <- recorder.List() }()
	g.Consistently(listed, "50ms").ShouldNot(Receive())
	close(answer)
	g.Eventually(listed).Should(Receive(HaveLen(1)))
}
