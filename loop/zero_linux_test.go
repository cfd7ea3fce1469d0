package loop_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/zero"
	"github.com/penstock/penstock/loop"
)

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{
		"Loop.Connect": "a Connector that is nil has no method",
		"Conn.Go":      "only handlers have a Conn", "Conn.Detach": "only handlers have a Conn", "Conn.AsyncWrite": "only handlers have a Conn",
		"Conn.Loop": "only handlers have a Conn", "Conn.More": "only handlers have a Conn",
	}, new(loop.Loop), new(loop.Group), new(loop.Server), new(loop.Conn), new(loop.Listener), new(loop.Dial), new(loop.Timer), new(loop.ID))
}
