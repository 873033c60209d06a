package export

import "context"

// Stopping returns a Pipeline with exporters that stop as given.
func Stopping(stops ...func(context.Context) error) *Pipeline { return &Pipeline{stops: stops} }
