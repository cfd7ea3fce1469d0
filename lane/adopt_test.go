package lane_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/internal/program"
	"github.com/penstock/penstock/lane/internal/state"
)

// A taggedOwner is an owner that gives its session a tag.
type taggedOwner struct {
	boundedOwner
	tag   [lane.TagSize]byte
	begun time.Duration
}

func (o *taggedOwner) Tag(*lane.Session) ([lane.TagSize]byte, time.Duration) { return o.tag, o.begun }

var _ lane.Tagged = (*taggedOwner)(nil)

// tagged makes a session with a tag leave user space.
func tagged(t *testing.T, l *lane.Lane, o *taggedOwner) pair {
	t.Helper()
	return departed(t, l, o, &o.recorder)
}

// departed makes a session of an owner leave user space. r records the owner's calls.
func departed(t *testing.T, l *lane.Lane, o lane.Owner, r *recorder) pair {
	t.Helper()
	r.ended = make(chan lane.Result, 1)
	p, a, b := owned(t, l, o)
	condition.Await(t, "it is ready", r.ready.Load)
	p.leaves(t, a, b)
	must.Do(t, p.Session.Leave(a, b))
	return p
}

// adoptedOf returns the adopted session of a client.
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

// TestAdopted: adopted sessions keep the tag, the beginning and the bytes that they had in the earlier process.
// A new owner gets the result of their end, sets its own user timeout, and can take them back.
func TestAdopted(t *testing.T) {
	if !aloneWithMounts(t) {
		return
	}
	cfg := lane.Config{Devices: []string{"lo"}, Sessions: 16, Pin: filesystem(t), UserTimeout: time.Hour, Linger: 100 * time.Millisecond}
	before := must.Get(lane.Open(cfg))(t)
	now := must.Get(sys.Monotonic())(t)
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
	must.Do(t, before.Leave())
	left := time.Now()
	l := must.Get(lane.Open(cfg))(t)
	defer l.Close()
	renewed([]*net.TCPConn{ends.client, ends.server, returns.client, returns.server}) // it may have taken as long as their deadlines to open the lane
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
	must.Do(t, l.Own(one, &mine, own, [2]uint64{}))
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
	must.Get(ends.client.Write([]byte("unheard")))(t)
	r := condition.Receive(t, "its end", own.ended)
	var dead *lane.TimedOut
	if !errors.As(r.Err, &dead) || dead.By != 1 || !r.Reset || !r.Left || r.View.Time == 0 {
		t.Errorf("%+v", r)
	}
	wantReset(t, "client", ends.client)

	returns.exchange(t, []byte("it has no owner yet"), returns.client, returns.server)
	bytes = other.Bytes()
	if err := l.Own(other, &back, &boundedOwner{}, [2]uint64{100, 200}); err != nil || back.Bytes() != [2]uint64{bytes[0] + 100, bytes[1] + 200} {
		t.Fatal(back.Bytes(), err)
	}
	returns.exchange(t, []byte("it has an owner"), returns.server, returns.client)
	a, b, _, err := back.TakeBack(condition.Patience)
	must.Do(t, err)
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

// TestFailedOpenHoldsNothing: a lane that cannot be opened gives up the ports of the sessions that it has adopted, and the
// next one adopts them again.
func TestFailedOpenHoldsNothing(t *testing.T) {
	if !aloneWithMounts(t) {
		return
	}
	cfg := lane.Config{Devices: []string{"lo"}, Sessions: 16, Pin: filesystem(t)}
	before := must.Get(lane.Open(cfg))(t)
	p := tagged(t, before, new(taggedOwner))
	must.Do(t, before.Leave())
	open := leak.Take()
	cfg.Devices = []string{"lo", "missing"}
	if _, err := lane.Open(cfg); err == nil {
		t.Fatal("opened")
	}
	if left := leak.Take().Since(open); len(left) > 0 {
		t.Error("left open:", left)
	}
	cfg.Devices = []string{"lo"}
	l := must.Get(lane.Open(cfg))(t)
	defer l.Close()
	renewed([]*net.TCPConn{p.client, p.server})
	adoptedOf(t, l, p.client)
	if st := l.Stats(); st.Failed != 0 || st.Adopted != 1 {
		t.Errorf("%+v", st)
	}
	p.exchange(t, []byte("it goes on"), p.client, p.server)
}

// TestEndIsReportedOnce: if the end of a session was reported, the next process does not have the session,
// although it lingers in the table.
func TestEndIsReportedOnce(t *testing.T) {
	if !aloneWithMounts(t) {
		return
	}
	cfg := lane.Config{Devices: []string{"lo"}, Sessions: 16, Pin: filesystem(t), Linger: time.Minute}
	before := must.Get(lane.Open(cfg))(t)
	closed, reset := new(taggedOwner), new(taggedOwner)
	p, q := tagged(t, before, closed), tagged(t, before, reset)
	tagged(t, before, new(taggedOwner)) // this session goes on: without one the table would not stay
	for _, c := range []*net.TCPConn{p.client, p.server} {
		must.Do(t, c.CloseWrite())
	}
	q.Reset()
	for _, o := range []*taggedOwner{closed, reset} {
		if r := <-o.ended; !r.Left {
			t.Errorf("%+v", r)
		}
	}
	must.Do(t, before.Leave())
	l := must.Get(lane.Open(cfg))(t)
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

// TestPinnedBefore: records of another version, without tags, are refused and not changed.
func TestPinnedBefore(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}))(t)
	m := must.Get(ebpf.LoadPinnedMap(filepath.Join(dir, "sessions"), nil))(t)
	now := m.ValueSize()
	must.Do(t, errors.Join(m.Close(), l.Close()))
	for what, size := range map[string]uint32{"another size": 560, "other members": now} {
		t.Run(what, func(t *testing.T) { refusedPins(t, size) })
	}
}

