package lane_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// A taggedOwner is an owner whose session can be known again.
type taggedOwner struct {
	boundedOwner
	tag   [16]byte
	begun time.Duration
}

func (o *taggedOwner) Tag(*lane.Session) ([16]byte, time.Duration) { return o.tag, o.begun }

var _ lane.Tagged = (*taggedOwner)(nil)

// tagged has a session leave user space whose owner gives it a tag.
func tagged(t *testing.T, l *lane.Lane, o *taggedOwner) pair {
	t.Helper()
	return departed(t, l, o, &o.recorder)
}

// departed has a session of an owner leave user space, whose calls r records.
func departed(t *testing.T, l *lane.Lane, o lane.Owner, r *recorder) pair {
	t.Helper()
	client, near, far, server := legs(t, listener(t, "127.0.0.1:0"))
	fd := [2]int{descriptor(t, near), descriptor(t, far)}
	blocking(t, fd)
	r.ended = make(chan lane.Result, 1)
	s, err := register(l, fd[0], fd[1], o)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it is ready", r.ready.Load)
	p := pair{client, server, new([2]uint64), s}
	p.leaves(t, fd[0], fd[1])
	if err := s.Leave(fd[0], fd[1]); err != nil {
		t.Fatal(err)
	}
	return p
}

// adoptedOf returns the session of a client that a lane has adopted.
func adoptedOf(t *testing.T, l *lane.Lane, client net.Conn) *lane.Session {
	t.Helper()
	for _, s := range l.Sessions() {
		if a, _, ok := s.Addresses(); ok && a[0].String() == client.LocalAddr().String() && s.Adopted() {
			return s
		}
	}
	t.Fatal("it is not adopted:", client.LocalAddr())
	return nil
}

// TestAdopted: a process that adopts sessions has the tag, the begin and the user timeout that the owners gave them in the process before, can
// change the latter, and has the result of their end.
func TestAdopted(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	cfg := lane.Config{Devices: []string{"lo"}, Sessions: 16, Pin: filesystem(t), UserTimeout: time.Hour, Linger: 100 * time.Millisecond}
	before, err := lane.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	now, err := sys.Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	const age = 50 * time.Millisecond
	bounded := &taggedOwner{boundedOwner: boundedOwner{timeout: 100 * time.Millisecond}, tag: [16]byte{1, 2, 15: 3}, begun: now - age}
	unbounded := &taggedOwner{boundedOwner: boundedOwner{timeout: 0}, tag: [16]byte{7: 4}}
	ends, goesOn := tagged(t, before, bounded), tagged(t, before, unbounded)
	if tag, ok := ends.Tag(); !ok || tag != bounded.tag || ends.Age() < age || ends.AtEnd(func(lane.Result) {}) {
		t.Errorf("in its own process: %v, %v, age %v", tag, ok, ends.Age())
	}
	number, begun := ends.Identity()
	if n, at := goesOn.Identity(); number == 0 || begun != bounded.begun || n == number || at == begun {
		t.Errorf("%d since %v, and %d since %v", number, begun, n, at)
	}
	if err := before.Leave(); err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	l, err := lane.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	renewed([]*net.TCPConn{ends.client, goesOn.client, goesOn.server}) // to open the lane may have taken as long
	one, other := adoptedOf(t, l, ends.client), adoptedOf(t, l, goesOn.client)
	if tag, ok := one.Tag(); !ok || tag != bounded.tag || one.Age() < age+time.Since(left) {
		t.Errorf("adopted: %v, %v, age %v", tag, ok, one.Age())
	}
	if tag, ok := other.Tag(); !ok || tag != unbounded.tag || other.Age() < time.Since(left) || other.Age() > time.Since(began) {
		t.Errorf("adopted: %v, %v, age %v", tag, ok, other.Age())
	}
	if n, at := one.Identity(); n != number || at != begun {
		t.Errorf("it is another one: %d since %v, want %d since %v", n, at, number, begun)
	}
	results := make(chan lane.Result, 1)
	if !one.AtEnd(func(r lane.Result) { results <- r }) {
		t.Error("its end will not be reported")
	}
	unheard(t, ends, results)
	if _, ok := one.Tag(); ok || one.AtEnd(func(lane.Result) {}) || !errors.Is(one.SetUserTimeout(0), net.ErrClosed) {
		t.Error("it has ended, and has a tag or an end, or a timeout could be set")
	}

	goesOn.exchange(t, []byte("its owner had none"), goesOn.client, goesOn.server)
	if !errors.Is(other.SetUserTimeout(-1), os.ErrInvalid) || !other.AtEnd(func(r lane.Result) { results <- r }) {
		t.Error("a negative timeout can be set, or its end will not be reported")
	}
	if err := other.SetUserTimeout(100 * time.Millisecond); err != nil {
		t.Error(err)
	}
	unheard(t, goesOn, results)
}

