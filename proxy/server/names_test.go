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

// TestPassedNames: a passed socket is not another one's because its name begins with the other's. systemd allows any
// character but ":" in a name (sd_listen_fds_with_names(3)).
func TestPassedNames(t *testing.T) {
	all := binds{passedKey("web", "0"): new(listenSocket)}
	for _, name := range []string{"web#", "web#0", "web 0", "web/0", "webs", "we", "web\x00"} {
		all[passedKey(name, "0")] = new(listenSocket)
	}
	for key, socket := range all.passed("web") {
		if socket != all[passedKey("web", "0")] {
			t.Errorf("web has %q", key)
		}
	}
	if n := len(all.passed("web")); n != 1 {
		t.Errorf("web has %d sockets", n)
	}
}
