package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// A mirrored is a session with a mirror of what A sends.
type mirrored struct {
	*rig
	on     *looped
	S      halfConn // the shadow's far end
	shadow relay.Socket
	mirror relay.Mirror
	ended  chan driver.MirrorResult
}

func (m *mirrored) MirrorEnded(_ *relay.Mirror, res driver.MirrorResult) { m.ended <- res }

// newMirrored starts a session on a loop whose shadow is not connected yet.
func newMirrored(t *testing.T, r *relay.Relay, d *driving, network network, patience time.Duration) *mirrored {
	t.Helper()
	return newMirroredBy(t, r, d, network, patience, func(*relay.Mirror, *relay.Socket) {})
}

// newMirroredBy is newMirrored with a mirror, and A's socket, that are prepared before the session; and B's by those of ofB.
func newMirroredBy(t *testing.T, r *relay.Relay, d *driving, network network, patience time.Duration, prepare func(*relay.Mirror, *relay.Socket), ofB ...func(*relay.Socket)) *mirrored {
	t.Helper()
	m := &mirrored{on: d.looped(t, r), ended: make(chan driver.MirrorResult, 1)}
	var nearS net.Conn
	m.S, nearS = network(t)
	_ = m.S.SetDeadline(time.Now().Add(condition.Patience))
	m.shadow = m.on.take(nearS)
	d.change = func(a, b *relay.Socket) {
		m.on.do(func() {
			m.on.driver.StartMirror(&m.mirror, patience, m)
			prepare(&m.mirror, a)
		})
		a.Mirror = &m.mirror
		for _, prepare := range ofB {
			prepare(b)
		}
	}
	m.rig = d.newRig(t, r, network, network)
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
	must.Do(m.t, err)
}

// unconnected closes the shadow's socket, which the mirror never gets.
func (m *mirrored) unconnected() { _ = syscall.Close(m.shadow.FD) }

func (m *mirrored) mirrorEnd() driver.MirrorResult {
	m.t.Helper()
	res := condition.Receive(m.t, "the mirror ends", m.ended)
	m.ended <- res
	return res
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
		write(t, m.A, sent[i:i+n])
	}
	m.until("it has come", func(res relay.Result) bool { return res.AToB.Bytes() == int64(len(sent)) })
	m.connect()
	for i := range 300 {
		b := content(uint64(i), 20_000)
		sent = append(sent, b...)
		write(t, m.A, b)
		m.mirrorUntil(func(res driver.MirrorResult) bool { return res.Copied > int64(len(sent)-200<<10) })
	}
	_ = m.A.CloseWrite()
	arrives(t, atS, sent)
	arrives(t, atB, sent)
	_, _ = m.S.CloseWrite(), m.B.CloseWrite()
	if res := m.mirrorEnd(); res.Reason != driver.MirrorComplete || res.Teed != 0 || res.Copied != int64(len(sent)) {
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
	if res := m.mirrorEnd(); res.Reason != driver.MirrorBehind || res.Undelivered < 256<<10 {
		t.Errorf("%+v", res)
	}
	m.connect()
	if _, err := m.S.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the shadow's socket is not closed: %v", err)
	}
	sendOn(t, m, 100)
}

// TestMirror: the shadow gets what A sends, byte for byte and to its end, whatever mixture of
// small messages and bulk it is; the session is as without. The figures of the mirror say which of its bytes came by tee(2).
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
					} else if i > 3 && i < 7 { // these wait for it beside bytes that are written
						n = 64 << 10
					}
					b := content(uint64(i), n)
					sent = append(sent, b...)
					write(t, m.A, b)
					m.until("it has come", func(res relay.Result) bool { return res.AToB.Bytes() == int64(len(sent)) })
					if i >= 20 { // A's next bytes do not meet a full pipe
						m.mirrorUntil(func(res driver.MirrorResult) bool { return res.Teed+res.Copied == int64(len(sent)) })
					}
				}
				answer := []byte("the shadow's answer reaches nobody")
				write(t, m.S, answer)
				_ = m.A.CloseWrite()
				arrives(t, atB, sent)
				arrives(t, atS, sent)
				_ = m.S.Close()
				res := m.mirrorEnd()
				if res.Reason != driver.MirrorComplete || res.Teed+res.Copied != int64(len(sent)) || res.Undelivered != 0 || res.Answered != int64(len(answer)) {
					t.Errorf("%+v", res)
				}
				if e == relay.EngineSplice && res.Teed < int64(len(sent)) || e == relay.EngineAuto && (res.Copied == 0 || res.Teed == 0) {
					t.Errorf("of %v: %+v", e, res)
				}
				_ = m.B.CloseWrite()
				if got := <-collect(m.A); len(got) > 0 {
					t.Errorf("A has got %q", got)
				}
				if s, err := m.wait(); err != nil || s.Reason != relay.ReasonEOF || s.AToB.Spliced != res.Teed || s.AToB.Copied != res.Copied {
					t.Errorf("the mirror says %+v, the session %+v, %v", res, s, err)
				}
			})
		}
	}
}

