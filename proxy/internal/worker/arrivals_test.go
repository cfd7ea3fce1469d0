package worker_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

func clientFrom(last byte) *worker.Client {
	return worker.NewClient(source.TCP(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 1)), netip.AddrPort{})
}

// TestRing: a ring has the last clients, and knows how far back it goes.
func TestRing(t *testing.T) {
	t.Parallel()

	r := worker.NewRing(2, 3)
	check := func(since, now int64, full time.Duration, want ...byte) {
		t.Helper()
		if got, covers := r.Since(since, now); !slices.Equal(got, want) || covers != full {
			t.Errorf("since %d at %d: %v, %v, want %v, %v", since, now, got, covers, want, full)
		}
	}
	check(0, 10, 10)
	for i := range byte(5) {
		r.Note(clientFrom(i), int64(i))
	}
	check(0, 10, 10, 4, 3, 2, 1, 0)
	check(3, 10, 7, 4, 3)
	for i := byte(5); i < 9; i++ {
		r.Note(clientFrom(i), int64(i))
	}
	check(0, 10, 7, 8, 7, 6, 5, 4, 3)
	check(6, 10, 4, 8, 7, 6)
	check(11, 20, 9)
}

// TestArrivals: clients are remembered by their sources, and so are those that were refused.
func TestArrivals(t *testing.T) {
	t.Parallel()

	r := newRigAt(t, "unix", sockets.Dir(t)+"/proxy", nil)
	r.serve(t)
	p := r.listen(t, to(t, "127.0.0.1:1")) // nothing listens there
	talk(t, r.dial(t))
	for range 3 {
		if c, err := net.Dial("tcp", p.addr); err == nil { // else it was reset at once
			wasReset(t, c)
			c.Close()
		}
	}
	count := func(refused bool) (unix, tcp int) {
		for a := range r.Arrivals(t.Context(), time.Minute, refused) {
			switch {
			case a.Unix:
				unix++
			case a.Source.AddrPort().Addr().IsLoopback():
				tcp++
			}
		}
		return unix, tcp
	}
	if unix, tcp := count(false); unix != 1 || tcp != 3 {
		t.Errorf("%d and %d clients have come", unix, tcp)
	}
	if unix, tcp := count(true); unix != 0 || tcp != 3 {
		t.Errorf("%d and %d clients were refused", unix, tcp)
	}
}

// BenchmarkNoteArrival is the cost of the list of sources for each connection.
func BenchmarkNoteArrival(b *testing.B) {
	r, c := worker.NewRing(4096, 16), clientFrom(1)
	for i := range 4096 * 16 {
		r.Note(c, int64(i))
	}
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		now++
		r.Note(c, now)
	}
}
