// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// interval is the time between two requests.
	interval = 100 * time.Millisecond
	// patience is how long a request may take, with its connection.
	patience = 2 * time.Second
	// askEnv names a kubeconfig. With it this program is not the test, but asks that API server, inside of the namespaces.
	askEnv = "ASK_KUBECONFIG"
)

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(askEnv); kubeconfig != "" {
		if err := ask(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// answer is what became of a request.
type answer struct {
	Begin, End time.Time
	Error      string
}

// ask reads a Namespace every interval until standard input ends, each time by a new connection and whatever became of the
// requests before, and writes the answers to standard output.
func ask(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
	get := func() string {
		response, err := client.Get(config.Host + "/api/v1/namespaces/default")
		if err != nil {
			return err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err.Error()
		}
		if response.StatusCode != http.StatusOK {
			return response.Status
		}
		return ""
	}

	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	var (
		running sync.WaitGroup
		mutex   sync.Mutex
		answers []answer
	)
	ticker := time.NewTicker(interval)
	for {
		select {
		case <-ended:
			running.Wait()
			return json.NewEncoder(os.Stdout).Encode(answers)
		case <-ticker.C:
		}
		running.Go(func() {
			a := answer{Begin: time.Now()}
			a.Error = get()
			a.End = time.Now()
			mutex.Lock()
			defer mutex.Unlock()
			answers = append(answers, a)
		})
	}
}

// asker is a running ask.
type asker struct {
	machine
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout bytes.Buffer
}

func (m machine) ask(kubeconfig string) *asker {
	m.Helper()
	g := NewWithT(m)
	a := &asker{machine: m, cmd: m.docker.Command(m.Context(), os.Args[0])}
	a.cmd.Env = append(a.cmd.Env, askEnv+"="+kubeconfig)
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, os.Stderr
	var err error
	a.stdin, err = a.cmd.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.cmd.Start()).To(Succeed())
	return a
}

// answers ends asking, and returns what was answered by the order of requests.
func (a *asker) answers() []answer {
	a.Helper()
	g := NewWithT(a)
	g.Expect(a.stdin.Close()).To(Succeed())
	g.Expect(a.cmd.Wait()).To(Succeed())
	var answers []answer
	g.Expect(json.Unmarshal(a.stdout.Bytes(), &answers)).To(Succeed())
	slices.SortFunc(answers, func(a, b answer) int { return a.Begin.Compare(b.Begin) })
	return answers
}

// summary is what a client sees of the answers to requests between two times.
type summary struct {
	// Asked requests, and the share of them that was answered.
	Asked int
	Share float64
	// Gap is the longest time without an answer.
	Gap time.Duration
	// Errors are the different ones, with their number.
	Errors map[string]int
}

func summarize(answers []answer, from, to time.Time) summary {
	s := summary{Errors: map[string]int{}}
	good := []time.Time{from, to}
	for _, a := range answers {
		if a.Begin.Before(from) || a.Begin.After(to) {
			continue
		}
		s.Asked++
		if a.Error == "" {
			good = append(good, a.End)
		} else {
			s.Errors[a.Error[strings.LastIndex(a.Error, ": ")+1:]]++
		}
	}
	s.Share = float64(len(good)-2) / float64(s.Asked)
	slices.SortFunc(good, time.Time.Compare)
	for i := range good[1:] {
		s.Gap = max(s.Gap, good[i+1].Sub(good[i]))
	}
	return s
}
