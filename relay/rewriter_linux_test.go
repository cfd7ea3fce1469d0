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

// A wrongRewriter passes bytes on as they are, but for what a test has it do.
type wrongRewriter struct {
	room, most, held int
	rewrite          func(b []byte, at int) (from, to int)
	release          func(b []byte) (from, to int)
	released         int
}

func (w *wrongRewriter) Room() int { return w.room }
func (w *wrongRewriter) Most() int { return w.most }
func (w *wrongRewriter) Held() int { return w.held }

func (w *wrongRewriter) Rewrite(b []byte, at int) (from, to int, err error) {
	if w.rewrite == nil {
		return at, len(b), nil
	}
	from, to = w.rewrite(b, at)
	return from, to, nil
}

func (w *wrongRewriter) Release(b []byte) (from, to int, err error) {
	if w.released++; w.release == nil {
		return 0, 0, nil
	}
	from, to = w.release(b)
	return from, to, nil
}

// TestRewriterIsWrong: a result that a Rewriter may not return ends the session with an error that says which, at once,
// by resets of both sides, and lets no byte out that is not the session's. Nothing of it is a clean end.
func TestRewriterIsWrong(t *testing.T) {
	t.Parallel()

	const all = 1 << 30
	for name, c := range map[string]struct {
		w    wrongRewriter
		says string
	}{
		"Room is negative":       {wrongRewriter{room: -1, most: 1}, "Room returned -1"},
		"Room is a buffer":       {wrongRewriter{room: 64 << 10, most: 1}, "Room returned 65536"},
		"Room is above":          {wrongRewriter{room: 32<<10 + 1, most: 1}, "Room returned 32769"},
		"Most is 0":              {wrongRewriter{}, "Most returned 0"},
		"Rewrite: to is beyond":  {wrongRewriter{most: all, rewrite: func(b []byte, at int) (int, int) { return at, len(b) + 1 }}, "Rewrite returned from 0 to 6, of 5"},
		"Rewrite: from is after": {wrongRewriter{most: all, rewrite: func(b []byte, at int) (int, int) { return len(b), at }}, "Rewrite returned from 5 to 0"},
		"Rewrite: from is < 0":   {wrongRewriter{most: all, rewrite: func(b []byte, at int) (int, int) { return -1, len(b) }}, "Rewrite returned from -1 to 5"},
		"Held is negative":       {wrongRewriter{most: all, held: -1}, "Held returned -1 after Rewrite"},
		"Held is above Room":     {wrongRewriter{room: 4, most: all, held: 5}, "Held returned 5 after Rewrite"},
		"Held does not fall":     {wrongRewriter{room: 4, most: all, held: 4}, "Held returned 4 after Release"},
		"Release is beyond": {
			wrongRewriter{room: 4, most: all, held: 4, release: func(b []byte) (int, int) { return 0, len(b) + 1 }},
			"Release returned from 0 to 5, of 4",
		},
		"Release: from is after": {wrongRewriter{room: 4, most: all, held: 4, release: func([]byte) (int, int) { return 1, 0 }}, "Release returned from 1 to 0"},
	} {
		for _, end := range []bool{false, true} { // the source's end of file has come too
			t.Run(name, func(t *testing.T) {
				on := ofLoop().looped(t, newRelay(t, nil))
				j := newPlain(t, on)
				w := c.w
				j.a.Rewriter, j.a.Hold = &w, time.Millisecond
				if _, err := j.A.Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
				if end {
					_ = j.A.CloseWrite()
				}
				on.do(j.start)
				<-j.done
				if j.res.Reason != relay.ReasonError || !errors.Is(j.err, relay.ErrRewriter) || !strings.Contains(j.err.Error(), c.says) {
					t.Errorf("%v, %v", j.res.Reason, j.err)
				}
				if moved := j.res.AToB.Bytes() + j.res.AToB.Lost; moved < 5 {
					t.Errorf("%d bytes are neither moved nor lost: %+v", 5-moved, j.res)
				}
				on.do(func() {
					if w.released > 1 {
						t.Errorf("released %d times", w.released)
					}
				})
				for _, c := range []net.Conn{j.A, j.B} {
					if _, err := io.Copy(io.Discard, struct{ io.Reader }{c}); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("it has ended with %v", err)
					}
				}
			})
		}
	}
}

// TestRewriterSeesNoOthers: the memory that a Rewriter is passed has nothing of other sessions.
func TestRewriterSeesNoOthers(t *testing.T) {
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
	w := &wrongRewriter{room: 32 << 10, most: 1 << 20}
	w.rewrite = func(b []byte, at int) (int, int) {
		w.held = 4
		return 0, cap(b) - 4
	}
	w.release = func(b []byte) (int, int) {
		w.held = 0
		return 0, cap(b)
	}
	j := newPlain(t, on)
	j.a.Rewriter, j.a.Hold = w, time.Hour
	on.do(j.start)
	if _, err := j.A.Write([]byte("own")); err != nil {
		t.Fatal(err)
	}
	_ = j.A.CloseWrite()
	got, err := io.ReadAll(j.B)
	if err != nil || len(got) != 2*w.room+3-4 || bytes.Contains(got, []byte("secret")) {
		t.Errorf("%d bytes, %v; of the other session: %v", len(got), err, bytes.Contains(got, []byte("secret")))
	}
}
