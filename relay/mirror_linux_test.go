package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay"
)

// A mirrored is a session with a mirror of what A sends.
type mirrored struct {
	*rig
	on     *looped
	S      halfConn // the shadow's far end
	shadow relay.Socket
	mirror relay.Mirror
	ended  chan relay.MirrorResult
}

func (m *mirrored) MirrorEnded(_ *relay.Mirror, res relay.MirrorResult) { m.ended <- res }

// newMirrored starts a session on a loop whose shadow is not connected yet.
func newMirrored(t *testing.T, r *relay.Relay, d *driving, network network, patience time.Duration) *mirrored {
	t.Helper()
	return newMirroredBy(t, r, d, network, patience, func(*relay.Mirror, *relay.Socket) {})
}

// newMirroredBy is newMirrored with a mirror, and A's socket, that are prepared before the session; and B's by those of ofB.
func newMirroredBy(t *testing.T, r *relay.Relay, d *driving, network network, patience time.Duration, prepare func(*relay.Mirror, *relay.Socket), ofB ...func(*relay.Socket)) *mirrored {
	t.Helper()
	m := &mirrored{rig: &rig{t: t, done: make(chan struct{})}, on: d.looped(t, r), ended: make(chan relay.MirrorResult, 1)}
	var nearA, nearB, nearS net.Conn
	m.A, nearA = network(t)
	m.B, nearB = network(t)
	m.S, nearS = network(t)
	for _, c := range []net.Conn{m.A, m.B, m.S} {
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	}
	s := &loopSession{on: m.on, ended: func(res relay.Result, err error) { m.result, m.err = res, err; close(m.done) }}
	m.session, m.cancel = s, s.cut
	a, b := m.on.take(nearA), m.on.take(nearB)
	m.shadow = m.on.take(nearS)
	m.on.do(func() {
		m.on.driver.StartMirror(&m.mirror, patience, m)
		prepare(&m.mirror, &a)
	})
	a.Mirror = &m.mirror
	for _, prepare := range ofB {
		prepare(&b)
	}
	m.on.start(s, a, b)
	t.Cleanup(func() {
		m.cancel(errors.New("test is over"))
		<-m.done
		m.on.do(m.mirror.Cut)
	})
	return m
}

// connect gives the mirror its shadow.
func (m *mirrored) connect() {
	m.t.Helper()
	var err error
	m.on.do(func() {
		if m.shadow.ID, err = m.on.loop.Add(m.shadow.FD, 0, &m.mirror); err == nil {
			m.mirror.Connected(m.shadow)
		}
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// unconnected closes the shadow's socket, which the mirror never gets.
func (m *mirrored) unconnected() { _ = syscall.Close(m.shadow.FD) }

func (m *mirrored) mirrorEnd() relay.MirrorResult {
	m.t.Helper()
	select {
	case res := <-m.ended:
		m.ended <- res
		return res
	case <-time.After(60 * time.Second):
		m.t.Fatalf("the mirror has not ended: %+v", m.mirrorNow())
		panic("unreachable")
	}
}

// collect reads a connection to its end beside the test.
func collect(c net.Conn) <-chan []byte {
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(c)
		got <- b
	}()
	return got
}

// splicing are the engines that have pipes.
var splicing = []relay.Engine{relay.EngineAuto, relay.EngineSplice}

// TestMirrorWithoutPipes: a relay that has no pipes keeps what the shadow has not taken in a buffer, which has its bound, and
// which nothing is left of.
func TestMirrorWithoutPipes(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineCopy})
	m := newMirrored(t, r, ofLoop(), tcp, time.Minute)
	var sent []byte
	atB, atS := collect(m.B), collect(m.S)
	for i, n := range []int{1, 100, 5_000, 60_000, 40_000, 90_000, 300} { // not yet connected
		sent = append(sent, content(uint64(i), n)...)
	}
	for i, n := 0, 0; i < len(sent); i += n {
		n = min(10_000, len(sent)-i)
		if _, err := m.A.Write(sent[i : i+n]); err != nil {
			t.Fatal(err)
		}
	}
	m.until("it has come", func(res relay.Result) bool { return res.AToB.Bytes() == int64(len(sent)) })
	m.connect()
	for i := range 300 {
		b := content(uint64(i), 20_000)
		sent = append(sent, b...)
		if _, err := m.A.Write(b); err != nil {
			t.Fatal(err)
		}
		m.mirrorUntil(func(res relay.MirrorResult) bool { return res.Copied > int64(len(sent)-200<<10) })
	}
	_ = m.A.CloseWrite()
	if got := <-atS; !bytes.Equal(got, sent) {
		t.Errorf("the shadow has got %d bytes of %d, or others", len(got), len(sent))
	}
	if got := <-atB; !bytes.Equal(got, sent) {
		t.Errorf("B has got %d bytes of %d, or others", len(got), len(sent))
	}
	_, _ = m.S.CloseWrite(), m.B.CloseWrite()
	if res := m.mirrorEnd(); res.Reason != relay.MirrorComplete || res.Teed != 0 || res.Copied != int64(len(sent)) {
		t.Errorf("%+v", res)
	}
	m.wait()
}