// mirrorUntil waits for a condition of the mirror's live result.
func (m *mirrored) mirrorUntil(cond func(driver.MirrorResult) bool) {
	m.t.Helper()
	var res driver.MirrorResult
	for deadline := time.Now().Add(condition.Patience); time.Now().Before(deadline); {
		m.on.do(func() { res = m.mirror.Result() })
		if cond(res) {
			return
		}
		if res.Reason != driver.MirrorNone {
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
		reason driver.MirrorReason
	}{
		"refused":  {func(m *mirrored) { m.unconnected(); m.on.do(func() { m.mirror.Refused(refused) }) }, driver.MirrorConnect},
		"dead":     {func(m *mirrored) { m.unconnected() }, driver.MirrorBehind},
		"frozen":   {func(m *mirrored) { m.connect() }, driver.MirrorBehind},
		"resets":   {func(m *mirrored) { m.connect(); abort(m.t, m.S) }, driver.MirrorReset},
		"cut":      {func(m *mirrored) { m.connect(); m.on.do(m.mirror.Cut) }, driver.MirrorCut},
		"has left": {func(m *mirrored) { m.connect(); _ = m.S.Close() }, driver.MirrorReset},
	} {
		t.Run(name, func(t *testing.T) {
			for _, e := range splicing {
				r := newRelay(t, &relay.Config{Engine: e})
				m := newMirrored(t, r, ofLoop(), tcp, time.Minute)
				atB := collect(m.B)
				c.shadow(m)
				sent := content(7, 32<<20) // a slot of a pipe may have eight pages
				write(t, m.A, sent)
				_ = m.A.CloseWrite()
				arrives(t, atB, sent)
				if res := m.mirrorEnd(); res.Reason != c.reason || (res.Err != nil) != (c.reason == driver.MirrorConnect || c.reason == driver.MirrorReset) {
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
			const patience = 3 * time.Minute // longer than this test takes on a busy machine: the kernel's clock is not moved
			m := newMirrored(t, r, d, smallTCP, patience)
			if connected {
				m.connect()
				fillMirror(t, m)
			} else {
				m.unconnected()
				sendOn(t, m, 100)
			}
			clock.advance(9 * patience / 10)
			if res := m.mirrorNow(); res.Reason != driver.MirrorNone {
				t.Fatalf("%v, %v: early: %+v", connected, e, res)
			}
			clock.advance(patience / 5)                         // the first byte's, which may have been taken
			condition.Await(t, "the mirror ends", func() bool { // each look may find that some more was taken before, or all
				if res := m.mirrorNow(); connected && res.Reason == driver.MirrorNone && res.Teed+res.Copied == m.session.Result().AToB.Bytes() {
					fillMirror(t, m)
				}
				clock.advance(11 * patience / 10)
				return m.mirrorNow().Reason != driver.MirrorNone
			})
			if res := m.mirrorEnd(); res.Reason != driver.MirrorLate || res.Undelivered == 0 {
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
		n := must.Get(sys.SIOCOUTQNSD(m.shadow.FD))(t)
		unsent = n
	}
	if sent, res := m.session.Result().AToB.Bytes(), m.mirrorNow(); res.Teed+res.Copied != sent {
		t.Errorf("%d bytes were sent: %+v", sent, res)
	}
	if res := m.mirrorEnd(); res.Reason != driver.MirrorLate || !errors.Is(res.Err, syscall.ETIMEDOUT) {
		t.Errorf("%+v", res)
	}
	sendOn(t, m, 1000) // goes on
}

func (m *mirrored) mirrorNow() (res driver.MirrorResult) {
	m.on.do(func() { res = m.mirror.Result() })
	return res
}

// sendOn sends n bytes from A to B, and waits for them.
func sendOn(t *testing.T, m *mirrored, n int) {
	t.Helper()
	b := content(3, n)
	write(t, m.A, b)
	got := make([]byte, n)
	if _, err := io.ReadFull(m.B, got); err != nil || !bytes.Equal(got, b) {
		t.Fatalf("%v", err)
	}
}

// fillMirror sends from A until the shadow takes no more.
func fillMirror(t *testing.T, m *mirrored) {
	t.Helper()
	var before driver.MirrorResult
	for range 10_000 {
		sent := m.session.Result().AToB.Bytes()
		sendOn(t, m, 4096)
		res := m.mirrorNow()
		if res.Reason != driver.MirrorNone {
			t.Fatalf("%+v", res)
		}
		if res.Teed+res.Copied < sent && res == before { // less than sent alone may be a busy machine
			return
		}
		before = res
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
			readFull(t, m.S, make([]byte, 100))
			end(m)
			if res := m.mirrorEnd(); res.Reason != driver.MirrorCut {
				t.Errorf("%+v", res)
			}
			must.Fail(m.S.Read(make([]byte, 1)))(t, syscall.ECONNRESET)
		})
	}
}

// TestMirrorCountsAFailedWrite: the bytes of the write that shows the shadow's failure are undelivered as well.
func TestMirrorCountsAFailedWrite(t *testing.T) {
	t.Parallel()

	m := newMirrored(t, newRelay(t, nil), ofLoop(), tcp, time.Minute)
	m.connect()
	m.on.do(func() {
		_ = sys.ShutdownWrite(m.shadow.FD)
		m.mirror.Write([]byte("lost"))
	})
	if res := m.mirrorEnd(); res.Reason != driver.MirrorReset || res.Copied != 0 || res.Undelivered != 4 {
		t.Errorf("%+v", res)
	}
}

// TestMirrorAfterTheSource: a mirror lasts as long as its session goes on after the source's end of file,
// and for its patience after the session's end, whether its shadow goes on or has not even come.
func TestMirrorAfterTheSource(t *testing.T) {
	t.Parallel()

	for connected, reason := range map[bool]driver.MirrorReason{false: driver.MirrorLate, true: driver.MirrorComplete} {
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
		if res := m.mirrorNow(); res.Reason != driver.MirrorNone {
			t.Fatalf("%v: in the session: %+v", connected, res)
		}
		_ = m.B.CloseWrite()
		if res, err := m.wait(); err != nil || res.Reason != relay.ReasonEOF {
			t.Fatalf("%+v, %v", res, err)
		}
		clock.advance(900 * time.Millisecond)
		if res := m.mirrorNow(); res.Reason != driver.MirrorNone {
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
			for m.mirrorNow().Reason == driver.MirrorNone {
				send(10_000)
				if n := leased(); n > 2 {
					t.Fatalf("%d pipes are leased", n)
				}
			}
			if res := m.mirrorEnd(); res.Reason != driver.MirrorBehind || leased() != 0 {
				t.Errorf("%+v, %d pipes are leased", res, leased())
			}
			m.unconnected()
			continue
		}
		m.connect()
		atS := collect(m.S)
		m.mirrorUntil(func(res driver.MirrorResult) bool { return res.Teed == int64(len(sent)) })
		if n := leased(); n != 0 {
			t.Errorf("%d pipes are leased", n)
		}
		send(200_000)
		_ = m.A.CloseWrite()
		arrives(t, atS, sent)
	}
}

// TestMirrorBuffersAreBounded: all mirrors of a loop without pipes have 16 MiB of the heap together. Those that need more end, and their
// sessions go on; the memory of those that end is there for others.
func TestMirrorBuffersAreBounded(t *testing.T) {
	t.Parallel()

	d, r := ofLoop(), newRelay(t, &relay.Config{Engine: relay.EngineCopy})
	var all []*mirrored
	room := func() bool {
		m := newMirrored(t, r, d, tcp, time.Minute)
		all = append(all, m)
		for range 4 {
			sendOn(t, m, 60_000)
		}
		m.on.turn()
		return m.mirrorNow().Reason == driver.MirrorNone
	}
	for room() {
		if len(all) > 16<<20/(256<<10) {
			t.Fatalf("%d mirrors have a quarter of a MiB each", len(all))
		}
	}
	if res := all[len(all)-1].mirrorEnd(); res.Reason != driver.MirrorBehind || len(all) < 60 {
		t.Errorf("of %d mirrors the last has ended with %+v", len(all), res)
	}
	all[0].on.do(all[0].mirror.Cut)
	if !room() {
		t.Errorf("a mirror in the room of another one has ended with %+v", all[len(all)-1].mirrorEnd())
	}
	for _, m := range all {
		m.on.do(m.mirror.Cut)
		m.connect()
	}
}

// A witness is an observer that keeps what it sees. It belongs to the loop's goroutine.
type witness struct {
	sent, answered, shadow []byte
	skipped                int
	most                   int // answers that it wants of each side; 0: all
	ended, complete        bool
	late                   int // calls after the end
	sentAll                int // calls
}

func (w *witness) note() bool {
	if w.ended {
		w.late++
	}
	return w.most == 0 || len(w.answered) < w.most && len(w.shadow) < w.most
}

func (w *witness) Sent(b []byte)    { w.sent = append(w.sent, b...); w.note() }
func (w *witness) Skipped(n int)    { w.skipped += n; w.note() }
func (w *witness) Ended(whole bool) { w.note(); w.ended, w.complete = true, whole }

func (w *witness) SentAll() { w.note(); w.sentAll++ }

func (w *witness) Answered(b []byte) bool {
	w.answered = append(w.answered, b...)
	return w.note()
}

func (w *witness) ShadowAnswered(b []byte) bool {
	w.shadow = append(w.shadow, b...)
	return w.note()
}

// An observed is a session with a mirror and an observer.
type observed struct {
	*mirrored
	w *witness
}

func newObserved(t *testing.T, r *relay.Relay, d *driving, network network, most int) *observed {
	w := &witness{most: most}
	m := newMirroredBy(t, r, d, network, time.Minute, func(m *relay.Mirror, _ *relay.Socket) { m.Observe(w) })
	return &observed{m, w}
}

// until waits for a condition of the witness.
func (o *observed) seen(what string, cond func(w *witness) bool) {
	o.t.Helper()
	condition.Await(o.t, what, func() (ok bool) { o.on.do(func() { ok = cond(o.w) }); return ok })
}

// write writes all of b.
func (o *observed) write(c halfConn, b []byte) {
	o.t.Helper()
	write(o.t, c, b)
}

// TestMirrorObserver: an observer sees every byte of both answers in order, those before the shadow was
// connected included, and of what the source sends the bytes that are copied, and how many are not. The answers
// of the session's other side are copied, and nothing else changes.
func TestMirrorObserver(t *testing.T) {
	t.Parallel()

	for _, e := range []relay.Engine{relay.EngineAuto, relay.EngineSplice, relay.EngineCopy} {
		for name, network := range map[string]network{"tcp": tcp, "unix": unixStream} {
			t.Run(fmt.Sprintf("%v/%s", e, name), func(t *testing.T) {
				o := newObserved(t, newRelay(t, &relay.Config{Engine: e}), ofLoop(), network, 0)
				atA, atB, atS := collect(o.A), collect(o.B), collect(o.S)
				primary, shadow := content(1, 1<<20), content(2, 1<<20)
				sent := content(3, 300_000)
				o.write(o.B, primary[:100])
				o.seen("the answer before the shadow", func(w *witness) bool { return len(w.answered) == 100 })
				o.connect()
				o.write(o.A, sent[:64])
				o.seen("a small question", func(w *witness) bool { return len(w.sent)+w.skipped == 64 })
				wrote := make(chan struct{})
				go func() {
					defer close(wrote)
					o.write(o.S, shadow)
					_ = o.S.CloseWrite()
				}()
				o.write(o.B, primary[100:])
				<-wrote
				o.seen("both answers", func(w *witness) bool { return len(w.answered) == len(primary) && len(w.shadow) == len(shadow) })
				if e != relay.EngineCopy {
					for i := 64; i < len(sent); i += 1 << 16 { // so that the shadow's pipe takes each
						o.write(o.A, sent[i:min(i+1<<16, len(sent))])
						o.mirrorUntil(func(res driver.MirrorResult) bool { return res.Teed+res.Copied == int64(min(i+1<<16, len(sent))) })
					}
				} else {
					sent = sent[:64]
				}
				_ = o.A.CloseWrite()
				arrives(t, atS, sent)
				_ = o.B.CloseWrite()
				o.seen("the end", func(w *witness) bool { return w.ended })
				res, err := o.wait()
				if err != nil || !bytes.Equal(<-atA, primary) || !bytes.Equal(<-atB, sent) {
					t.Errorf("%+v, %v", res, err)
				}
				w := o.w
				if !w.complete || w.late > 0 || !bytes.Equal(w.answered, primary) || !bytes.Equal(w.shadow, shadow) {
					t.Errorf("complete %v, %d calls too late, %d and %d bytes answered", w.complete, w.late, len(w.answered), len(w.shadow))
				}
				if len(w.sent)+w.skipped != len(sent) || e == relay.EngineSplice && len(w.sent) > 0 {
					t.Errorf("%d bytes sent, %d skipped", len(w.sent), w.skipped)
				}
				want := int64(1)
				if e == relay.EngineCopy {
					want = 0
				}
				if f := res.BToA; f.Spliced > 0 || f.Fallbacks[relay.FallbackCompare] != want || res.AToB.Fallbacks[relay.FallbackCompare] != 0 {
					t.Errorf("%+v", res)
				}
				if e == relay.EngineSplice && res.AToB.Copied > 0 {
					t.Errorf("%+v", res)
				}
			})
		}
	}
}

// TestMirrorObserverHasEnough: once the observer wants no more the answers are spliced as they were, those of the
// shadow are thrown away, and the mirror goes on.
func TestMirrorObserverHasEnough(t *testing.T) {
	t.Parallel()

	for _, first := range []string{"primary", "shadow"} {
		for _, e := range splicing {
			o := newObserved(t, newRelay(t, &relay.Config{Engine: e}), ofLoop(), tcp, 1000)
			o.connect()
			atA, b := collect(o.A), content(1, 4<<20)
			from := o.B
			if first == "shadow" {
				from = o.S
			}
			o.write(from, b[:1000])
			o.seen("enough", func(w *witness) bool { return w.ended })
			o.write(o.S, b)
			if first == "shadow" {
				o.write(o.B, b[:1000])
			}
			o.write(o.B, b[1000:])
			o.write(o.A, b[:100])
			o.mirrorUntil(func(res driver.MirrorResult) bool { return res.Teed+res.Copied == 100 && res.Answered >= int64(len(b)) })
			_, _ = o.A.CloseWrite(), o.B.CloseWrite()
			arrives(t, atA, b)
			res, err := o.wait()
			if err != nil || res.BToA.Spliced == 0 || res.BToA.Fallbacks[relay.FallbackCompare] != 1 {
				t.Errorf("%v, %s: %+v, %v", e, first, res, err)
			}
			if w := o.w; w.complete || w.late > 0 || len(w.answered)+len(w.shadow) > 1000 {
				t.Errorf("%v, %s: complete %v, %d calls too late, %d and %d bytes answered", e, first, w.complete, w.late, len(w.answered), len(w.shadow))
			}
		}
	}
}

// TestMirrorObserverEnds: observing ends once, whoever ends first, and is complete if both answers have ended by
// their end of file and the shadow has got everything.
func TestMirrorObserverEnds(t *testing.T) {
	t.Parallel()

	shut := func(t *testing.T, c halfConn) {
		must.Do(t, c.CloseWrite())
	}
	for name, c := range map[string]struct {
		ends     func(t *testing.T, o *observed)
		complete bool
	}{
		"client, primary, shadow": {func(t *testing.T, o *observed) { shut(t, o.A); shut(t, o.B); shut(t, o.S) }, true},
		"client, shadow, primary": {func(t *testing.T, o *observed) {
			shut(t, o.A)
			shut(t, o.S)
			o.mirrorEnd()
			shut(t, o.B)
		}, true},
		"shadow, primary, client": {func(t *testing.T, o *observed) {
			shut(t, o.S)
			shut(t, o.B)
			o.until("the end of B", func(res relay.Result) bool { return res.BToA.Reason == relay.ReasonEOF })
			shut(t, o.A)
		}, true},
		"primary, client, shadow": {func(t *testing.T, o *observed) {
			shut(t, o.B)
			shut(t, o.A)
			<-o.done
			shut(t, o.S)
		}, true},
		"the client is reset":  {func(t *testing.T, o *observed) { abort(t, o.A) }, false},
		"the primary is reset": {func(t *testing.T, o *observed) { abort(t, o.B) }, false},
		"the shadow is reset":  {func(t *testing.T, o *observed) { abort(t, o.S) }, false},
		"the shadow has left": {func(t *testing.T, o *observed) {
			_ = o.S.Close()
			for !o.over() {
				sendOn(t, o.mirrored, 10)
			}
		}, false},
		"the session is cut": {func(t *testing.T, o *observed) { o.cancel(errors.New("cut")) }, false},
		"the mirror is cut":  {func(t *testing.T, o *observed) { o.on.do(o.mirror.Cut) }, false},
		"the session is cut after the shadow's end": {func(t *testing.T, o *observed) {
			shut(t, o.A)
			shut(t, o.S)
			o.mirrorEnd()
			o.cancel(errors.New("cut"))
		}, false},
	} {
		for _, e := range splicing {
			t.Run(fmt.Sprintf("%s/%v", name, e), func(t *testing.T) {
				o := newObserved(t, newRelay(t, &relay.Config{Engine: e}), ofLoop(), tcp, 0)
				o.connect()
				o.write(o.B, []byte("answer"))
				o.write(o.S, []byte("other"))
				o.seen("both", func(w *witness) bool { return len(w.answered) == 6 && len(w.shadow) == 5 })
				c.ends(t, o)
				o.seen("the end", func(w *witness) bool { return w.ended })
				if w := o.w; w.complete != c.complete || w.late > 0 {
					t.Errorf("complete %v, %d calls too late", w.complete, w.late)
				}
				clientFirst := strings.HasPrefix(name, "client,") || name == "the session is cut after the shadow's end"
				if w := o.w; (w.sentAll == 1) != clientFirst {
					t.Errorf("%d ends of the client", w.sentAll)
				}
			})
		}
	}
}

func (o *observed) over() (over bool) {
	o.on.do(func() { over = o.w.ended })
	return over
}

// TestMirrorObserverRefused: a shadow that is refused ends observing, and one that never ends its answers leaves it
// incomplete.
func TestMirrorObserverRefused(t *testing.T) {
	t.Parallel()

	o := newObserved(t, newRelay(t, &relay.Config{Engine: relay.EngineSplice}), ofLoop(), tcp, 0)
	o.write(o.B, []byte("answer"))
	o.seen("the answer", func(w *witness) bool { return len(w.answered) == 6 })
	o.unconnected()
	o.on.do(func() { o.mirror.Refused(errors.New("refused")) })
	if !o.over() || o.w.complete {
		t.Errorf("ended %v, complete %v", o.over(), o.w.complete)
	}
	o.write(o.B, content(1, 1000))
	o.until("the first, still copied", func(res relay.Result) bool { return res.BToA.Copied == 1006 })
	o.write(o.B, content(1, 1000))
	o.until("the next is spliced", func(res relay.Result) bool { return res.BToA.Spliced == 1000 })

	d := ofLoop()
	r, clock := d.clockedRelay(t, relay.Config{})
	o = newObserved(t, r, d, tcp, 0)
	o.connect()
	_, _ = o.A.CloseWrite(), o.B.CloseWrite()
	<-o.done
	clock.advance(2 * time.Minute)
	if res := o.mirrorEnd(); res.Reason != driver.MirrorComplete {
		t.Errorf("%+v", res)
	}
	if !o.over() || o.w.complete {
		t.Errorf("ended %v, complete %v", o.over(), o.w.complete)
	}
}
