package sockopt

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// TestBothFailed: the error of both families is said once if it is the same but for the port from which the name server was asked.
func TestBothFailed(t *testing.T) {
	t.Parallel()

	of := func(text string) error { return &net.DNSError{Err: text, Name: "a.test", Server: "10.0.0.1:53"} }
	four, six := of("read udp 10.0.0.2:40001->10.0.0.1:53: i/o timeout"), of("read udp 10.0.0.2:40002->10.0.0.1:53: i/o timeout")
	if err := bothFailed(four, six); strings.Count(err.Error(), "timeout") != 1 {
		t.Error(err)
	}
	if err := bothFailed(four, of("server misbehaving")); !errors.Is(err, four) || !strings.Contains(err.Error(), "misbehaving") {
		t.Error(err)
	}
}
