package worker_test

import (
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestQueries: each part of a query selects by itself.
func TestQueries(t *testing.T) {
	t.Parallel()

	r := newRig(t, nil)
	r.serve(t)
	quiet, talks := r.dial(t), r.dial(t)
	talk(t, talks)
	var all []worker.Session
	list := func(q worker.Query) (found []worker.Session) {
		for s := range r.Sessions(t.Context(), &q) {
			found = append(found, s)
		}
		return found
	}
	eventually(t, func() bool { all = list(worker.Query{Joined: true}); return len(all) == 2 })
	client := func(c net.Conn) string { return c.LocalAddr().String() }
	one := func(s *worker.Session, c net.Conn) bool { return s.Client == client(c) }
	of := all[0]
	if !one(&of, talks) {
		of = all[1]
	}
	for name, c := range map[string]struct {
		q    worker.Query
		want int
	}{
		"listener":         {worker.Query{Listener: "first"}, 2},
		"another listener": {worker.Query{Listener: "second"}, 0},
		"another upstream": {worker.Query{Upstream: "u"}, 0},
		"endpoint":         {worker.Query{Endpoint: of.Endpoint}, 2},
		"another endpoint": {worker.Query{Endpoint: "127.0.0.1:1"}, 0},
		"source":           {worker.Query{Source: source.Prefix(netip.MustParsePrefix("127.0.0.0/8"))}, 2},
		"another source":   {worker.Query{Source: source.Prefix(netip.MustParsePrefix("10.0.0.0/8"))}, 0},
		"older":            {worker.Query{Older: time.Hour}, 0},
		"idle":             {worker.Query{Idle: time.Hour}, 0},
		"bytes":            {worker.Query{Bytes: 10}, 1},
		"more bytes":       {worker.Query{Bytes: 11}, 0},
		"state":            {worker.Query{State: worker.Joined}, 2},
		"another state":    {worker.Query{State: worker.ClientEnded}, 0},
		"id":               {worker.Query{ID: of.ID}, 1},
		"another id":       {worker.Query{ID: worker.ID{Loop: of.ID.Loop, Place: of.ID.Place, Began: of.ID.Began + 1}}, 0},
		"accepted":         {worker.Query{Accepts: func(s *worker.Session) bool { return s.Client == client(quiet) }}, 1},
	} {
		if got := list(c.q); len(got) != c.want {
			t.Errorf("%s: %d are listed, want %d", name, len(got), c.want)
		}
	}
	if got := list(worker.Query{ID: of.ID, Sample: true}); len(got) != 1 || !one(&got[0], talks) || got[0].Sample == nil {
		t.Errorf("by its id: %+v", got)
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

// TestEnd: a session is ended by its id, at once or when it is quiet, and only once.
func TestEnd(t *testing.T) {
	t.Parallel()

	const quiet = 10 * time.Second
	var now atomic.Int64
	now.Store(1)
	r := newRig(t, func(c *worker.Config) { c.Loops, c.Now = 1, now.Load })
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
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("%v, want a reset", err)
	}
}

// TestEndOnGoroutines: a client that has left its loop is ended by its id as well.
func TestEndOnGoroutines(t *testing.T) {
	t.Parallel()

	x := newHand(t, new(tie))
	r := directed(t, x.director(), func(_ *worker.Config, s *worker.Service) { s.Preread = worker.Preread{Hello: true} })
	r.serve(t)
	c := r.dial(t)
	hello := helloOf(t, "terminated.example")
	mustWrite(t, c, hello)
	mustRead(t, c, hello)
	var ids []worker.ID
	for s := range r.Sessions(t.Context(), &worker.Query{Joined: true, Brief: true}) {
		ids = append(ids, s.ID)
	}
	if len(ids) != 1 || ids[0].Loop >= 0 {
		t.Fatalf("%v", ids)
	}
	for _, want := range []worker.EndResult{worker.EndedNow, worker.EndedBefore} {
		err := r.End(t.Context(), ids, 0, func(_ worker.ID, e worker.EndResult) {
			if e != want {
				t.Errorf("%v, want %v", e, want)
			}
		})
		if err != nil {
			t.Error(err)
		}
		if want == worker.EndedNow {
			wasReset(t, c)
			eventually(t, func() bool { return r.Active() == 0 })
		}
	}
}
