package lane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
)

// TestIdleSince: a session that the lane relays in user space is idle from its last bytes on.
func TestIdleSince(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	p := joined(t, l, "tcp", "127.0.0.1:0")
	if err := p.ComeBack(0); err != nil { // it stays in user space
		t.Fatal(err)
	}
	p.exchange(t, []byte("there"), p.client, p.server)
	moves(t, "joined", p.Session, func() { p.exchange(t, []byte("and back"), p.server, p.client) })
}

// TestNow: the lane's time is that of the clock that the programs stamp packets with.
func TestNow(t *testing.T) {
	t.Parallel()

	var behind [3]time.Duration
	for i := range behind {
		at := lane.Now()
		clock, err := sys.Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		if behind[i] = clock - time.Duration(at); behind[i] < 0 {
			t.Errorf("%v ahead of the clock", -behind[i])
		}
	}
	if least := slices.Min(behind[:]); least > time.Second {
		t.Errorf("%v behind the clock", least)
	}
}
