package kubernetes_test

import "context"

func tokens(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}
