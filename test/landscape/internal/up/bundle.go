// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
)

// logLines is how much of each log a bundle has.
const logLines = 500

// bundled are the kinds of objects in a bundle. None may have secrets.
func bundled(on place) []schema.GroupVersionKind {
	core := func(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }
	if on == virtualGarden {
		return []schema.GroupVersionKind{seeds, shoots, gardenlets, controllerInstallations, controllerRegistrations, core("Event")}
	}
	kinds := []schema.GroupVersionKind{gardens, operatorExtensions, etcds, managedResources, machines, deployments, core("Node"), core("Pod"), core("Event"), core("Namespace")}
	for _, kind := range cluster.ExtensionKinds() {
		kinds = append(kinds, cluster.ExtensionKind(kind))
	}
	return kinds
}

// Bundle writes a gzipped tar for an issue: what explain and status say, objects without Secrets, events, and the ends of all logs, also
// of the journals of machines. What can't be read is in errors.txt.
func (l Landscape) Bundle(ctx context.Context, file string) (err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // #nosec G304 -- the user's choice.
	if err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	zipper := gzip.NewWriter(out)
	b := &bundle{Landscape: l, files: tar.NewWriter(zipper)}
	b.texts(ctx)
	for name, on := range map[string]place{"runtime": runtimeCluster, "virtual-garden": virtualGarden} {
		b.cluster(ctx, name, on)
	}
	b.logs()
	b.add("errors.txt", []byte(strings.Join(b.failed, "\n")))
	if err := errors.Join(b.err, b.files.Close(), zipper.Close(), out.Close(), l.Invoker.Own(file)); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	_, err = fmt.Fprintf(l.Out, "wrote %s: objects without Secrets, events and logs. Read it before you give it to others.\n", file)
	return err
}

// bundle is one that is being written.
type bundle struct {
	Landscape
	files *tar.Writer
	// failed are what could not be read, and err is why writing failed.
	failed []string
	err    error
}

func (b *bundle) add(name string, content []byte) {
	if b.err != nil || len(content) == 0 {
		return
	}
	b.err = b.files.WriteHeader(&tar.Header{Name: path.Join("landscape", name), Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content)), ModTime: b.Now()})
	if b.err == nil {
		_, b.err = b.files.Write(content)
	}
}

func (b *bundle) miss(what string, err error) {
	if err != nil {
		b.failed = append(b.failed, what+": "+err.Error())
	}
}

// texts are what other commands print.
func (b *bundle) texts(ctx context.Context) {
	for name, say := range map[string]func(Landscape) error{
		"explain.txt": func(l Landscape) error { return l.Explain(ctx, "") },
		"status.txt":  func(l Landscape) error { return l.Status(ctx) },
	} {
		var text bytes.Buffer
		l := b.Landscape
		l.Out = &text
		b.miss(name, say(l))
		b.add(name, text.Bytes())
	}
}

func (b *bundle) cluster(ctx context.Context, name string, on place) {
	kubeconfig := b.kubeconfig(on)
	if !exists(kubeconfig) {
		return
	}
	in, err := connect(kubeconfig)
	if err != nil {
		b.miss(name, err)
		return
	}
	for _, kind := range bundled(on) {
		objects, err := cluster.List(ctx, in.client, kind)
		b.miss(name+"/"+kind.Kind, err)
		var all bytes.Buffer
		for i := range objects {
			objects[i].SetManagedFields(nil)
			// The files of a machine may have credentials.
			unstructured.RemoveNestedField(objects[i].Object, "spec", "files")
			content, err := yaml.Marshal(&objects[i])
			b.miss(name+"/"+kind.Kind, err)
			_, _ = fmt.Fprintf(&all, "---\n%s", content)
		}
		b.add(path.Join(name, strings.ToLower(kind.GroupKind().String())+".yaml"), all.Bytes())
		if kind.Kind == "Pod" {
			b.podLogs(ctx, name, in, objects)
		}
	}
}

func (b *bundle) podLogs(ctx context.Context, name string, in *explained, pods []unstructured.Unstructured) {
	for _, pod := range pods {
		containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
		for _, container := range containers {
			of, _, _ := unstructured.NestedString(container.(map[string]any), "name")
			content, err := in.clientset.CoreV1().Pods(pod.GetNamespace()).GetLogs(pod.GetName(), &corev1.PodLogOptions{Container: of, TailLines: ptr.To[int64](logLines)}).DoRaw(ctx)
			b.miss("log of "+nameOf(&pod)+" "+of, err)
			b.add(path.Join(name, "logs", pod.GetNamespace(), pod.GetName(), of+".log"), content)
		}
		if labels := pod.GetLabels(); labels["app"] != "machine" || labels["machine-provider"] != "local" {
			continue
		}
		journal, err := b.journal(ctx, in.kubeconfig, &pod)
		b.miss("journal of "+nameOf(&pod), err)
		b.add(path.Join(name, "logs", pod.GetNamespace(), pod.GetName(), "journal.log"), journal)
	}
}

// journal reads the end of a machine's journal. One that does not answer must not take the time of all others.
func (b *bundle) journal(ctx context.Context, kubeconfig string, pod *unstructured.Unstructured) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, virtualTimeout)
	defer cancel()
	// #nosec G204 -- our own kubectl.
	return exec.CommandContext(ctx, b.Layout.Kubectl(), "--kubeconfig", kubeconfig, "exec", "-n", pod.GetNamespace(), pod.GetName(), "--",
		"journalctl", "--no-pager", "-n", strconv.Itoa(logLines)).Output()
}

// logs are those of the processes on this machine.
func (b *bundle) logs() {
	names, err := b.LogNames()
	b.miss("logs", err)
	for _, name := range names {
		b.add(path.Join("logs", filepath.Base(name)+".log"), []byte(b.Processes().Tail(name, logLines)))
	}
}
