// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"bytes"
	"errors"
	"testing"

	"github.com/andybalholm/brotli"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func compressed(t *testing.T, data []byte) []byte {
	t.Helper()
	out, err := newCompressor(defaultLevel).compress(data)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return out
}

func TestObjectsReadsBackWhatWasWritten(t *testing.T) {
	g := NewWithT(t)
	objects, err := Objects(map[string][]byte{"data.yaml.br": compressed(t, text(t, testObjects()...))})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(5))
	g.Expect(text(t, objects...)).To(Equal(text(t, testObjects()...)))

	size, _, _ := unstructured.NestedFieldNoCopy(objects[4].(*unstructured.Unstructured).Object, "spec", "size")
	g.Expect(size).To(Equal(int64(1000000)), "an integer stays one")
}

func TestObjectsReadsAllKeysInOrderAndSkipsEmptyDocuments(t *testing.T) {
	g := NewWithT(t)
	objects, err := Objects(map[string][]byte{
		"b.yaml":    []byte("---\n# nothing\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: second}\n"),
		"a.yaml.br": compressed(t, []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: first}\n")),
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(2))
	g.Expect(objects[0].GetName()).To(Equal("first"))
	g.Expect(objects[1].GetName()).To(Equal("second"))
}

func TestObjectsOfAnEmptyManagedResourceAreNone(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Objects(map[string][]byte{"data.yaml.br": compressed(t, nil)})).To(BeEmpty())
	g.Expect(Objects(nil)).To(BeEmpty())
}

func TestObjectsDoesNotUnfoldABomb(t *testing.T) {
	g := NewWithT(t)

	var bomb bytes.Buffer
	writer := brotli.NewWriterLevel(&bomb, 2)
	for range MaxDecompressedBytes>>20 + 1 {
		_, err := writer.Write(bytes.Repeat([]byte("#"), 1<<20))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(writer.Close()).To(Succeed())
	g.Expect(bomb.Len()).To(BeNumerically("<", 10_000))

	_, err := Objects(map[string][]byte{"data.yaml.br": bomb.Bytes()})
	var tooLarge *TooLargeError
	g.Expect(err).To(MatchError(ContainSubstring(`key "data.yaml.br" unfolds to more than the limit of 33554432 bytes`)))
	g.Expect(errors.As(err, &tooLarge)).To(BeTrue())
	g.Expect(*tooLarge).To(Equal(TooLargeError{Key: "data.yaml.br", Limit: MaxDecompressedBytes}))
}

func TestTheLimitCountsAllKeysTogetherToTheByte(t *testing.T) {
	g := NewWithT(t)
	data := map[string][]byte{"a.br": compressed(t, []byte("#1234\n")), "b.br": compressed(t, []byte("#567\n"))}

	g.Expect(objects(data, 11)).To(BeEmpty())

	_, err := objects(data, 10)
	var tooLarge *TooLargeError
	g.Expect(errors.As(err, &tooLarge)).To(BeTrue())
	g.Expect(*tooLarge).To(Equal(TooLargeError{Key: "b.br", Limit: 10}))
}

func TestObjectsRefusesWhatIsBroken(t *testing.T) {
	whole := compressed(t, sample(1000))
	for name, tt := range map[string]struct {
		data    map[string][]byte
		message string
	}{
		"a stream that ends too early": {map[string][]byte{"x.br": whole[:len(whole)/2]}, `key "x.br" is not a Brotli stream`},
		"a stream that is none":        {map[string][]byte{"x.br": []byte("apiVersion: v1")}, `key "x.br" is not a Brotli stream`},
		"YAML that is none":            {map[string][]byte{"x": []byte("apiVersion: v1\nkind: X\n---\n\tc")}, `key "x": document 2`},
		"a document that is no object": {map[string][]byte{"x": []byte("[1, 2]")}, `key "x": document 1`},
		"an object without kind":       {map[string][]byte{"x": []byte("apiVersion: v1\nmetadata: {name: x}")}, "'Kind' is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Objects(tt.data)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tt.message)))
		})
	}
}

func FuzzObjects(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n"))
	f.Add([]byte("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"))
	f.Add([]byte("---\n---\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Neither may panic or read beyond the limit; what is read has a kind.
		for _, key := range []string{"x", "x.br"} {
			objs, err := objects(map[string][]byte{key: data}, 1<<20)
			if err != nil {
				continue
			}
			for _, obj := range objs {
				if obj.GetObjectKind().GroupVersionKind().Kind == "" {
					t.Errorf("object without kind from %q", data)
				}
			}
		}
	})
}
