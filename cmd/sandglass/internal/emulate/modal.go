package emulate

import (
	"cmp"
	"net/http"
	"os"
	"strings"

	"google.golang.org/grpc"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
)

// newModal is Modal, whose SDKs speak gRPC without TLS to a loopback address. One address has the calls, the tunnels of
// sandboxes, and the page.
func newModal() *service {
	f := modalfake.New(modalfake.Options{})
	calls := grpc.NewServer(f.ServerOptions()...)
	f.Register(calls)
	return &service{
		name: "modal", title: "Modal", state: f.Service(),
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				calls.ServeHTTP(w, r)
				return
			}
			f.ServeHTTP(w, r)
		}),
		id:     func(r fake.Record) string { return cmp.Or(f.WireID(r.ID), r.ID) }, // its own: one that was never placed
		forget: f.ForgetRequests,
		env: func(base string) []string {
			return []string{
				"MODAL_SERVER_URL=" + base, "MODAL_TOKEN_ID=" + modalfake.DefaultTokenID, "MODAL_TOKEN_SECRET=" + modalfake.DefaultTokenSecret,
				"MODAL_CONFIG_PATH=" + os.DevNull, // so that no profile of the user's gets mixed in
			}
		},
		close: func() { calls.Stop(); f.Close() },
	}
}
