package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
)

// TestNoSuchName: only what all name servers say of both families is known; any other failure leaves open whether a name resolves.
func TestNoSuchName(t *testing.T) {
	t.Parallel()
	none, silent := &net.DNSError{Err: "no such host", IsNotFound: true}, &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{none, true},
		{silent, false},
		{fmt.Errorf("IPv4: %w; IPv6: %w", none, none), true},
		{fmt.Errorf("IPv4: %w; IPv6: %w", none, silent), false},
		{context.DeadlineExceeded, false},
		{errors.New("network is unreachable"), false},
	} {
		if got := noSuchName(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestLookupsEnd: names that a context has not left time for are failures, and are not asked for.
func TestLookupsEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("too late")
	cancel(late)
	if failed := unresolved(ctx, []string{"a.invalid", "b.invalid"}); len(failed) != 2 || !errors.Is(failed["a.invalid"], late) {
		t.Errorf("%v", failed)
	}
}
