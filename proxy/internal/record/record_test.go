package record_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
)

// TestIDs: no two are the same, none is zero, and their bits are spread.
func TestIDs(t *testing.T) {
	ids, seen, ones := record.NewIDs(), make(map[record.ID]bool), 0
	for n := range uint64(20_000) {
		id := ids.Of(n)
		if id.IsZero() || seen[id] {
			t.Fatalf("the ID %v of %d is zero, or another's", id, n)
		}
		seen[id] = true
		if id[15]&1 != 0 {
			ones++
		}
		if s := id.String(); len(s) != 32 || strings.ToLower(s) != s {
			t.Fatalf("ID %q", s)
		}
	}
	if ones < 9_000 || ones > 11_000 {
		t.Errorf("the last bit is set in %d of %d", ones, len(seen))
	}
	if a, b := record.NewIDs().Of(1), record.NewIDs().Of(1); a == b {
		t.Error("two processes have the same IDs")
	}
}

// full returns a record in which everything that is kept is set.
func full() record.Record {
	const s = int64(time.Second)
	r := record.Record{
		ID: record.NewIDs().Of(7), TLS: true,
		Rest: record.Rest{
			Client: source.TCP(netip.MustParseAddrPort("192.0.2.1:5555")),
			Source: netip.MustParseAddrPort("[2001:db8::1]:77"), Destination: netip.MustParseAddrPort("[2001:db8::2]:443"),
			Local: netip.MustParseAddrPort("127.0.0.1:443"), EndpointAddress: netip.MustParseAddrPort("[::1]:8080"),
			ServerName: "a.example", Protocols: "h2,http/1.1", Tags: "team=a", Before: 3,
		},
		Accepted: 1000 * s, Begun: 1000*s + 1000, Header: 1001 * s, Preread: 1002 * s, Routed: 1003 * s,
		Queued: time.Minute, Paused: time.Second, Waits: 2, Picked: 1004 * s, Connecting: 1005 * s, Joined: 1006 * s,
		ClientFirst: 1007 * s, EndpointFirst: 1008 * s, HalfClosed: 1000*s + 100*3600*s, Retries: 4, Redispatched: true, NumFailures: 5,
	}
	r.Failures[0] = record.Failure{Endpoint: "e1", Began: 1, Ended: 2, Cause: record.CauseTimeout}
	return r
}

var comparable = cmp.Options{
	cmp.AllowUnexported(record.Record{}),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b source.Source) bool { return a == b }),
}

// TestKept: what is kept of a record comes back.
func TestKept(t *testing.T) {
	plain := record.Record{ID: record.NewIDs().Of(1), Accepted: 5, Rest: record.Rest{Client: source.TCP(netip.MustParseAddrPort("192.0.2.1:1"))}, Joined: 5}
	unix := plain
	unix.Client, unix.EndpointPath = source.Unix(source.Credentials{UID: 1, GID: 2, PID: 3}), "/run/x"
	zone := plain
	zone.Client = source.TCP(netip.MustParseAddrPort("[fe80::1%lo]:1"))
	for name, tt := range map[string]struct {
		r    record.Record
		rest bool
	}{"full": {full(), true}, "plain": {plain, false}, "unix": {unix, true}, "zone": {zone, true}, "empty": {record.Record{}, false}} {
		t.Run(name, func(t *testing.T) {
			var k record.Kept
			if used := k.Pack(&tt.r, new(record.Rest)); used != tt.rest {
				t.Errorf("takes a Rest: %v", used)
			}
			var got record.Record
			k.Unpack(&got)
			if d := cmp.Diff(tt.r, got, comparable); d != "" {
				t.Error(d)
			}
			if from, at := k.Addresses(); from != tt.r.From() || at != tt.r.EndpointName() {
				t.Errorf("addresses %v, %v", from, at)
			}
			if had := k.Rest() != nil; had != tt.rest || k.Rest() != nil {
				t.Errorf("gives a Rest back: %v", had)
			}
		})
	}
}

// TestKeptEvents: what happens while a session goes on is in its record at the end.
func TestKeptEvents(t *testing.T) {
	r := record.Record{Accepted: 10}
	var k record.Kept
	k.Pack(&r, new(record.Rest))
	k.FirstByte(true, 10)
	k.FirstByte(false, 2_010)
	k.HalfClosed(int64(50 * 24 * time.Hour)) // later than can be kept: 24 days
	k.Unpack(&r)
	if r.ClientFirst != 10 || r.EndpointFirst != 2_010 || r.HalfClosed < int64(24*24*time.Hour) || r.HalfClosed > int64(25*24*time.Hour) {
		t.Errorf("client %d, endpoint %d, half-close %v", r.ClientFirst, r.EndpointFirst, time.Duration(r.HalfClosed))
	}
}

