package speccheck_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/speccheck"
)

// What is right is changed in one place at a time, and found to be wrong there.
func TestEveryKindOfDifferenceIsFound(t *testing.T) {
	spec := speccheck.Load(t, "e2b/openapi.yml", "/")
	right := func() speccheck.Exchange {
		return speccheck.Exchange{
			Method: "POST", Path: "/sandboxes", Header: http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {"k"}},
			Body:   []byte(`{"templateID":"base","timeout":60}`),
			Status: 201, AnswerHeader: http.Header{"Content-Type": {"application/json"}},
			Answer: []byte(`{"sandboxID":"i1","templateID":"base","clientID":"c","envdVersion":"0.6.4"}`),
		}
	}
	op, faults := spec.Check(right())
	assert.Equal(t, "POST /sandboxes", op)
	assert.Empty(t, faults)
	for name, tc := range map[string]struct {
		change func(x *speccheck.Exchange)
		says   string
	}{
		"no such path":               {func(x *speccheck.Exchange) { x.Path = "/sandboxen" }, "no such operation"},
		"no such method":             {func(x *speccheck.Exchange) { x.Method = "PUT" }, "no such operation"},
		"a query that is not known":  {func(x *speccheck.Exchange) { x.Query = "dry=1" }, "the query dry"},
		"a field that is not known":  {func(x *speccheck.Exchange) { x.Body = []byte(`{"templateID":"base","timout":60}`) }, "the field .timout"},
		"a field of another type":    {func(x *speccheck.Exchange) { x.Body = []byte(`{"templateID":"base","timeout":"60"}`) }, "request:"},
		"a field that is missing":    {func(x *speccheck.Exchange) { x.Body = []byte(`{"timeout":60}`) }, "templateID"},
		"a body that is no JSON":     {func(x *speccheck.Exchange) { x.Body = []byte(`{`) }, "request:"},
		"a status that is not known": {func(x *speccheck.Exchange) { x.Status = 299 }, "status is not supported"},
		"an answer of another type":  {func(x *speccheck.Exchange) { x.AnswerHeader.Set("Content-Type", "text/html") }, "answer:"},
		"an answer without a field":  {func(x *speccheck.Exchange) { x.Answer = []byte(`{"sandboxID":"i1"}`) }, "answer:"},
		"an answer with one too much": {func(x *speccheck.Exchange) {
			x.Answer = []byte(strings.Replace(string(x.Answer), "{", `{"more":1,`, 1))
		}, "the field .more"},
		"an answer with a wrong field": {func(x *speccheck.Exchange) { x.Answer = []byte(strings.Replace(string(x.Answer), `"i1"`, "1", 1)) }, "answer:"},
	} {
		t.Run(name, func(t *testing.T) {
			x := right()
			tc.change(&x)
			_, faults := spec.Check(x)
			assert.Contains(t, strings.Join(faults, "\n"), tc.says)
		})
	}
}
