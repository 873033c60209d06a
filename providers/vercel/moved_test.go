package vercel_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestAnEndThatSomebodyElseHasMovedAwayIsNoCap(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.manager().WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			_, session := parts(sb.ID())
			if err := wait(ctx, 90*time.Second); err != nil {
				return err
			}
			status, _ := w.others("POST", "/v2/sandboxes/sessions/"+session+"/extend-timeout", `{"duration":600000}`)
			assert.Equal(t, http.StatusOK, status)
			return wait(ctx, 40*time.Minute)
		})
		assert.NoError(t, err)
		w.nothing()
	})
}
