package relay_test

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// A refusedOwner notes an end.
type refusedOwner struct {
	ends int
	res  relay.Result
	err  error
}

func (o *refusedOwner) Ended(_ *relay.Driven, res relay.Result, err error) {
	o.ends, o.res, o.err = o.ends+1, res, err
}

// TestStartWhileItRuns: a second start of a session that has not ended is refused: its sockets are reset, its owner is notified, and the
// session goes on.
func TestStartWhileItRuns(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	j, second := newPlain(t, on), newPlain(t, on)
	on.do(j.start)
	var owner refusedOwner
	on.do(func() {
		for which, p := range []*relay.Socket{&second.a, &second.b} {
			var err error
			if p.ID, err = on.loop.Add(p.FD, uint8(which), &j.s.driven); err != nil {
				t.Error(err)
			}
		}
		on.driver.Start(&j.s.driven, second.a, second.b, &owner)
		if owner.ends != 1 || owner.res.Reason != relay.ReasonError || owner.err == nil || on.driver.Sessions() != 1 {
			t.Errorf("%+v, %d sessions", owner, on.driver.Sessions())
		}
		on.driver.Start(&j.s.driven, j.a, j.b, &owner) // with its own sockets
		if owner.ends != 2 || on.driver.Sessions() != 1 {
			t.Errorf("%+v, %d sessions", owner, on.driver.Sessions())
		}
	})
	for _, c := range []io.Reader{second.A, second.B} {
		if _, err := io.Copy(io.Discard, struct{ io.Reader }{c}); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("it has ended with %v", err)
		}
	}
	if _, err := j.A.Write([]byte("bytes")); err != nil {
		t.Fatal(err)
	}
	_ = j.A.CloseWrite()
	_ = j.B.CloseWrite()
	if got, err := io.ReadAll(j.B); err != nil || string(got) != "bytes" {
		t.Errorf("%q, %v", got, err)
	}
	<-j.done
	if j.res.Reason != relay.ReasonEOF || j.err != nil {
		t.Errorf("%+v, %v", j.res, j.err)
	}
}

// TestMirrorThatWasNotStarted: it panics in none of its methods, and a session that has it goes on, while it has ended with an error.
func TestMirrorThatWasNotStarted(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	j, far := newPlain(t, on), newPlain(t, on)
	var m, lost relay.Mirror
	on.do(func() {
		m.Write([]byte("bytes"))
		m.Refused(errors.New("refused"))
		m.Cut()
		m.Ready(0, loop.Readable)
		for _, p := range []relay.Socket{far.a, far.b} {
			lost.Connected(p)
		}
		if res := m.Result(); res != (relay.MirrorResult{}) {
			t.Errorf("before the start: %+v", res)
		}
	})
	for _, c := range []io.Reader{far.A, far.B} {
		if _, err := io.Copy(io.Discard, struct{ io.Reader }{c}); err != nil {
			t.Errorf("the socket of a shadow has ended with %v", err)
		}
	}
	j.a.Mirror = &m
	on.do(j.start)
	if _, err := j.A.Write([]byte("bytes")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(j.B, make([]byte, 5)); err != nil {
		t.Error(err)
	}
	on.do(func() {
		if res := m.Result(); res.Reason != relay.MirrorError || res.Err == nil {
			t.Errorf("after the start: %+v", res)
		}
	})
}