// refusedPins pins a table with records of a size or with fields that this version does not know.
func refusedPins(t *testing.T, size uint32) {
	dir := filesystem(t)
	for name, size := range map[string]uint32{"sessions": size, "flows": 12, "events": 8} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: 16})
		if err == nil {
			err = errors.Join(m.Pin(filepath.Join(dir, name)), m.Close())
		}
		must.Do(t, err)
	}
	if _, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}); err == nil || !strings.Contains(err.Error(), "another version") || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 3 {
		t.Errorf("pinned after that: %v, %v", list, err)
	}
}

// TestEndedKeepsItsTimes: a session that has ended keeps its age, and is idle since its end, even if another
// session has its place.
func TestEndedKeepsItsTimes(t *testing.T) {
	if !alone(t) {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 1}))(t)
	defer l.Close()
	now := must.Get(sys.Monotonic())(t)
	at := listener(t, "127.0.0.1:0")
	has := func(o lane.Owner) (*lane.Session, error) {
		_, a, b, _ := legs(t, at)
		defer a.Close()
		defer b.Close()
		return register(l, sockets.FD(t, a), sockets.FD(t, b), o)
	}
	age := now / 2 // the machine may have started a minute ago
	old := must.Get(has(&taggedOwner{begun: now - age}))(t)
	must.Fail(has(&recorder{}))(t, lane.Full)
	old.Release()
	var other *lane.Session
	condition.Await(t, "its place is another one's", func() bool {
		var err error
		other, err = has(&recorder{})
		return err == nil
	})
	defer other.Release()
	if old.Age() < age || old.Idle() > old.Age()-age || other.Age() > min(age, time.Minute) {
		t.Errorf("ended: age %v, idle for %v; another one: %v", old.Age(), old.Idle(), other.Age())
	}
}

// member returns the offset of a field of a record.
func member(t *testing.T, name string) uintptr {
	t.Helper()
	f, ok := reflect.TypeFor[program.Session]().FieldByName(name)
	if !ok {
		t.Fatal("a record has no", name)
	}
	return f.Offset
}

