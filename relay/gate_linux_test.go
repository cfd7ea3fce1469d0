package relay_test

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// A watchman is a gate that opens when the other side has said "go", lets pieces pass that do not begin with '!' once it has said "ask", and
// hears no more than that.
type watchman struct {
	heard  []byte
	piece  int // how many bytes pass at a time
	closed int
	asked  int
	pass   bool
	opens  bool
}

var errWatchman = errors.New("none of these")

func (w *watchman) Answered(b []byte) driver.GateVerdict {
	w.heard = append(w.heard, b...)
	switch {
	case len(b) == 0, bytes.HasPrefix(w.heard, []byte("go")):
		w.opens = true
		return driver.GateOpens
	case bytes.HasPrefix(w.heard, []byte("ask")):
		w.pass = true
		return driver.GateLooks
	}
	return driver.GateHears
}

func (w *watchman) Pass(fd int, ahead []byte, ended bool) (int, []byte, error) {
	w.asked++
	if w.opens {
		return driver.GateOpen, nil, nil
	}
	b := make([]byte, 64)
	n, err := copy(b, ahead), error(nil)
	if n == 0 {
		if n, err = sys.Recv(fd, b, sys.MSG_PEEK|sys.MSG_DONTWAIT); err == syscall.EAGAIN {
			return 0, nil, nil
		}
	}
	switch {
	case err != nil:
		return 0, nil, err
	case n == 0:
		return driver.GateOpen, nil, nil
	case !w.pass:
		return 0, nil, nil
	case b[0] == '!':
		return 0, nil, errWatchman
	}
	n = min(w.piece, n)
	if len(ahead) > 0 || w.piece == 1 { // a gate need not take what passes
		return n, nil, nil
	}
	_, err = sys.Recv(fd, b[:n], sys.MSG_DONTWAIT)
	return n, b[:n], err
}

func (w *watchman) Close() { w.closed++ }

// An identity is a Transform that changes nothing.
type identity struct{ out []byte }

func (*identity) Begin(func())   {}
func (*identity) Most() int      { return 1 << 16 }
func (i *identity) Put(b []byte) { i.out = append(i.out, b...) }
func (*identity) End()           {}
func (i *identity) Held() int    { return len(i.out) }
func (*identity) Close()         {}

func (i *identity) Take(b []byte) (n int, busy bool, err error) {
	n = copy(b, i.out)
	i.out = i.out[n:]
	return n, false, nil
}

// TestGate: bytes behind the free ones wait for the gate, whichever engine moves them, where they were read before too, and where they are rewritten;
// an end of file and a reset before it are those of any session, and an error of it is a reset of both sides.
func TestGate(t *testing.T) {
	t.Parallel()

	const free = "free"
	loops := map[relay.Engine]*looped{}
	for _, e := range engines {
		loops[e] = ofLoop().looped(t, newRelay(t, &relay.Config{Engine: e}))
	}
	for name, x := range map[string]struct {
		behind, answer string
		ends, resets   bool // the gated side, before the answer
		answerEnds     bool
		fails          bool
		gone           string // of behind, what arrives
	}{
		"open":            {behind: "held back", answer: "go", gone: "held back"},
		"looked at":       {behind: "held back", answer: "ask", gone: "held back"},
		"refused":         {behind: "!held back", answer: "ask", fails: true},
		"nothing behind":  {answer: "go"},
		"an end":          {ends: true},
		"an end behind":   {behind: "held back", answer: "go", ends: true, gone: "held back"},
		"a reset":         {resets: true},
		"a reset behind":  {behind: "held back", resets: true},
		"no answer":       {behind: "held back", answerEnds: true, gone: "held back"},
		"half an answer":  {behind: "held back", answer: "as", answerEnds: true, gone: "held back"},
		"looked at, ends": {behind: "held back", answer: "ask", ends: true, gone: "held back"},
	} {
		for _, e := range engines {
			for _, way := range []string{"", "ahead", "rewritten", "rewritten ahead", "of b"} {
				t.Run(name+" "+e.String()+" "+way, func(t *testing.T) {
					t.Parallel()
					on := loops[e]
					j := newPlain(t, on)
					w := &watchman{piece: 1 + len(name)%3}
					A, B, gated := j.A, j.B, &j.a
					if way == "of b" {
						A, B, gated = B, A, &j.b
					}
					gated.Gate, gated.Free = w, len(free)
					if way == "rewritten" || way == "rewritten ahead" {
						gated.Transform = new(identity)
					}
					if sent := free + x.behind; way == "ahead" || way == "rewritten ahead" {
						gated.Ahead = []byte(sent)
					} else if _, err := io.WriteString(A, sent); err != nil {
						t.Fatal(err)
					}
					on.do(j.start)
					readFull(t, B, make([]byte, len(free)))
					on.turn()
					on.do(func() {
						if n := j.s.driven.Result(); n.AToB.Bytes()+n.BToA.Bytes() != int64(len(free)) || w.closed > 0 {
							t.Errorf("%+v have moved; closed %d times", n, w.closed)
						}
					})
					asked := 0
					on.do(func() { asked = w.asked })
					on.turn()
					on.turn()
					on.do(func() {
						if w.asked > asked+1 {
							t.Errorf("a gate that waits was asked %d times in vain", w.asked-asked)
						}
					})
					switch {
					case x.resets:
						abort(t, A)
					case x.ends:
						_ = A.CloseWrite()
					}
					if x.resets {
						<-j.done
						if j.res.Reason != relay.ReasonReset || w.closed != 1 {
							t.Errorf("%v, %v; closed %d times", j.res.Reason, j.err, w.closed)
						}
						return
					}
					for i := range x.answer {
						write(t, B, x.answer[i:i+1])
						on.turn()
					}
					if x.answerEnds {
						_ = B.CloseWrite()
					}
					if x.fails {
						<-j.done
						if j.res.Reason != relay.ReasonError || !errors.Is(j.err, errWatchman) || w.closed != 1 {
							t.Errorf("%v, %v; closed %d times", j.res.Reason, j.err, w.closed)
						}
						if way != "of b" && j.res.Culprit != relay.SideA {
							t.Errorf("it is the fault of %v", j.res.Culprit)
						}
						for _, c := range []io.Reader{A, B} {
							must.Fail(io.Copy(io.Discard, struct{ io.Reader }{c}))(t, syscall.ECONNRESET)
						}
						return
					}
					if !x.ends {
						_ = A.CloseWrite()
					}
					sockets.ExpectAll(t, B, x.gone)
					if !x.answerEnds {
						_ = B.CloseWrite()
					}
					sockets.ExpectAll(t, A, x.answer)
					<-j.done
					if j.res.Reason != relay.ReasonEOF || w.closed != 1 {
						t.Errorf("%v, %v; closed %d times", j.res.Reason, j.err, w.closed)
					}
				})
			}
		}
	}
}

