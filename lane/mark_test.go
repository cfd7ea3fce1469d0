package lane_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	tag   [lane.TagSize]byte
	begun time.Duration
}

func (o *taggedOwner) Tag(*lane.Session) ([lane.TagSize]byte, time.Duration) { return o.tag, o.begun }

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

// TestAdopted: a process that adopts sessions has the tag, the begin and the bytes that they had in the process before. An owner that it gives them has the result of their
// end, by its own user timeout, and takes them back.
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
	first := &taggedOwner{tag: [lane.TagSize]byte{1, 2, lane.TagSize - 1: 3}, begun: now - age}
	second := &taggedOwner{tag: [lane.TagSize]byte{7: 4}}
	ends, returns := tagged(t, before, first), tagged(t, before, second)
	if tag, ok := ends.Tag(); !ok || tag != first.tag || ends.Age() < age || ends.Adopted() {
		t.Errorf("in its own process: %v, %v, age %v", tag, ok, ends.Age())
	}
	second.tag = [lane.TagSize]byte{5, 40: 6}
	returns.Retag(second.tag)
	if err := before.Leave(); err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	l, err := lane.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	renewed([]*net.TCPConn{ends.client, ends.server, returns.client, returns.server}) // to open the lane may have taken as long
	one, other := adoptedOf(t, l, ends.client), adoptedOf(t, l, returns.client)
	if tag, ok := one.Tag(); !ok || tag != first.tag || one.Age() < age+time.Since(left) {
		t.Errorf("adopted: %v, %v, age %v", tag, ok, one.Age())
	}
	if tag, ok := other.Tag(); !ok || tag != second.tag || other.Age() < time.Since(left) || other.Age() > time.Since(began) {
		t.Errorf("adopted: %v, %v, age %v", tag, ok, other.Age())
	}
	bytes := one.Bytes()
	own := &boundedOwner{recorder: recorder{ended: make(chan lane.Result, 2)}, timeout: 100 * time.Millisecond}
	var mine, back, unused lane.Session
	if err := l.Own(one, &mine, own, [2]uint64{}); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"twice": l.Own(one, &unused, own, [2]uint64{}), "its own": l.Own(&mine, &unused, own, [2]uint64{})} {
		if err == nil {
			t.Error(name)
		}
	}
	for name, err := range map[string]error{
		"no session": l.Own(nil, &unused, own, [2]uint64{}), "no Session": l.Own(other, nil, own, [2]uint64{}), "no owner": l.Own(other, &unused, nil, [2]uint64{}), "used": l.Own(other, &mine, own, [2]uint64{}), "of another lane": before.Own(other, &unused, own, [2]uint64{}),
	} {
		if !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if tag, ok := mine.Tag(); !ok || tag != first.tag || mine.Bytes() != bytes || mine.Age() < age+time.Since(left) || !mine.Left() || !mine.Adopted() || one.Left() {
		t.Errorf("owned: %v, %v, %v", tag, ok, mine.Bytes())
	}
	one.Wait()
	deafen(t, ends.server)
	if _, err := ends.client.Write([]byte("unheard")); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-own.ended:
		var dead *lane.TimedOut
		if !errors.As(r.Err, &dead) || dead.By != 1 || !r.Reset || !r.Left || r.View.Time == 0 {
			t.Errorf("%+v", r)
		}
	case <-time.After(patience):
		t.Fatal("it has not ended")
	}
	wantReset(t, "client", ends.client)

	returns.exchange(t, []byte("it has no owner yet"), returns.client, returns.server)
	bytes = other.Bytes()
	if err := l.Own(other, &back, &boundedOwner{}, [2]uint64{100, 200}); err != nil || back.Bytes() != [2]uint64{bytes[0] + 100, bytes[1] + 200} {
		t.Fatal(back.Bytes(), err)
	}
	returns.exchange(t, []byte("it has an owner"), returns.server, returns.client)
	a, b, _, err := back.TakeBack(patience)
	if err != nil {
		t.Fatal(err)
	}
	blocking(t, [2]int{a, b})
	p := pair{returns.client, returns.server, returns.sent, &back}
	if p.pass(t, returns.client, returns.server, a, b) || p.pass(t, returns.server, returns.client, b, a) {
		t.Error("it is not in user space")
	}
	if st := l.Stats(); st.Adopted != 2 || st.Returned != 1 {
		t.Errorf("%+v", st)
	}
	back.Release()
	_, _ = syscall.Close(a), syscall.Close(b)
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
		if _, ok := s.Tag(); ok {
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
	if tag, ok := p.Tag(); !ok || tag != [lane.TagSize]byte{} || p.Age() <= 0 {
		t.Errorf("%v, %v, %v", tag, ok, p.Age())
	}
	var zero lane.Session
	zero.Retag([lane.TagSize]byte{1})
	if _, ok := zero.Tag(); ok || zero.Age() != 0 {
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
