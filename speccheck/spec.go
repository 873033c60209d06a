// Package speccheck holds what our adapters send and what our fakes answer against the services' own API descriptions.
//
// It is a module of its own, so that only its tests know the validator. The descriptions are not part of the repository;
// where they are not there, the tests are skipped and say so.
package speccheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// An Exchange is a request and its answer.
type Exchange struct {
	Method, Path, Query string
	Header              http.Header
	Body                []byte

	Status       int
	AnswerHeader http.Header
	Answer       []byte
}

// An Exception is a difference between reality and a description, with the reason for which it is none of ours.
type Exception struct {
	Fault  *regexp.Regexp
	Reason string
}

// A Spec is one API description.
type Spec struct {
	doc    *openapi3.T
	router routers.Router
	except []Exception
	used   []bool
}

// folder is where the descriptions are, seen from this package.
const folder = "../../shared/specs"

// Load reads a description, of which every path follows prefix. Without the file the test is skipped.
func Load(t *testing.T, file, prefix string, except ...Exception) *Spec {
	t.Helper()
	name := filepath.Join(filepath.FromSlash(folder), filepath.FromSlash(file))
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		t.Skipf("the API description %s is not beside this repository", file)
	}
	doc, err := load(name)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	doc.Servers = openapi3.Servers{{URL: prefix}}
	for _, item := range doc.Paths.Map() { // what paths say of servers would lead elsewhere
		item.Servers = nil
		for _, op := range item.Operations() {
			op.Servers = nil
		}
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	s := &Spec{doc: doc, router: router, except: except, used: make([]bool, len(except))}
	t.Cleanup(func() {
		for i, used := range s.used {
			if !used && !t.Failed() && !t.Skipped() {
				t.Errorf("the exception %q (%s) met nothing: take it out", except[i].Fault, except[i].Reason)
			}
		}
	})
	return s
}

// load reads a description of version 3, or of version 2, which it translates.
func load(name string) (*openapi3.T, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var old openapi2.T
	if json.Unmarshal(raw, &old) == nil && old.Swagger == "2.0" {
		return openapi2conv.ToV3(&old)
	}
	return openapi3.NewLoader().LoadFromFile(name)
}

// Check returns what is wrong with an exchange by the description, and the operation that it was, such as
// "GET /sandboxes/{sandboxID}"; empty: there is none for it, which is a fault too.
func (s *Spec) Check(x Exchange) (operation string, faults []string) {
	fault := func(format string, args ...any) {
		text := fmt.Sprintf("%s %s (%d): ", x.Method, x.Path, x.Status) + fmt.Sprintf(format, args...)
		for i, e := range s.except {
			if e.Fault.MatchString(text) {
				s.used[i] = true
				return
			}
		}
		faults = append(faults, text)
	}
	r := &http.Request{
		Method: x.Method, URL: &url.URL{Path: x.Path, RawQuery: x.Query}, Header: x.Header.Clone(),
		Body: io.NopCloser(bytes.NewReader(x.Body)), ContentLength: int64(len(x.Body)),
	}
	route, params, err := s.router.FindRoute(r)
	if err != nil {
		fault("no such operation: %v", err)
		return "", faults
	}
	operation = x.Method + " " + route.Path
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route, QueryParams: r.URL.Query(),
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, MultiError: true,
		},
	}
	ctx := context.Background()
	if x.Status < 400 { // what was refused may have been wrong on purpose
		if err := openapi3filter.ValidateRequest(ctx, input); err != nil {
			fault("request: %s", firstLine(err))
		}
		for name := range r.URL.Query() {
			if !describes(route, name) {
				fault("request: the query %s is not described", name)
			}
		}
		if body := route.Operation.RequestBody; body != nil && body.Value != nil {
			for _, name := range unknown(body.Value.Content, x.Header, x.Body) {
				fault("request: the field %s is not described", name)
			}
		} else if len(x.Body) > 0 {
			fault("request: a body, and none is described")
		}
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: x.Status, Header: x.AnswerHeader,
		Options: input.Options,
	}
	answer.SetBodyBytes(x.Answer)
	if err := openapi3filter.ValidateResponse(ctx, answer); err != nil {
		fault("answer: %s", firstLine(err))
	}
	if resp := route.Operation.Responses.Status(x.Status); resp != nil && resp.Value != nil {
		for _, name := range unknown(resp.Value.Content, x.AnswerHeader, x.Answer) {
			fault("answer: the field %s is not described", name)
		}
	}
	return operation, faults
}

// Operations returns all that the description has under a path with one of the prefixes.
func (s *Spec) Operations(prefixes ...string) (ops []string) {
	for path, item := range s.doc.Paths.Map() {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path, p) }) {
			for method := range item.Operations() {
				ops = append(ops, method+" "+path)
			}
		}
	}
	slices.Sort(ops)
	return ops
}

func describes(route *routers.Route, query string) bool {
	for _, params := range []openapi3.Parameters{route.Operation.Parameters, route.PathItem.Parameters} {
		for _, p := range params {
			if p.Value != nil && p.Value.In == openapi3.ParameterInQuery && p.Value.Name == query {
				return true
			}
		}
	}
	return false
}

// unknown returns fields of a JSON object, or of the objects of an array, that the schema does not know. A description
// allows them unless it says otherwise, and a field that is spelt wrong would go unnoticed.
func unknown(content openapi3.Content, header http.Header, body []byte) []string {
	media := content.Get(header.Get("Content-Type"))
	if media == nil || media.Schema == nil || !strings.Contains(header.Get("Content-Type"), "json") {
		return nil
	}
	var v any
	if json.Unmarshal(body, &v) != nil {
		return nil // the validator says so
	}
	found := map[string]bool{}
	strangers("", []*openapi3.Schema{media.Schema.Value}, v, found)
	return slices.Sorted(maps.Keys(found))
}

// strangers collects the fields of v, below at, that none of the schemas knows, one of which v is held to.
func strangers(at string, schemas []*openapi3.Schema, v any, found map[string]bool) {
	switch v := v.(type) {
	case []any:
		var items []*openapi3.Schema
		for _, s := range schemas {
			if s.Items != nil {
				items = append(items, s.Items.Value)
			}
		}
		for _, item := range v {
			if len(items) > 0 {
				strangers(at+"[]", items, item, found)
			}
		}
	case map[string]any:
		known := map[string][]*openapi3.Schema{}
		open := false
		for _, s := range schemas {
			open = properties(s, known) || open
		}
		for name, value := range v {
			switch p := known[name]; {
			case len(p) > 0:
				strangers(at+"."+name, p, value, found)
			case !open && len(known) > 0:
				found[at+"."+name] = true
			}
		}
	}
}

// properties adds those of a schema and its parts to known, and reports whether it is open for any.
func properties(schema *openapi3.Schema, known map[string][]*openapi3.Schema) (open bool) {
	open = schema.AdditionalProperties.Schema != nil || schema.AdditionalProperties.Has != nil && *schema.AdditionalProperties.Has
	for name, p := range schema.Properties {
		known[name] = append(known[name], p.Value)
	}
	for _, parts := range []openapi3.SchemaRefs{schema.AllOf, schema.AnyOf, schema.OneOf} {
		for _, part := range parts {
			open = properties(part.Value, known) || open
		}
	}
	return open
}

// firstLine is what the validator found, without the schema and value that it prints behind.
func firstLine(err error) string {
	text := strings.TrimSpace(err.Error())
	line, _, _ := strings.Cut(text, "\n")
	return line
}