// TestKeptSize: a session that rests keeps no more than this.
func TestKeptSize(t *testing.T) {
	if n := unsafe.Sizeof(record.Kept{}); n > 152 {
		t.Errorf("%d bytes are kept of a record, more than 152", n)
	}
}

// TestWaits: waiting and pauses add up, however often they are noted.
func TestWaits(t *testing.T) {
	var r record.Record
	r.Wait(10)
	r.Wait(15)
	r.Resume(30)
	r.Resume(40)
	r.Pause(50)
	r.Resume(55)
	r.Enqueued(7)
	r.Enqueued(9)
	if r.Queued != 20 || r.Paused != 5 || r.Waits != 2 || r.Before != 7 {
		t.Errorf("queued %d, paused %d, waits %d, before %d", r.Queued, r.Paused, r.Waits, r.Before)
	}
	var none *record.Record
	none.Wait(1)
	none.Resume(2)
	none.Pause(1)
	none.Enqueued(1)
	none.Retry()
	none.Route("u")
	none.Pick("e", 1)
	none.Fail("e", 1, 2, nil)
	none.Hello("a", []string{"h2"})
	none.Connect(netip.AddrPort{}, "", 1)
}

// TestAttempts: failures are counted, the first ones described, and a change of endpoint is
// noted.
func TestAttempts(t *testing.T) {
	var r record.Record
	for i := range 5 {
		r.Pick("a", int64(i))
		if r.Redispatched {
			t.Fatal("redispatched to the same endpoint")
		}
		r.Fail("a", int64(i), int64(i)+1, fmt.Errorf("connect: %w", syscall.ECONNREFUSED))
		r.Retry()
	}
	r.Pick("b", 9)
	if r.NumFailures != 5 || r.Retries != 5 || !r.Redispatched || r.Endpoint != "b" || r.Failures[2] != (record.Failure{"a", 2, 3, record.CauseRefused}) {
		t.Errorf("%+v", r)
	}
	for err, want := range map[error]record.Cause{
		os.ErrDeadlineExceeded: record.CauseTimeout, syscall.EHOSTUNREACH: record.CauseUnreachable, errors.New("?"): record.CauseOther, syscall.EMFILE: record.CauseLocal,
		record.ErrAbandoned: record.CauseAbandoned,
	} {
		if got := record.CauseOf(err); got != want {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
}

// TestCountsStay: a client with more attempts than a count holds keeps its first ones.
func TestCountsStay(t *testing.T) {
	t.Parallel()
	var r record.Record
	for i := range 1<<16 + 5 {
		r.Enqueued(int64(i))
		r.Fail("a", int64(i), int64(i)+1, syscall.ECONNREFUSED)
		r.Retry()
	}
	const most = 1<<16 - 1
	if r.Waits != most || r.Retries != most || r.NumFailures != most || r.Before != 0 || r.Failures[0].Began != 0 {
		t.Errorf("%+v", r)
	}
}

// TestProtocols: different lists of protocols look different, and are printable.
func TestProtocols(t *testing.T) {
	lists := map[string][]string{
		"h2,http/1.1": {"h2", "http/1.1"}, "h2%2Chttp/1.1": {"h2,http/1.1"}, "h2%252Chttp/1.1": {"h2%2Chttp/1.1"}, "h2": {"h2"}, `\xff`: {`\xff`}, "%FF": {"\xff"},
		"a%0Ab,%20": {"a\nb", " "}, ",": {"", ""}, "%C3%BC": {"ü"}, strings.Repeat("%2C", 9) + "%2" + record.Cut: {strings.Repeat(",", 200)},
	}
	for want, list := range lists {
		var r record.Record
		if r.Hello("", list); r.Protocols != want {
			t.Errorf("%q is %s, want %s", list, r.Protocols, want)
		}
	}
}

// TestBounds: names from the network are cut, and marked.
func TestBounds(t *testing.T) {
	var r record.Record
	r.Hello(strings.Repeat("x", 300), []string{strings.Repeat("p", 20), strings.Repeat("q", 200), "z"})
	for _, s := range []struct {
		name string
		most int
	}{{r.ServerName, record.MaxServerName}, {r.Protocols, record.MaxProtocols}} {
		if len(s.name) != s.most || !strings.HasSuffix(s.name, record.Cut) {
			t.Errorf("%q has %d bytes of %d", s.name, len(s.name), s.most)
		}
	}
	r.Hello("a.example", []string{"h2", "http/1.1"})
	if r.ServerName != "a.example" || r.Protocols != "h2,http/1.1" {
		t.Errorf("%q, %q", r.ServerName, r.Protocols)
	}
	if n := testing.AllocsPerRun(100, func() { r.Hello("a.example", []string{"h2", "http/1.1"}) }); n > 0 {
		t.Errorf("a hello takes %v allocations", n)
	}
}
