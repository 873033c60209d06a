package shell

import (
	"fmt"
	"strconv"

	"mvdan.cc/sh/v3/syntax"
)

const maxBraces = 10_000

// braces expands {a,b} and {1..3} as bash does: before everything else.
func braces(w *syntax.Word) ([]*syntax.Word, error) {
	split := *w
	if !syntax.SplitBraces(&split) {
		return []*syntax.Word{w}, nil
	}
	lists, err := braceParts(split.Parts)
	if err != nil {
		return nil, err
	}
	var words []*syntax.Word
	for _, parts := range lists {
		words = append(words, &syntax.Word{Parts: parts})
	}
	return words, nil
}

// braceParts returns each way to choose one alternative of every brace expression.
func braceParts(parts []syntax.WordPart) ([][]syntax.WordPart, error) {
	lists := [][]syntax.WordPart{nil}
	for _, part := range parts {
		choices := [][]syntax.WordPart{{part}}
		if b, ok := part.(*syntax.BraceExp); ok {
			var err error
			if choices, err = braceChoices(b); err != nil {
				return nil, err
			}
		}
		if len(lists)*len(choices) > maxBraces {
			return nil, fail(2, "brace expansion too long")
		}
		var next [][]syntax.WordPart
		for _, l := range lists {
			for _, c := range choices {
				next = append(next, append(l[:len(l):len(l)], c...))
			}
		}
		lists = next
	}
	return lists, nil
}

func braceChoices(b *syntax.BraceExp) ([][]syntax.WordPart, error) {
	if b.Sequence {
		return braceSequence(b)
	}
	var choices [][]syntax.WordPart
	for _, e := range b.Elems {
		lists, err := braceParts(e.Parts)
		if err != nil {
			return nil, err
		}
		if choices = append(choices, lists...); len(choices) > maxBraces {
			return nil, fail(2, "brace expansion too long")
		}
	}
	return choices, nil
}

func braceSequence(b *syntax.BraceExp) ([][]syntax.WordPart, error) {
	from, to := b.Elems[0].Lit(), b.Elems[1].Lit()
	step := int64(1)
	if len(b.Elems) > 2 {
		step, _ = strconv.ParseInt(b.Elems[2].Lit(), 10, 32)
		step = max(step, -step, 1)
	}
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	letters := err1 != nil || err2 != nil
	if letters {
		first, last = int64(from[0]), int64(to[0])
	}
	distance := last - first
	if last < first {
		step, distance = -step, -distance
	}
	if distance < 0 || distance > maxBraces*max(step, -step) {
		return nil, fail(2, "brace expansion too long")
	}
	width := 0
	if !letters && (len(from) > 1 && from[0] == '0' || len(to) > 1 && to[0] == '0') {
		width = max(len(from), len(to))
	}
	var choices [][]syntax.WordPart
	for i := range distance/max(step, -step) + 1 {
		n := first + i*step
		text := fmt.Sprintf("%0*d", width, n)
		if letters {
			text = string(rune(n))
		}
		choices = append(choices, []syntax.WordPart{&syntax.Lit{Value: text}})
	}
	return choices, nil
}
