// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"strings"
	"testing"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// renderDeadline is far more than a script takes.
const renderDeadline = 5 * time.Second

// Whatever is in a file or a unit that is accepted stays in quotes: outside of them the script is that of harmless ones.
func FuzzRender(f *testing.F) {
	f.Add("/etc/a", "b64", "eA==", uint32(0o644), "worker-0", false, "a.service", "[Unit]\n", "10-a.conf", "[Service]\n", "start")
	f.Add("/etc/a'b", "", "'; reboot #", uint32(0o644), "$(reboot)", true, "a';reboot;'.service", "'\n'", "a.conf", "`reboot`\n'", "stop")
	f.Add("/etc/../a", "gzip", "\x00", uint32(0o77777), "", true, "-.service", "", ".conf", "", "")
	f.Fuzz(func(t *testing.T, path, encoding, data string, mode uint32, host string, clear bool, name, content, dropIn, dropInContent, command string) {
		began := time.Now()
		defer func() {
			if took := time.Since(began); took > renderDeadline {
				t.Fatalf("it takes %s", took)
			}
		}()
		spec := extensionsv1alpha1.OperatingSystemConfigSpec{
			Files: []extensionsv1alpha1.File{{
				Path: path, Permissions: &mode, HostName: &host,
				Content: extensionsv1alpha1.FileContent{TransmitUnencoded: &clear, Inline: &extensionsv1alpha1.FileContentInline{Encoding: encoding, Data: data}},
			}},
			Units: []extensionsv1alpha1.Unit{{
				Name: name, Content: &content, Command: new(extensionsv1alpha1.UnitCommand(command)), Enable: &clear,
				DropIns: []extensionsv1alpha1.DropIn{{Name: dropIn, Content: dropInContent}},
			}},
		}
		if len(validate(&spec)) > 0 {
			return
		}
		contents, err := readContents(t.Context(), nil, "", spec.Files)
		if err != nil {
			return
		}
		script := render(defaultPlaces, spec.Files, contents, spec.Units)

		spec.Files[0].Path, spec.Files[0].HostName = "/x", new("x")
		spec.Units[0].Name, spec.Units[0].Content = "x.service", new("x")
		spec.Units[0].DropIns[0] = extensionsv1alpha1.DropIn{Name: "x.conf", Content: "x"}
		contents[0] = []byte("x")
		harmless := render(defaultPlaces, spec.Files, contents, spec.Units)
		if got, want := outsideQuotes(string(script)), outsideQuotes(string(harmless)); got != want {
			t.Errorf("outside of quotes there is\n%s\ninstead of\n%s", got, want)
		}
	})
}

// outsideQuotes returns what of a script a shell reads as more than a text: what is neither in single quotes, nor a quote behind
// a backslash, nor a comment.
func outsideQuotes(script string) string {
	var out strings.Builder
	for i := 0; i < len(script); i++ {
		switch {
		case script[i] == '\'':
			end := strings.IndexByte(script[i+1:], '\'')
			if end < 0 {
				return out.String() + "a quote without end"
			}
			i += end + 1
		case strings.HasPrefix(script[i:], `\'`):
			i++
		case script[i] == '#' && (i == 0 || script[i-1] == '\n' || script[i-1] == ' '):
			end := strings.IndexByte(script[i:], '\n')
			if end < 0 {
				return out.String()
			}
			i += end - 1
		default:
			out.WriteByte(script[i])
		}
	}
	return out.String()
}
