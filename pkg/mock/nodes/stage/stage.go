// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"text/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// Stage is one passage, as a file has it.
type Stage struct {
	// Name tells stages apart; it is in logs and errors.
	Name string `json:"name"`
	// Resource is the kind of the objects it is for, such as "Pod".
	Resource string `json:"resource"`
	// Selector says which objects of that kind. Its parts are ANDed; an empty one selects all.
	Selector Selector `json:"selector,omitempty"`
	// Delay is how long an object has to be selected before it passes.
	Delay Delay `json:"delay,omitempty"`
	// Next is what happens then: one of its fields is set.
	Next Next `json:"next"`
}

// Selector selects objects.
type Selector struct {
	// MatchLabels are labels that the object has.
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are what else has to hold.
	MatchExpressions []Expression `json:"matchExpressions,omitempty"`
}

// Expression compares the values at the end of a path with others. There may be none, one, or several of both.
type Expression struct {
	// Key is the path.
	Key string `json:"key"`
	// Operator is one of In (any of the values is any of the others), NotIn (none is), Exists, DoesNotExist.
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values are the others.
	Values []string `json:"values,omitempty"`
	// ValuesFrom are paths to further ones.
	ValuesFrom []string `json:"valuesFrom,omitempty"`
}

// Delay is Duration plus a random share of Jitter, like "1s" and "500ms".
type Delay struct {
	Duration metav1.Duration `json:"duration,omitempty"`
	Jitter   metav1.Duration `json:"jitter,omitempty"`
}

// Next is what happens to an object.
type Next struct {
	// StatusTemplate is a text/template of YAML: the fields of the status to change, for a strategic merge patch.
	StatusTemplate string `json:"statusTemplate,omitempty"`
	// Delete removes the object without grace. Finalizers are kept.
	Delete bool `json:"delete,omitempty"`
}

// Set is a list of stages ready for use. It may be used concurrently.
type Set struct {
	stages []*Compiled
}

// Compiled is a stage of a Set.
type Compiled struct {
	Stage
	expressions []expression
	status      *template.Template
}

type expression struct {
	operator   metav1.LabelSelectorOperator
	key        path
	values     sets.Set[string]
	valuesFrom []path
}

// Load reads a list of stages. Its error names the stage; fields that it does not know are an error. The functions are for
// the templates, besides "json", which writes any value so that YAML reads it as it was.
func Load(data []byte, functions template.FuncMap) (*Set, error) {
	var list []Stage
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		return nil, fmt.Errorf("reading stages: %w", err)
	}
	out, names := &Set{}, sets.New[string]()
	for _, s := range list {
		compiled, err := compile(s, functions)
		if err != nil {
			return nil, fmt.Errorf("stage %q: %w", s.Name, err)
		}
		if names.Has(s.Name) {
			return nil, fmt.Errorf("stage %q: there are two of this name", s.Name)
		}
		names.Insert(s.Name)
		out.stages = append(out.stages, compiled)
	}
	return out, nil
}

func compile(s Stage, functions template.FuncMap) (*Compiled, error) {
	if s.Name == "" || s.Resource == "" {
		return nil, errors.New("name or resource is missing")
	}
	if s.Delay.Duration.Duration < 0 || s.Delay.Jitter.Duration < 0 {
		return nil, errors.New("a negative delay")
	}
	if s.Next.Delete == (s.Next.StatusTemplate != "") {
		return nil, errors.New("next is to have one of statusTemplate, delete")
	}
	out := &Compiled{Stage: s}
	for _, e := range s.Selector.MatchExpressions {
		compiled, err := compileExpression(e)
		if err != nil {
			return nil, err
		}
		out.expressions = append(out.expressions, compiled)
	}
	if !s.Next.Delete {
		status, err := template.New(s.Name).Option("missingkey=zero").Funcs(template.FuncMap{"json": toJSON}).Funcs(functions).Parse(s.Next.StatusTemplate)
		if err != nil {
			return nil, fmt.Errorf("statusTemplate: %w", err)
		}
		out.status = status
	}
	return out, nil
}

func compileExpression(e Expression) (expression, error) {
	out := expression{operator: e.Operator, values: sets.New(e.Values...)}
	var err error
	if out.key, err = parsePath(e.Key); err != nil {
		return out, err
	}
	for _, text := range e.ValuesFrom {
		from, err := parsePath(text)
		if err != nil {
			return out, err
		}
		out.valuesFrom = append(out.valuesFrom, from)
	}
	some := len(e.Values)+len(e.ValuesFrom) > 0
	switch e.Operator {
	case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
		if !some {
			return out, fmt.Errorf("%s %s: values are missing", e.Key, e.Operator)
		}
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if some {
			return out, fmt.Errorf("%s %s: takes no values", e.Key, e.Operator)
		}
	default:
		return out, fmt.Errorf("%s: no such operator: %q", e.Key, e.Operator)
	}
	return out, nil
}

// Match returns the first stage for an object of this kind that selects it, or nil. The object is as JSON has it, with
// integers as int64.
func (s *Set) Match(resource string, object map[string]any) *Compiled {
	for _, candidate := range s.stages {
		if candidate.Resource == resource && candidate.selects(object) {
			return candidate
		}
	}
	return nil
}

func (c *Compiled) selects(object map[string]any) bool {
	if len(c.Selector.MatchLabels) > 0 {
		metadata, _ := object["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		for name, value := range c.Selector.MatchLabels {
			if has, ok := labels[name]; !ok || has != value {
				return false
			}
		}
	}
	for _, e := range c.expressions {
		if !e.holds(object) {
			return false
		}
	}
	return true
}

func (e expression) holds(object map[string]any) bool {
	values := e.key.values(object)
	switch e.operator {
	case metav1.LabelSelectorOpExists:
		return len(values) > 0
	case metav1.LabelSelectorOpDoesNotExist:
		return len(values) == 0
	}
	found := slices.ContainsFunc(values, e.values.Has)
	for _, from := range e.valuesFrom {
		others := from.values(object)
		found = found || slices.ContainsFunc(values, func(value string) bool { return slices.Contains(others, value) })
	}
	return found == (e.operator == metav1.LabelSelectorOpIn)
}

// Wait returns the delay for one object. The random number is from [0,1).
func (c *Compiled) Wait(random float64) time.Duration {
	return c.Delay.Duration.Duration + time.Duration(random*float64(c.Delay.Jitter.Duration))
}

// Status renders the template for an object, as JSON.
func (c *Compiled) Status(object map[string]any) ([]byte, error) {
	var text bytes.Buffer
	if err := c.status.Execute(&text, object); err != nil {
		return nil, fmt.Errorf("stage %q: %w", c.Name, err)
	}
	out, err := yaml.YAMLToJSONStrict(text.Bytes())
	if err != nil {
		return nil, fmt.Errorf("stage %q does not render to YAML: %w", c.Name, err)
	}
	if len(out) == 0 || out[0] != '{' {
		return nil, fmt.Errorf("stage %q does not render to an object", c.Name)
	}
	return out, nil
}

func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}
