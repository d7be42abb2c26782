// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

const (
	readTimeout = 10 * time.Second
	// stopTimeout is for requests that are under way when the server is told to stop.
	stopTimeout = 5 * time.Second
	// servicePrefix is that of the metrics of k8s.io/cloud-provider's service controller.
	servicePrefix = "service_controller_"
)

// Server serves /healthz, /readyz and /metrics.
type Server struct {
	// Config says where, and whether with a certificate.
	Config configv1alpha1.CloudControllerServer
	// Healthy and Ready are what /healthz and /readyz tell.
	Healthy, Ready healthz.Checker
}

// Run serves until ctx ends. It fails if it can't listen, or if there is to be a certificate and none can be read; a new
// one is taken up at once.
func (s *Server) Run(ctx context.Context) error {
	address := net.JoinHostPort(s.Config.BindAddress, strconv.Itoa(s.Config.Port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serving metrics and health: %w", err)
	}
	return s.serve(ctx, listener)
}

func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: s.handler(), ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout}
	group, ctx := errgroup.WithContext(ctx)

	if directory := s.Config.CertificateDirectory; directory != "" {
		certificates, err := certwatcher.New(filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key"))
		if err != nil {
			return errors.Join(fmt.Errorf("reading the certificate of the server: %w", err), listener.Close())
		}
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificates.GetCertificate, NextProtos: []string{"h2", "http/1.1"},
		})
		group.Go(func() error { return certificates.Start(ctx) })
	}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving metrics and health: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return server.Shutdown(stop)
	})
	return group.Wait()
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", healthz.CheckHandler{Checker: s.Healthy})
	mux.Handle("/readyz", healthz.CheckHandler{Checker: s.Ready})
	// Both registries have the metrics of the process.
	gatherers := prometheus.Gatherers{metrics.Registry, only(servicePrefix, legacyregistry.DefaultGatherer)}
	mux.Handle("/metrics", promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	return mux
}

// only returns the metrics whose names have a prefix.
func only(prefix string, gatherer prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := gatherer.Gather()
		var out []*dto.MetricFamily
		for _, family := range all {
			if strings.HasPrefix(family.GetName(), prefix) {
				out = append(out, family)
			}
		}
		return out, err
	})
}