// TestMirrorBufferIsBounded: more than that ends the mirror of a relay without pipes, and the shadow's socket is closed when it
// comes.
func TestMirrorBufferIsBounded(t *testing.T) {
	t.Parallel()

	m := newMirrored(t, newRelay(t, &relay.Config{Engine: relay.EngineCopy}), ofLoop(), tcp, time.Minute)
	for range 300 {
		sendOn(t, m, 1000)
	}
	if res := m.mirrorEnd(); res.Reason != relay.MirrorBehind || res.Undelivered < 256<<10 {
		t.Errorf("%+v", res)
	}
	m.connect()
	if _, err := m.S.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the shadow's socket is not closed: %v", err)
	}
	sendOn(t, m, 100)
}

// TestMirror: the shadow gets what A sends, byte for byte and to its end, whatever mixture of
// small messages and bulk it is; the session is as without.
func TestMirror(t *testing.T) {
	t.Parallel()

	for _, e := range splicing {
		for name, network := range map[string]network{"tcp": tcp, "unix": unixStream} {
			t.Run(fmt.Sprintf("%v/%s", e, name), func(t *testing.T) {
				r := newRelay(t, &relay.Config{Engine: e})
				m := newMirrored(t, r, ofLoop(), network, time.Minute)
				atB, atS, random := collect(m.B), collect(m.S), rand.New(rand.NewPCG(1, 2))
				var sent []byte
				for i := range 300 {
					if i == 20 {
						m.connect()
					}
					n := 1 + random.IntN(100)
					if i > 100 && random.IntN(4) == 0 {
						n = 1 + random.IntN(200<<10)
					}
					b := content(uint64(i), n)
					sent = append(sent, b...)
					if _, err := m.A.Write(b); err != nil {
						t.Fatal(err)
					}
					m.until("it has come", func(res relay.Result) bool { return res.AToB.Bytes() == int64(len(sent)) })
					if i >= 20 { // A's next bytes do not meet a full pipe
						m.mirrorUntil(func(res relay.MirrorResult) bool { return res.Teed+res.Copied == int64(len(sent)) })
					}
				}
				answer := []byte("the shadow's answer reaches nobody")
				if _, err := m.S.Write(answer); err != nil {
					t.Fatal(err)
				}
				_ = m.A.CloseWrite()
				if got := <-atB; !bytes.Equal(got, sent) {
					t.Errorf("B has got %d bytes of %d", len(got), len(sent))
				}
				if got := <-atS; !bytes.Equal(got, sent) {
					t.Errorf("the shadow has got %d bytes of %d", len(got), len(sent))
				}
				_ = m.S.Close()
				res := m.mirrorEnd()
				if res.Reason != relay.MirrorComplete || res.Teed+res.Copied != int64(len(sent)) || res.Undelivered != 0 || res.Answered != int64(len(answer)) {
					t.Errorf("%+v", res)
				}
				if e == relay.EngineSplice && res.Teed < int64(len(sent)) || e == relay.EngineAuto && (res.Copied == 0 || res.Teed == 0) {
					t.Errorf("of %v: %+v", e, res)
				}
				_ = m.B.CloseWrite()
				if got := <-collect(m.A); len(got) > 0 {
					t.Errorf("A has got %q", got)
				}
				if res, err := m.wait(); err != nil || res.Reason != relay.ReasonEOF || res.AToB.Bytes() != int64(len(sent)) {
					t.Errorf("%+v, %v", res, err)
				}
			})
		}
	}
}

