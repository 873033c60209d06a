//go:build !unix

package journal_test

func execAgain() {}