// unheard has the server of a session vanish, and expects the result of its user timeout.
func unheard(t *testing.T, p pair, results <-chan lane.Result) {
	t.Helper()
	deafen(t, p.server)
	if _, err := p.client.Write([]byte("unheard")); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-results:
		var dead *lane.TimedOut
		if !errors.As(r.Err, &dead) || dead.By != 1 || !r.Reset || !r.Left || r.View.Time == 0 {
			t.Errorf("%+v", r)
		}
	case <-time.After(patience):
		t.Fatal("it has not ended")
	}
	wantReset(t, "client", p.client)
}

// TestEndIsReportedOnce: a session whose end was reported is no session of the next process, though it lingers in the table.
func TestEndIsReportedOnce(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	cfg := lane.Config{Devices: []string{"lo"}, Sessions: 16, Pin: filesystem(t), Linger: time.Minute}
	before, err := lane.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	closed, reset := new(taggedOwner), new(taggedOwner)
	p, q := tagged(t, before, closed), tagged(t, before, reset)
	tagged(t, before, new(taggedOwner)) // it goes on: without any the table would not stay
	for _, c := range []*net.TCPConn{p.client, p.server} {
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	q.Reset()
	for _, o := range []*taggedOwner{closed, reset} {
		if r := <-o.ended; !r.Left {
			t.Errorf("%+v", r)
		}
	}
	if err := before.Leave(); err != nil {
		t.Fatal(err)
	}
	l, err := lane.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lingers := 0
	for _, s := range l.Sessions() {
		if s.Adopted() {
			continue
		}
		lingers++
		if _, ok := s.Tag(); ok || s.AtEnd(func(lane.Result) {}) {
			t.Error("it is adopted")
		}
	}
	if st := l.Stats(); lingers != 2 || st.Adopted != 1 || st.Ended != 0 {
		t.Errorf("%d linger, %+v", lingers, st)
	}
}

// TestNoTag: a session of an owner without a tag, and one of Join, have none.
func TestNoTag(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	p := joined(t, l, "tcp", "127.0.0.1:0")
	if tag, ok := p.Tag(); !ok || tag != [16]byte{} || p.Age() <= 0 || p.AtEnd(func(lane.Result) {}) {
		t.Errorf("%v, %v, %v", tag, ok, p.Age())
	}
	var zero lane.Session
	if n, begun := zero.Identity(); n != 0 || begun != 0 {
		t.Error("a zero session has an identity")
	}
	if _, ok := zero.Tag(); ok || zero.Age() != 0 || zero.AtEnd(func(lane.Result) {}) || !errors.Is(zero.SetUserTimeout(0), net.ErrClosed) {
		t.Error("a zero session has something")
	}
}

// TestPinnedBefore: records of another version, in which sessions had no tags, are refused, and stay as they are.
func TestPinnedBefore(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "sessions"), nil)
	if err != nil {
		t.Fatal(err)
	}
	now := m.ValueSize()
	if err := errors.Join(m.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	for what, size := range map[string]uint32{"another size": 560, "other members": now} {
		t.Run(what, func(t *testing.T) { refusedPins(t, size) })
	}
}

// refusedPins has a table with records of a size, and of members that are not known.
func refusedPins(t *testing.T, size uint32) {
	dir := filesystem(t)
	for name, size := range map[string]uint32{"sessions": size, "flows": 12, "events": 8} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: 16})
		if err == nil {
			err = errors.Join(m.Pin(filepath.Join(dir, name)), m.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
	if err == nil {
		l.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "another version") || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 3 {
		t.Errorf("pinned after that: %v, %v", list, err)
	}
}

// TestEndedKeepsItsTimes: a session that has ended is as old as before, and idle since its end, when another one has its place.
func TestEndedKeepsItsTimes(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	now, err := sys.Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	at := listener(t, "127.0.0.1:0")
	has := func(o lane.Owner) (*lane.Session, error) {
		_, a, b, _ := legs(t, at)
		defer a.Close()
		defer b.Close()
		return register(l, sockets.FD(t, a), sockets.FD(t, b), o)
	}
	old, err := has(&taggedOwner{begun: now - time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := has(&recorder{}); !errors.Is(err, lane.Full) {
		t.Fatal("there is a place for another one:", err)
	}
	old.Release()
	var other *lane.Session
	until(t, "its place is another one's", func() bool {
		other, err = has(&recorder{})
		return err == nil
	})
	defer other.Release()
	if old.Age() < time.Hour || old.Idle() > old.Age()-time.Hour || other.Age() > time.Minute {
		t.Errorf("ended: age %v, idle for %v; another one: %v", old.Age(), old.Idle(), other.Age())
	}
}
