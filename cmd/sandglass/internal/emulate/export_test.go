package emulate

import "github.com/sandglass-dev/sandglass/internal/fake"

// State is the emulated service's truth.
func (s *Server) State() *fake.Service { return s.svc.state }
