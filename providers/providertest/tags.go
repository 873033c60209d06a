package providertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// The largest counts and lengths of tags that the suite tries; what a provider allows beyond is taken on trust.
const (
	manyTags = 256
	longTag  = 1 << 16
)

func tagRules() []rule {
	return []rule{
		{"tags are read back by Get and List, and the mark is not among them", tagsRead},
		{"as many and as long tags as Capabilities allow are accepted and read back", tagsLimit},
		{"more or longer tags than Capabilities allow are refused before any request", tagsBeyond},
		{"odd values are read back as they are, or refused", tagsOdd},
	}
}

func (t *trial) tagged(who string, info sandbox.Info, want map[string]string) {
	t.Helper()
	if !maps.Equal(info.Tags, want) {
		t.Errorf("%s: %d tags %.300q, want %d %.300q", who, len(info.Tags), info.Tags, len(want), want)
	}
}

// tagAndRead makes a sandbox with the given tags and requires that they are read back.
func (t *trial) tagAndRead(tags map[string]string) {
	t.Helper()
	req := t.request(t.long())
	req.Tags = maps.Clone(tags)
	info := t.make(req)
	t.tagged("Get", t.look(t.p, info.ID), tags)
	if listed, ok := t.listed(t.p, sandbox.Filter{Nonce: req.Mark.Nonce}, info.ID); !ok {
		t.Error("List does not show the sandbox")
	} else {
		t.tagged("List", listed, tags)
		t.marked("List", listed, req.Mark)
	}
}

func tagsRead(t *trial) {
	if t.caps.MaxTags == 0 {
		t.tagAndRead(nil)
		return
	}
	key, value := cut("commit_sha", t.caps.MaxTagKey), cut("4b825dc642cb6eb9a060e54bf8d69288fbee4904", t.caps.MaxTagValue)
	t.tagAndRead(map[string]string{key: value})
}

func cut(s string, n int) string { return s[:min(n, len(s))] }

// numbered is the tag key i of n characters; n is large enough for the number.
func numbered(i, n int) string {
	key := fmt.Sprintf("k%d", i)
	return key + strings.Repeat("x", max(0, n-len(key)))
}

func tagsLimit(t *trial) {
	if t.caps.MaxTags == 0 {
		t.Skipf("Capabilities.MaxTags is 0")
	}
	tags := map[string]string{}
	for i := range min(t.caps.MaxTags, manyTags) {
		tags[numbered(i, 4)] = "v"
	}
	t.tagAndRead(tags)
	key, value := numbered(0, min(t.caps.MaxTagKey, longTag)), strings.Repeat("v", min(t.caps.MaxTagValue, longTag))
	t.tagAndRead(map[string]string{key: value})
}

func tagsBeyond(t *trial) {
	beyond := func(what string, tags map[string]string) {
		req := t.request(t.long())
		req.Tags = tags
		t.refused(what, req, sandbox.ErrInvalid, errors.ErrUnsupported)
	}
	if t.caps.MaxTags < manyTags {
		tags := map[string]string{}
		for i := range t.caps.MaxTags + 1 {
			tags[numbered(i, 4)] = "v"
		}
		beyond("one tag too many", tags)
	}
	if t.caps.MaxTags > 0 && t.caps.MaxTagKey < longTag {
		beyond("a key too long", map[string]string{numbered(0, t.caps.MaxTagKey+1): "v"})
	}
	if t.caps.MaxTags > 0 && t.caps.MaxTagValue < longTag {
		beyond("a value too long", map[string]string{"k": strings.Repeat("v", t.caps.MaxTagValue+1)})
	}
}

func tagsOdd(t *trial) {
	if t.caps.MaxTags == 0 {
		t.Skipf("Capabilities.MaxTags is 0")
	}
	values := []string{"a b", "a/b", "50%", "a+b", "a&b=c", "a=b", "ünïcödé", `"q"`, "a,b;c", ""}
	values = slices.DeleteFunc(values, func(v string) bool { return len(v) > t.caps.MaxTagValue })
	one := func(values ...string) bool {
		req := t.request(t.long())
		req.Tags = map[string]string{}
		for i, v := range values {
			req.Tags[numbered(i, 2)] = v
		}
		info, err := t.try(req)
		if err != nil {
			t.unmade(fmt.Sprintf("tag values %q", values), info, err, sandbox.ErrInvalid, errors.ErrUnsupported)
			return false
		}
		t.tagged("Get", t.look(t.p, info.ID), req.Tags)
		return true
	}
	if len(values) <= t.caps.MaxTags && one(values...) {
		return
	}
	for _, v := range values { // some of them are refused, or there is no room for all
		one(v)
	}
}
