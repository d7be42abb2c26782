// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// path leads from an object to values in it.
type path []step

// step is one of: a field, every element, or the elements of which a field has a value.
type step struct {
	field string
	every bool
	where string
	value string
}

// parsePath reads a path as the comment on the package shows them.
func parsePath(text string) (path, error) {
	var out path
	rest := text
	for rest != "" {
		var (
			s   step
			err error
		)
		switch rest[0] {
		case '.':
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			s.field, rest = rest[1:end], rest[end:]
			if s.field == "" {
				return nil, fmt.Errorf("path %q: a field without a name", text)
			}
		case '[':
			if s, rest, err = parseBracket(rest); err != nil {
				return nil, fmt.Errorf("path %q: %w", text, err)
			}
		default:
			return nil, fmt.Errorf("path %q: %q is neither a field nor a bracket", text, rest)
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("an empty path")
	}
	return out, nil
}

func parseBracket(text string) (step, string, error) {
	if quoted, err := strconv.QuotedPrefix(text[1:]); err == nil {
		rest := text[1+len(quoted):]
		key, err := strconv.Unquote(quoted)
		if err != nil || key == "" || !strings.HasPrefix(rest, "]") {
			return step{}, "", fmt.Errorf("%q is no quoted key in brackets", text)
		}
		return step{field: key}, rest[1:], nil
	}
	inside, rest, found := strings.Cut(text[1:], "]")
	if !found {
		return step{}, "", fmt.Errorf("%q has no closing bracket", text)
	}
	if inside == "" {
		return step{every: true}, rest, nil
	}
	where, value, found := strings.Cut(inside, "=")
	if !found || where == "" {
		return step{}, "", fmt.Errorf("%q in brackets is no FIELD=VALUE", inside)
	}
	return step{where: where, value: value}, rest, nil
}

// values returns what there is at the end of the path, as text. What is missing, null, false, zero, or empty counts as none,
// as Kubernetes leaves such fields out at its own discretion. Objects and lists are in JSON.
func (p path) values(object any) []string {
	found := []any{object}
	for _, s := range p {
		var next []any
		for _, value := range found {
			next = s.follow(value, next)
		}
		found = next
	}
	var out []string
	for _, value := range found {
		if text := asText(value); text != "" {
			out = append(out, text)
		}
	}
	return out
}

func (s step) follow(value any, out []any) []any {
	if s.field != "" {
		if object, ok := value.(map[string]any); ok {
			if field, ok := object[s.field]; ok {
				out = append(out, field)
			}
		}
		return out
	}
	list, _ := value.([]any)
	for _, element := range list {
		if s.every {
			out = append(out, element)
		} else if object, ok := element.(map[string]any); ok && asText(object[s.where]) == s.value {
			out = append(out, element)
		}
	}
	return out
}

func asText(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case bool:
		if value {
			return "true"
		}
		return ""
	case int64:
		if value == 0 {
			return ""
		}
		return strconv.FormatInt(value, 10)
	case map[string]any:
		if len(value) == 0 {
			return ""
		}
	case []any:
		if len(value) == 0 {
			return ""
		}
	}
	// Keys of objects are sorted.
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}
