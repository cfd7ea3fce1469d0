package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

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
	ok := false
	for deadline := time.Now().Add(60 * time.Second); !ok && time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		o.on.do(func() { ok = cond(o.w) })
	}
	if !ok {
		o.t.Fatalf("not in time: %s; %d bytes sent, %d skipped, %d and %d answered, ended %v, complete %v",
			what, len(o.w.sent), o.w.skipped, len(o.w.answered), len(o.w.shadow), o.w.ended, o.w.complete)
	}
}

// write writes all of b.
func (o *observed) write(c halfConn, b []byte) {
	o.t.Helper()
	if _, err := c.Write(b); err != nil {
		o.t.Fatal(err)
	}
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
				primary, shadow := content(1, 3<<20), content(2, 2<<20)
				sent := content(3, 1<<20)
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
						o.mirrorUntil(func(res relay.MirrorResult) bool { return res.Teed+res.Copied == int64(min(i+1<<16, len(sent))) })
					}
				} else {
					sent = sent[:64]
				}
				_ = o.A.CloseWrite()
				if got := <-atS; !bytes.Equal(got, sent) {
					t.Errorf("the shadow has got %d bytes of %d", len(got), len(sent))
				}
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
			o.mirrorUntil(func(res relay.MirrorResult) bool { return res.Teed+res.Copied == 100 && res.Answered >= int64(len(b)) })
			_, _ = o.A.CloseWrite(), o.B.CloseWrite()
			if got := <-atA; !bytes.Equal(got, b) {
				t.Errorf("%v: A has got %d bytes of %d", e, len(got), len(b))
			}
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
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
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
	if res := o.mirrorEnd(); res.Reason != relay.MirrorComplete {
		t.Errorf("%+v", res)
	}
	if !o.over() || o.w.complete {
		t.Errorf("ended %v, complete %v", o.over(), o.w.complete)
	}
}
