package relay

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestDrivenErrors: an error of a session on a loop names the operation, and the
// network of the socket that it came from.
func TestDrivenErrors(t *testing.T) {
	t.Parallel()

	s := &Driven{a: newSocket(Socket{TCP: true}), b: newSocket(Socket{})}
	for name, c := range map[string]struct {
		way     *direction
		failure failure
		want    string
	}{
		"read a":  {&s.ab, failure{op: "read", side: sideSource, err: syscall.ECONNRESET}, "tcp"},
		"write b": {&s.ab, failure{op: "write", side: sideSink, err: syscall.EPIPE}, "unix"},
		"read b":  {&s.ba, failure{op: "read", side: sideSource, err: syscall.ECONNRESET}, "unix"},
		"write a": {&s.ba, failure{op: "write", side: sideSink, err: syscall.EPIPE}, "tcp"},
	} {
		err := s.opErrorOf(c.way, c.failure)
		var op *net.OpError
		if !errors.As(err, &op) || op.Net != c.want || op.Op != c.failure.op || !errors.Is(err, c.failure.err) {
			t.Errorf("%s: %v, want one of %s", name, err, c.want)
		}
	}
}