// mirrorUntil waits for a condition of the mirror's live result.
func (m *mirrored) mirrorUntil(cond func(relay.MirrorResult) bool) {
	m.t.Helper()
	var res relay.MirrorResult
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); {
		m.on.do(func() { res = m.mirror.Result() })
		if cond(res) {
			return
		}
		if res.Reason != relay.MirrorNone {
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	m.t.Fatalf("not in time: %+v", res)
}

// TestMirrorHurtsNobody: whatever the shadow does, the session's bytes arrive, and the mirror
// ends with its reason. Nothing is leased when it has.
func TestMirrorHurtsNobody(t *testing.T) {
	t.Parallel()

	refused := errors.New("refused")
	for name, c := range map[string]struct {
		shadow func(m *mirrored)
		reason relay.MirrorReason
	}{
		"refused":  {func(m *mirrored) { m.unconnected(); m.on.do(func() { m.mirror.Refused(refused) }) }, relay.MirrorConnect},
		"dead":     {func(m *mirrored) { m.unconnected() }, relay.MirrorBehind},
		"frozen":   {func(m *mirrored) { m.connect() }, relay.MirrorBehind},
		"resets":   {func(m *mirrored) { m.connect(); abort(m.t, m.S) }, relay.MirrorReset},
		"cut":      {func(m *mirrored) { m.connect(); m.on.do(m.mirror.Cut) }, relay.MirrorCut},
		"has left": {func(m *mirrored) { m.connect(); _ = m.S.Close() }, relay.MirrorReset},
	} {
		t.Run(name, func(t *testing.T) {
			for _, e := range splicing {
				r := newRelay(t, &relay.Config{Engine: e})
				m := newMirrored(t, r, ofLoop(), tcp, time.Minute)
				atB := collect(m.B)
				c.shadow(m)
				sent := content(7, 32<<20)
				if _, err := m.A.Write(sent); err != nil {
					t.Fatal(err)
				}
				_ = m.A.CloseWrite()
				if got := <-atB; !bytes.Equal(got, sent) {
					t.Fatalf("%v: B has got %d bytes of %d", e, len(got), len(sent))
				}
				if res := m.mirrorEnd(); res.Reason != c.reason || (res.Err != nil) != (c.reason == relay.MirrorConnect || c.reason == relay.MirrorReset) {
					t.Errorf("%v: %+v", e, res)
				}
				_ = m.B.CloseWrite()
				if res, err := m.wait(); err != nil || res.Reason != relay.ReasonEOF {
					t.Errorf("%v: %+v, %v", e, res, err)
				}
				if s := r.Stats(); s.Pipes.Leased != 0 {
					t.Errorf("%v: %d pipes are leased", e, s.Pipes.Leased)
				}
			}
		})
	}
}

// TestMirrorPatience: bytes that the shadow does not take end the mirror, once they have waited for
// its patience; before that they do not. Bytes before the connection wait as well.
func TestMirrorPatience(t *testing.T) {
	t.Parallel()

	for _, connected := range []bool{false, true} {
		for _, e := range splicing {
			d := ofLoop()
			r, clock := d.clockedRelay(t, relay.Config{Engine: e})
			m := newMirrored(t, r, d, smallTCP, 20*time.Second) // the kernel's clock is not moved
			if connected {
				m.connect()
				fillMirror(t, m)
			} else {
				m.unconnected()
				sendOn(t, m, 100)
			}
			clock.advance(18 * time.Second)
			if res := m.mirrorNow(); res.Reason != relay.MirrorNone {
				t.Fatalf("%v, %v: early: %+v", connected, e, res)
			}
			clock.advance(4 * time.Second) // the first byte's, which may have been taken
			clock.advance(22 * time.Second)
			if res := m.mirrorEnd(); res.Reason != relay.MirrorLate || res.Undelivered == 0 {
				t.Errorf("%v, %v: %+v", connected, e, res)
			}
			sendOn(t, m, 1000) // goes on
		}
	}
}

// TestMirrorOfAFrozenShadow: bytes that the kernel has taken for a shadow whose window is closed are undelivered, too.
func TestMirrorOfAFrozenShadow(t *testing.T) {
	t.Parallel()

	m := newMirrored(t, newRelay(t, nil), ofLoop(), tcp, 3*time.Second)
	m.connect()
	for unsent := 0; unsent < 256<<10; { // more than there is room for at the other end
		sendOn(t, m, 16<<10)
		n, err := sys.SIOCOUTQNSD(m.shadow.FD)
		if err != nil {
			t.Fatal(err)
		}
		unsent = n
	}
	if sent, res := m.session.Result().AToB.Bytes(), m.mirrorNow(); res.Teed+res.Copied != sent {
		t.Errorf("%d bytes were sent: %+v", sent, res)
	}
	if res := m.mirrorEnd(); res.Reason != relay.MirrorLate || !errors.Is(res.Err, syscall.ETIMEDOUT) {
		t.Errorf("%+v", res)
	}
	sendOn(t, m, 1000) // goes on
}

func (m *mirrored) mirrorNow() (res relay.MirrorResult) {
	m.on.do(func() { res = m.mirror.Result() })
	return res
}

// sendOn sends n bytes from A to B, and waits for them.
func sendOn(t *testing.T, m *mirrored, n int) {
	t.Helper()
	b := content(3, n)
	if _, err := m.A.Write(b); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, n)
	if _, err := io.ReadFull(m.B, got); err != nil || !bytes.Equal(got, b) {
		t.Fatalf("%v", err)
	}
}

// fillMirror sends from A until the shadow takes no more.
func fillMirror(t *testing.T, m *mirrored) {
	t.Helper()
	for range 10_000 {
		sent := m.session.Result().AToB.Bytes()
		sendOn(t, m, 4096)
		res := m.mirrorNow()
		if res.Reason != relay.MirrorNone {
			t.Fatalf("%+v", res)
		}
		if res.Teed+res.Copied < sent {
			return
		}
	}
	t.Fatal("the shadow takes everything")
}

