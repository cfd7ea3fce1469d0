package relay

import (
	"context"
	"errors"
	"math/bits"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"
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

// escaped has its values made on the heap.
var escaped *opError

// TestOpError: a failure at a connection is an error of package net, and costs one allocation and no
// text until that is asked for.
func TestOpError(t *testing.T) {
	err := error(newOpError("read", "tcp", syscall.ECONNRESET))
	if got, want := err.Error(), "penstock: relay: read tcp: read: connection reset by peer"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var op *net.OpError
	var sys *os.SyscallError
	if !errors.As(err, &op) || op.Net != "tcp" || !errors.As(err, &sys) || sys.Syscall != "read" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%#v", err)
	}
	for cause, want := range map[error]bool{syscall.ECONNRESET: false, syscall.ETIMEDOUT: true, context.DeadlineExceeded: true} {
		var e net.Error
		if err := newOpError("write", "tcp", cause); !errors.As(error(err), &e) || e.Timeout() != want {
			t.Errorf("%v: not a net.Error whose Timeout is %v", err, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { escaped = newOpError("read", "tcp", syscall.ECONNRESET) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// TestLifetimeJitter: lifetimes are spread over their last part, evenly, and a session's
// does not change.
func TestLifetimeJitter(t *testing.T) {
	t.Parallel()

	l := &Limits{MaxLifetime: 1000 * time.Second, LifetimeJitter: 0.1}
	var tenths [10]int
	for seed := range int64(10_000) {
		life := l.lifetime(seed)
		if life != l.lifetime(seed) {
			t.Fatal("a session's lifetime has changed")
		}
		less := l.MaxLifetime - life
		if less < 0 || less >= 100*time.Second {
			t.Fatalf("a lifetime of %v", life)
		}
		tenths[less/(10*time.Second)]++
	}
	for i, n := range tenths {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 10,000 lifetimes are in tenth %d of the jitter", n, i)
		}
	}
	for _, c := range []struct {
		jitter float64
		least  time.Duration
	}{{0, time.Second}, {-1, time.Second}, {1, 1}, {5, 1}} {
		l := &Limits{MaxLifetime: time.Second, LifetimeJitter: c.jitter}
		for seed := range int64(100) {
			if life := l.lifetime(seed); life < c.least || life > time.Second {
				t.Errorf("jitter %v: a lifetime of %v", c.jitter, life)
			}
		}
	}
	if life := (&Limits{LifetimeJitter: 0.1}).lifetime(1); life != 0 {
		t.Errorf("no limit became %v", life)
	}
}

// TestMirrorsShareATurn: however many mirrors have answers to be read, no turn reads more than its share, and each of them
// reads once before any reads twice.
func TestMirrorsShareATurn(t *testing.T) {
	t.Parallel()

	const mirrors = 11
	var h hearing
	var all [mirrors]Mirror
	var reads [mirrors]int
	for turn := int64(1); turn <= 300; turn++ {
		n := 0
		for i := range all { // each tries again after its read, as one that has more to read does
			for h.may(&all[i], turn) {
				h.bytes += hearBytes
				n += hearBytes
				reads[i]++
			}
		}
		least, most := reads[0], reads[0]
		for _, r := range reads {
			least, most = min(least, r), max(most, r)
		}
		if n == 0 || n > hearAllBytes || most > least+1 {
			t.Fatalf("turn %d: %d bytes; reads %v", turn, n, reads)
		}
	}
}

// TestDrivenSize: an idle session on a loop is its Driven and two slots of the loop's table, and a parked one a fraction.
func TestDrivenSize(t *testing.T) {
	t.Parallel()

	if bits.UintSize != 64 {
		t.Skip("the bounds are for 64 bits")
	}
	if n, parked := unsafe.Sizeof(Driven{}), unsafe.Sizeof(Parked{}); n > 280 || parked > 72 {
		t.Errorf("a Driven takes %d bytes, a Parked %d, want 280 and 72 at most", n, parked)
	}
}
