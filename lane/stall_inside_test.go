package lane

import (
	"testing"
	"time"

	"github.com/penstock/penstock/lane/internal/translate"
)

// TestStallIsOver: a stall is one only if its sender sends again, and after the timeout.
func TestStallIsOver(t *testing.T) {
	t.Parallel()

	const timeout = 10 * time.Second
	data := stall{acked: 100, since: 1000, resent: 3, packets: [2]uint64{50, 40}}
	fin := data
	for _, c := range []struct {
		name    string
		st      stall
		f, o    translate.Flow
		packets [2]uint64
		after   time.Duration
		want    bool
	}{
		{"bytes that come again", data, translate.Flow{Sent: 200, Resent: 4}, translate.Flow{Acked: 100}, [2]uint64{51, 40}, timeout + 1, true},
		{"not for long enough", data, translate.Flow{Sent: 200, Resent: 4}, translate.Flow{Acked: 100}, [2]uint64{51, 40}, timeout, false},
		{"a damaged number: nobody sends again", data, translate.Flow{Sent: 200, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{90, 80}, time.Hour, false},
		{"what comes again is behind a hole", data, translate.Flow{Sent: 200, Repeats: 90, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{90, 80}, time.Hour, false},
		{"bytes and a FIN that come again", data, translate.Flow{Sent: 200, Fin: 200, Resent: 9}, translate.Flow{Acked: 100}, [2]uint64{51, 40}, timeout + 1, true},
		{"a FIN that comes again", fin, translate.Flow{Sent: 101, Fin: 101, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{51, 40}, timeout + 1, true},
		{"a FIN, and both go on", fin, translate.Flow{Sent: 101, Fin: 101, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{60, 50}, timeout + 1, false},
		{"a FIN, and silence", fin, translate.Flow{Sent: 101, Fin: 101, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{50, 40}, time.Hour, false},
	} {
		if got := c.st.over(&c.f, &c.o, c.packets, c.st.since+int64(c.after), timeout); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestAwaited: bytes that fit the window are to be acknowledged, and a probe of a closed one is not.
func TestAwaited(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		sent, acked, edge uint64
		want              bool
	}{{100, 100, 200, false}, {150, 100, 200, true}, {200, 100, 200, true}, {101, 100, 100, false}, {201, 199, 200, true}} {
		if got := awaited(&translate.Flow{Sent: c.sent}, &translate.Flow{Acked: c.acked, Edge: c.edge}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestStallsAreForgotten: what a round does not find is forgotten.
func TestStallsAreForgotten(t *testing.T) {
	t.Parallel()

	l, s := &stalls{of: make(map[stalled]stall)}, new(Session)
	l.of[stalled{s, 0}] = stall{round: l.round}
	l.next()
	if len(l.of) != 1 {
		t.Fatal("it was found in this round")
	}
	l.next()
	if len(l.of) != 0 {
		t.Error("it was not found in this one")
	}
}