// echoing starts a server that waits for no connection at the end of the test: the connections of a session
// that was not adopted may stay until they send something.
func echoing(t *testing.T) string {
	t.Helper()
	at := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { at.Close() })
	go func() {
		for {
			c, err := at.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go io.Copy(c, c)
		}
	}()
	return at.Addr().String()
}

// rewritten calls change with the pinned record of each session in the lane.
func rewritten(t *testing.T, dir string, change func(record []byte)) {
	t.Helper()
	m := must.Get(ebpf.LoadPinnedMap(filepath.Join(dir, "sessions"), nil))(t)
	defer m.Close()
	for slot := range m.MaxEntries() {
		var b []byte
		must.Do(t, m.Lookup(slot, &b))
		if b[0] != byte(state.Lane) {
			continue
		}
		change(b)
		must.Do(t, m.Put(slot, b))
	}
}

// TestDamagedRecord: a record with an impossible side in its observations is adopted without these
// observations. A record with impossible scales is not adopted, and its connections end.
func TestDamagedRecord(t *testing.T) {
	if !aloneWithMounts(t) {
		return
	}
	half := member(t, "Half")
	scale, _ := reflect.TypeFor[program.Session]().FieldByName("Half")
	of, _ := scale.Type.Elem().FieldByName("Scale")
	for name, c := range map[string]struct {
		at      []uintptr
		adopted int
	}{
		"observations": {[]uintptr{member(t, "Spoke"), member(t, "Stalled"), member(t, "EndedBy"), member(t, "Newest")}, 1},
		"scale":        {[]uintptr{half + of.Offset}, 0},
		"state":        {[]uintptr{member(t, "Word")}, 0},
		"reported":     {[]uintptr{member(t, "Reported")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filesystem(t)
			p := startProxy(t, echoing(t), dir)
			client := p.talkers(t, 1)[0]
			p.kill()
			rewritten(t, dir, func(b []byte) {
				for _, at := range c.at {
					b[at] = 200
				}
			})
			l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}))(t)
			if st := l.Stats(); st.Adopted != uint64(c.adopted) || st.Failed != uint64(1-c.adopted) {
				t.Errorf("%+v", st)
			}
			renewed([]*net.TCPConn{client})
			for _, s := range l.Sessions() {
				echo(t, client, "it goes on")
				if v, ok := s.Look(); !ok || v.EndedBy != -1 || s.Idle() < 0 {
					t.Errorf("%+v, %v, idle %v", v, ok, s.Idle())
				}
			}
			if c.adopted == 0 {
				_, err := client.Write([]byte("is anyone there?"))
				if err == nil {
					_, err = client.Read(make([]byte, 1))
				}
				if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					t.Errorf("%v, want a reset", err)
				}
			}
			must.Do(t, l.Close())
		})
	}
}

// pinnedLane opens a lane with pins. Closing it does not have to wait for sessions.
func pinnedLane(t *testing.T, dir string) *lane.Lane {
	t.Helper()
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 8, Pin: dir}))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

// pins returns how many files a directory has.
func pins(t *testing.T, dir string) int {
	t.Helper()
	files := must.Get(os.ReadDir(dir))(t)
	return len(files)
}

// TestPinsOfOthers: whoever can write among the pins could plant programs.
func TestPinsOfOthers(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	must.Do(t, os.Chmod(dir, 0o777))
	must.Fail(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}))(t, os.ErrPermission)
}