// TestMirrorOfAReset: the shadow is reset when A is, or when the session is cut.
func TestMirrorOfAReset(t *testing.T) {
	t.Parallel()

	for name, end := range map[string]func(m *mirrored){
		"reset": func(m *mirrored) { abort(m.t, m.A) },
		"cut":   func(m *mirrored) { m.cancel(errors.New("cut")) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirrored(t, newRelay(t, nil), ofLoop(), tcp, time.Minute)
			m.connect()
			sendOn(t, m, 100)
			if _, err := io.ReadFull(m.S, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			end(m)
			if res := m.mirrorEnd(); res.Reason != relay.MirrorCut {
				t.Errorf("%+v", res)
			}
			if _, err := m.S.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the shadow is not reset: %v", err)
			}
		})
	}
}

// TestMirrorIdles: while nothing is under way a mirror holds no pipe.
func TestMirrorIdles(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	m := newMirrored(t, r, ofLoop(), tcp, time.Minute)
	m.connect()
	for range 10 {
		sendOn(t, m, 5000)
		if _, err := io.ReadFull(m.S, make([]byte, 5000)); err != nil {
			t.Fatal(err)
		}
		m.on.turn()
		if n := r.Stats().Pipes.Leased; n != 0 {
			t.Fatalf("%d pipes are leased", n)
		}
	}
}

// TestMirrorAfterTheSource: a mirror lasts as long as its session goes on after the source's end of file,
// and for its patience after the session's end, whether its shadow goes on or has not even come.
func TestMirrorAfterTheSource(t *testing.T) {
	t.Parallel()

	for connected, reason := range map[bool]relay.MirrorReason{false: relay.MirrorLate, true: relay.MirrorComplete} {
		d := ofLoop()
		r, clock := d.clockedRelay(t, relay.Config{})
		m := newMirrored(t, r, d, tcp, time.Second)
		if connected {
			m.connect()
		} else {
			m.unconnected()
		}
		_ = m.A.CloseWrite()
		if got := <-collect(m.B); len(got) > 0 {
			t.Fatalf("B has got %q", got)
		}
		clock.advance(10 * time.Second)
		if res := m.mirrorNow(); res.Reason != relay.MirrorNone {
			t.Fatalf("%v: in the session: %+v", connected, res)
		}
		_ = m.B.CloseWrite()
		if res, err := m.wait(); err != nil || res.Reason != relay.ReasonEOF {
			t.Fatalf("%+v, %v", res, err)
		}
		clock.advance(900 * time.Millisecond)
		if res := m.mirrorNow(); res.Reason != relay.MirrorNone {
			t.Fatalf("%v: early: %+v", connected, res)
		}
		clock.advance(200 * time.Millisecond)
		if res := m.mirrorEnd(); res.Reason != reason {
			t.Errorf("%v: %+v", connected, res)
		}
	}
}

// TestMirrorHasTwoPipes: a mirror whose shadow is late has a second pipe once its first one is full, and no third. The
// shadow gets the bytes of both in their order, those of fills that came in parts, too.
func TestMirrorHasTwoPipes(t *testing.T) {
	t.Parallel()

	for _, late := range []bool{true, false} {
		r := newRelay(t, &relay.Config{Engine: relay.EngineSplice, MaxPipeSize: 64 << 10})
		m := newMirrored(t, r, ofLoop(), tcp, time.Minute)
		var sent []byte
		leased := func() int64 { m.on.turn(); return r.Stats().Pipes.Leased }
		send := func(n int) {
			sendOn(t, m, n)
			sent = append(sent, content(3, n)...)
		}
		for leased() < 2 {
			send(10_000) // of fewer slots than a pipe has, and no part of that
		}
		if !late {
			for m.mirrorNow().Reason == relay.MirrorNone {
				send(10_000)
				if n := leased(); n > 2 {
					t.Fatalf("%d pipes are leased", n)
				}
			}
			if res := m.mirrorEnd(); res.Reason != relay.MirrorBehind || leased() != 0 {
				t.Errorf("%+v, %d pipes are leased", res, leased())
			}
			m.unconnected()
			continue
		}
		m.connect()
		atS := collect(m.S)
		m.mirrorUntil(func(res relay.MirrorResult) bool { return res.Teed == int64(len(sent)) })
		if n := leased(); n != 0 {
			t.Errorf("%d pipes are leased", n)
		}
		send(200_000)
		_ = m.A.CloseWrite()
		if got := <-atS; !bytes.Equal(got, sent) {
			t.Errorf("the shadow has got %d bytes of %d, or others", len(got), len(sent))
		}
	}
}
