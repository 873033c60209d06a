package httpapi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
)

// ErrEndless is matched by the error of a list that goes round in circles or does not end.
var ErrEndless = errors.New("the list does not end")

// Bounds of a list.
const (
	MaxPages  = 10_000
	maxCursor = 16 << 10 // bytes
)

// Pages yields the items of all pages of a list. fetch gets the cursor of one page, "" for the first, and returns the
// page and the cursor of the next, "" if it is the last. A page may be empty. An error ends the list; so do a cursor
// that was there before and too many pages, with errors matching [ErrEndless].
func Pages[T any](fetch func(cursor string) (page []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		seen := map[[sha256.Size]byte]bool{} // of cursors whose length nobody bounds
		cursor := ""
		for range MaxPages {
			page, next, err := fetch(cursor)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			sum := sha256.Sum256([]byte(next))
			if seen[sum] || len(next) > maxCursor {
				yield(none, fmt.Errorf("%w: a cursor came twice, or is too long", ErrEndless))
				return
			}
			seen[sum], cursor = true, next
		}
		yield(none, fmt.Errorf("%w: more than %d pages", ErrEndless, MaxPages))
	}
}
