package relay_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// A wrongTransform is a Transform of which a test has each byte that came take the place of claim bytes, of which it writes none.
type wrongTransform struct {
	claim, held, came int
	last              int   // as many as that come at the end
	fail              error // of Take after End
	saw, ended        bool  // bytes in the memory of Take; the end
}

func (*wrongTransform) Begin(func())   {}
func (*wrongTransform) Most() int      { return 1000 }
func (w *wrongTransform) Put(b []byte) { w.came += len(b) }
func (w *wrongTransform) End()         { w.ended, w.came = true, w.last }

func (w *wrongTransform) Take(b []byte) (n int, busy bool, err error) {
	w.saw = w.saw || bytes.ContainsFunc(b[:cap(b)], func(r rune) bool { return r != 0 })
	if w.ended {
		err = w.fail
	}
	n = w.came * w.claim
	w.came = 0
	return n, false, err
}

func (w *wrongTransform) Held() int { return w.held }
func (*wrongTransform) Close()      {}

// TestTransformSeesNoOthers: the memory that a Transform is passed has nothing of other sessions, and bytes that it claims and has not
// written are zero.
func TestTransformSeesNoOthers(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	other := newPlain(t, on)
	on.do(other.start)
	secret := bytes.Repeat([]byte("secret"), 8000)
	if _, err := other.A.Write(secret); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(other.B, make([]byte, len(secret))); err != nil {
		t.Fatal(err)
	}
	w := &wrongTransform{claim: 10_000}
	j := transformed(t, on, w, nil, time.Hour, "")
	if _, err := j.A.Write([]byte("four")); err != nil {
		t.Fatal(err)
	}
	_ = j.A.CloseWrite()
	if got, err := io.ReadAll(j.B); err != nil || !bytes.Equal(got, make([]byte, 40_000)) {
		t.Errorf("%d bytes, %v; of the other session: %v", len(got), err, bytes.Contains(got, []byte("secret")))
	}
	on.do(func() {
		if w.saw {
			t.Error("the memory of Take is not zero")
		}
	})
}

// TestTransformHoldsBackAtTheEnd: bytes that a Transform still holds at the end, though it does not work, are no clean end, and neither is
// an error of Take after End.
func TestTransformHoldsBackAtTheEnd(t *testing.T) {
	t.Parallel()

	for says, w := range map[string]*wrongTransform{
		"Held returned 7":       {held: 7},
		errFlipper.Error():      {fail: errFlipper},
		"Take returned 1000000": {last: 1, claim: 1_000_000},
	} {
		j := transformed(t, ofLoop().looped(t, newRelay(t, nil)), w, nil, time.Hour, "")
		if w.held > 0 {
			if _, err := j.A.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
		}
		_ = j.A.CloseWrite()
		<-j.done
		if j.res.Reason != relay.ReasonError || j.err == nil || !strings.Contains(j.err.Error(), says) || j.res.AToB.Lost != int64(w.held) {
			t.Errorf("%s: %+v, %v", says, j.res, j.err)
		}
		if w.fail == nil && !errors.Is(j.err, relay.ErrRewriter) {
			t.Error(j.err)
		}
		for _, c := range []net.Conn{j.A, j.B} {
			if _, err := io.Copy(io.Discard, struct{ io.Reader }{c}); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: it has ended with %v", says, err)
			}
		}
	}
}
