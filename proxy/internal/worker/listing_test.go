package worker_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// One turn of a loop lists no more than so many clients, wherever they are.
func TestListingIsBounded(t *testing.T) {
	t.Parallel()

	const clients = 3*worker.ListMost + 1
	r := newRig(t, func(c *setup) { c.Loops, c.MaxConnections = 1, 2*clients })
	r.serve(t)
	var stay []net.Conn
	for range clients {
		leaves := r.dial(t)
		talk(t, leaves)
		stay = append(stay, r.dial(t))
		talk(t, stay[len(stay)-1])
		leaves.Close()
	}
	eventually(t, func() bool { return r.Active() == clients })
	parts, told := r.ListParts()
	if told != clients || parts < (clients+worker.ListMost-1)/worker.ListMost {
		t.Errorf("%d clients in %d parts, want %d in at least %d", told, parts, clients, clients/worker.ListMost)
	}
	for _, c := range stay {
		c.Close()
	}
	eventually(t, func() bool { return r.Active() == 0 })
	if parts, told := r.ListParts(); told != 0 || parts > clients/worker.ListLooks+1 {
		t.Errorf("%d clients in %d parts after all have left", told, parts)
	}
}

// TestIDs: an id is read as it is written, and nothing else is.
func TestIDs(t *testing.T) {
	t.Parallel()

	for _, id := range []worker.ID{{}, {Loop: 3, Place: 1 << 40, Began: 1}, {Loop: -1, Place: 7, Began: 1 << 60}} {
		if got, err := worker.ParseID(id.String()); got != id || err != nil {
			t.Errorf("%s: %v, %v, want %v", id, got, err, id)
		}
	}
	for _, text := range []string{"", "1.2", "1.2.3.4", "x.1.1", "g.-1.1", "a.-1.1", "a.1", "01.1.1", "0.A.1", "0.1.", "70000.1.1", "127.0.0.1:80", strings.Repeat("z", 99) + ".1.1"} {
		if id, err := worker.ParseID(text); err == nil {
			t.Errorf("%q is %v", text, id)
		}
	}
}

// TestZeroIsNobody: the ids that a zero value has select no client, and not all.
func TestZeroIsNobody(t *testing.T) {
	t.Parallel()

	for _, text := range []string{worker.ID{}.String(), strings.Repeat("0", 32)} {
		if q := new(worker.Query); q.SetID(text) == nil {
			t.Errorf("%s selects %+v", text, q)
		}
	}
}

// TestEnd: a session is ended by its id, at once or when it is quiet, and only once.
func TestEnd(t *testing.T) {
	t.Parallel()

	const quiet = 10 * time.Second
	var now atomic.Int64
	now.Store(1)
	r := newRig(t, func(c *setup) { c.Loops, c.Now = 1, now.Load })
	r.serve(t)
	c := r.dial(t)
	talk(t, c)
	var ids []worker.ID
	for s := range r.Sessions(t.Context(), new(worker.Query)) {
		ids = append(ids, s.ID)
	}
	end := func(quiet time.Duration) (results []worker.EndResult) {
		t.Helper()
		if err := r.End(t.Context(), ids, quiet, func(_ worker.ID, e worker.EndResult) { results = append(results, e) }); err != nil || len(results) != 1 {
			t.Fatal(results, err)
		}
		return results
	}
	if got := end(quiet)[0]; got != worker.Busy {
		t.Errorf("a session that has just moved bytes: %v", got)
	}
	talk(t, c)
	if got := end(0)[0]; got != worker.EndedNow {
		t.Errorf("at once: %v", got)
	}
	wasReset(t, c)
	if got := end(0)[0]; got != worker.EndedBefore {
		t.Errorf("once more: %v", got)
	}
	ids[0].Loop = 7
	if got := end(0)[0]; got != worker.EndedBefore {
		t.Errorf("of a loop that is not there: %v", got)
	}
	c = r.dial(t)
	talk(t, c)
	ids = ids[:0]
	for s := range r.Sessions(t.Context(), new(worker.Query)) {
		ids = append(ids, s.ID)
	}
	now.Add(int64(quiet) - 1) // less what the loop's clock is behind
	if got := end(quiet)[0]; got != worker.Busy {
		t.Errorf("before its time: %v", got)
	}
	now.Add(int64(quiet))
	eventually(t, func() bool { return end(quiet)[0] == worker.EndedNow })
	wasReset(t, c)
}

// wasReset fails the test unless the connection is reset.
func wasReset(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

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

	r := newRigOn(t, "unix", nil)
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

// A watching is a binding that keeps how its sessions stood.
type watching struct {
	tie
	looks sync.Mutex
	seen  []relay.Turn
}

func (b *watching) Watch(t relay.Turn, now int64) {
	b.looks.Lock()
	defer b.looks.Unlock()
	b.seen = append(b.seen, t)
}

// next returns how its sessions stand now.
func (b *watching) next(g *rig) []relay.Turn {
	b.looks.Lock()
	b.seen = nil
	b.looks.Unlock()
	g.Watch()
	b.looks.Lock()
	defer b.looks.Unlock()
	return b.seen
}

// TestWatch: each session that runs is shown to its binding, once each time, as it stands; one
// that has ended is not any more.
func TestWatch(t *testing.T) {
	t.Parallel()

	b := new(watching)
	r := directed(t, straight(sockets.Server(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })).bound(b), nil)
	if spent := r.Watch(); spent < 0 || len(b.seen) > 0 {
		t.Errorf("before it serves: %v, %+v", spent, b.seen)
	}
	r.serve(t)
	var conns []net.Conn
	const clients = 50
	for i := range clients {
		conns = append(conns, r.dial(t))
		if i%2 == 0 {
			if _, err := conns[i].Write([]byte("?")); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, func() bool {
		asked := 0
		for _, turn := range b.next(r) {
			if turn.Last == relay.SideA && turn.Asked > 0 {
				asked++
			}
		}
		return len(b.seen) == clients && asked == clients/2
	})
	for _, c := range conns[:clients/2] {
		reset(c)
	}
	eventually(t, func() bool { return len(b.next(r)) == clients-clients/2 })
}

// TestSpread: the last step is at the end of the time, the first one not before nine tenths of
// it, and each has about as many of the sessions.
func TestSpread(t *testing.T) {
	t.Parallel()

	const clients = 100_000
	for _, within := range []time.Duration{time.Nanosecond, time.Millisecond, 150 * time.Millisecond, time.Second, 30 * time.Second, 5 * time.Minute, 8760 * time.Hour} {
		s := worker.NewSpread(within)
		last := s.First + time.Duration(s.Steps-1)*s.Every
		if last != within || within-s.First > within/10 || within-s.First > 30*time.Second || s.Steps < 1 || s.Steps > 50 || s.Steps > 1 && s.Every < 10*time.Millisecond {
			t.Errorf("%v: %+v, the last step after %v", within, s, last)
		}
		left := clients
		for step := range s.Steps {
			n := 0
			for range left {
				if s.Cuts(step) {
					n++
				}
			}
			left -= n
			if fair := clients / s.Steps; n < fair/2 || n > 2*fair { // more than ten standard deviations
				t.Errorf("%v: %d are cut in step %d of %d", within, n, step, s.Steps)
			}
		}
		if left != 0 {
			t.Errorf("%v: %d are left", within, left)
		}
	}
	if s := worker.NewSpread(30 * time.Second); s.Steps != 50 || s.Every != 60*time.Millisecond {
		t.Errorf("of 30 s: %+v", s)
	}
}