// TestGateUrgent: a byte that a gate lets pass is one of the stream, though it was sent as urgent data.
func TestGateUrgent(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	j := newPlain(t, on)
	j.a.Gate = &watchman{piece: 64}
	_ = sys.SetsockoptInt(j.a.FD, sys.SOL_SOCKET, sys.SO_OOBINLINE, 1)
	on.do(j.start)
	write(t, j.B, "ask")
	must.Get(sys.Send(sockets.FD(t, j.A.(syscall.Conn)), []byte("abc"), sys.MSG_OOB))(t)
	_, _ = io.WriteString(j.A, "def")
	_ = j.A.CloseWrite()
	sockets.ExpectAll(t, j.B, "abcdef")
}

// TestGatedStays: a session leaves for no Carrier before its gate is open, and then it does, and can be a Parked of the least size.
func TestGatedStays(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	j := newPlain(t, on)
	w := &watchman{}
	j.a.Gate = w
	on.do(j.start)
	c := &thief{takes: true, has: make(chan struct{})}
	on.do(func() {
		if why := j.s.driven.Obstacle(); why != driver.NoObstacle {
			t.Errorf("obstacle %v, which would be for good", why)
		}
		j.s.driven.Offer(c)
	})
	for _, b := range []string{"x", "as"} {
		write(t, j.B, b)
		readFull(t, j.A, make([]byte, len(b)))
		on.turn()
		on.do(func() {
			if j.s.driven.Carried() || w.closed > 0 {
				t.Error("it has left with a gate that is shut")
			}
			w.heard = nil
		})
	}
	write(t, j.B, "go")
	readFull(t, j.A, make([]byte, 2))
	on.turn()
	_, _ = io.WriteString(j.A, "y") // at which it finds that the Carrier has it
	condition.Receive(t, "it leaves", c.has)
	on.do(func() {
		var p relay.Parked
		if !j.s.driven.Park(&p) {
			t.Error("it cannot be parked")
			return
		}
		if p.HasRest() {
			t.Error("its gate has left something")
		}
		on.driver.Unpark(&j.s.driven, &p, j.s, c)
		j.s.driven.Finish(false, relay.SideNone)
	})
	<-j.done
}

// TestGateNowhere: a gate that could not hold anything is an error, and is closed.
func TestGateNowhere(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	j := newPlain(t, on)
	one, other := &watchman{}, &watchman{}
	j.a.Gate, j.b.Gate = one, other
	on.do(j.start)
	<-j.done
	if j.res.Reason != relay.ReasonError || j.err == nil || one.closed != 1 || other.closed != 1 {
		t.Errorf("%v, %v; closed %d and %d times", j.res.Reason, j.err, one.closed, other.closed)
	}
}