// TestLeaveOfNone: if no session goes on, Leave detaches and unpins everything, so that the next process can
// have other pins. Sessions in user space are reset. A session that has ended and lingers does not go on.
func TestLeaveOfNone(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	other := dir + "2"
	must.Do(t, os.Mkdir(other, 0o700))
	l := pinnedLane(t, dir)
	ended, here, gone := joined(t, l, "tcp", "127.0.0.1:0"), joined(t, l, "tcp", "127.0.0.1:0"), joined(t, l, "tcp", "127.0.0.1:0")
	ended.talk(t)
	must.Do(t, errors.Join(ended.client.CloseWrite(), ended.server.CloseWrite()))
	ended.Wait()
	gone.talk(t)
	gone.Reset()
	must.Do(t, l.Leave())
	for _, c := range []*net.TCPConn{here.client, here.server, gone.client, gone.server} {
		wantReset(t, "a session that does not go on", c)
	}
	if n := pins(t, dir); n > 0 {
		t.Errorf("%d files are pinned", n)
	}
	l = pinnedLane(t, other)
	left := joined(t, l, "tcp", "127.0.0.1:0")
	left.talk(t)
	must.Do(t, l.Leave())
	left.exchange(t, []byte("goes on"), left.client, left.server)
	must.Fail(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}))(t, lane.ErrBusy)
	if l = pinnedLane(t, other); l.Stats().Adopted != 1 {
		t.Errorf("%+v", l.Stats())
	}
	for _, c := range []*net.TCPConn{left.client, left.server} {
		must.Do(t, c.CloseWrite())
	}
	condition.Await(t, "it has ended", func() bool { return l.Stats().Lane == 0 })
	must.Do(t, l.Leave())
	if n := pins(t, other); n > 0 {
		t.Errorf("%d files are pinned after the end of an adopted session", n)
	}
}

// TestLeaveLosesNone: a session that leaves user space during Lane.Leave is either reset or goes on, and then
// the programs stay.
func TestLeaveLosesNone(t *testing.T) {
	if !aloneWithMounts(t) {
		return
	}
	dir, target := filesystem(t), sockets.Server(t, sockets.Echo)
	var went, reset int
	for round := range 12 {
		l := pinnedLane(t, dir)
		client, a := connected(t, listener(t, "127.0.0.1:0"))
		b := must.Get(net.Dial("tcp", target))(t)
		limited(t, client)
		s := must.Get(l.Join(a, b.(*net.TCPConn), nil))(t)
		over := make(chan struct{})
		go func() {
			defer close(over)
			for began := time.Now(); !s.Left() && time.Since(began) < time.Duration(round%4)*time.Millisecond; {
			}
			if err := l.Leave(); err != nil {
				t.Error(err)
			}
		}()
		var err error
		for ended := false; err == nil && !ended; {
			select {
			case <-over:
				ended = true // and once more
			default:
			}
			if _, err = io.WriteString(client, "x"); err == nil {
				_, err = io.ReadFull(client, make([]byte, 1))
			}
		}
		<-over
		n := pins(t, dir)
		switch {
		case err == nil && n > 0:
			went++
			must.Do(t, pinnedLane(t, dir).Close())
		case n == 0 && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)):
			reset++
		default:
			t.Fatalf("%d files are pinned, and the client has %v", n, err)
		}
	}
	t.Logf("%d went on, %d were reset", went, reset)
}

// TestDamagedTable: a table of random records is opened, read and closed.
func TestDamagedTable(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	for seed := range uint64(8) {
		damage(t, dir, rand.New(rand.NewPCG(seed, 7)), seed%2 == 0)
		l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Linger: time.Millisecond}))(t)
		for _, s := range l.Sessions() {
			s.Look()
			s.Addresses()
			s.Tag()
			if s.Idle() < 0 || s.Age() < 0 {
				t.Errorf("idle %v, age %v", s.Idle(), s.Age())
			}
			s.Bytes()
		}
		p := joined(t, l, "tcp", "127.0.0.1:0")
		p.talk(t)
		must.Do(t, l.Close())
	}
}

// damage leaves a pinned table of random records.
func damage(t *testing.T, dir string, rnd *rand.Rand, states bool) {
	t.Helper()
	crashed(t, dir, "lo")
	m := must.Get(ebpf.LoadPinnedMap(filepath.Join(dir, "sessions"), nil))(t)
	defer m.Close()
	b := make([]byte, m.ValueSize())
	for slot := range uint32(31) { // one slot stays free, for a session of the test
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		if states {
			clear(b[:8])
			b[0] = byte(rnd.IntN(9))
		}
		must.Do(t, m.Put(slot, b))
	}
}
