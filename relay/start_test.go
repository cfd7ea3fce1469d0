package relay_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// outcome is what a session that was started ended with.
type outcome struct {
	result relay.Result
	err    error
}

// start starts a session, and fails the test if its end is told of twice.
func start(t *testing.T, s *relay.Session) <-chan outcome {
	t.Helper()
	ends := make(chan outcome, 2)
	if err := s.Start(func(res relay.Result, err error) { ends <- outcome{res, err} }); err != nil {
		t.Fatal(err)
	}
	return ends
}

// end waits for the end of a session that was started.
func end(t *testing.T, ends <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-ends:
		if len(ends) != 0 {
			t.Error("the end was told twice")
		}
		return o
	case <-time.After(patience):
		t.Fatal("not ended")
		panic("unreachable")
	}
}

func TestStart(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	farA, a := tcp(t)
	farB, b := tcp(t)
	s := r.NewSession(a, b)
	ends := start(t, s)
	if _, err := farA.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	_ = farA.CloseWrite()
	if got, err := io.ReadAll(farB); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	_ = farB.CloseWrite()
	o := end(t, ends)
	if o.err != nil || o.result.Reason != relay.ReasonEOF || o.result.AToB.Bytes() != 5 || o.result.Duration <= 0 {
		t.Errorf("%+v, %v", o.result, o.err)
	}
	if err := a.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection is left open: %v", err)
	}
	if err := s.Start(func(relay.Result, error) { t.Error("ended again") }); !errors.Is(err, relay.ErrRan) {
		t.Errorf("started twice: %v", err)
	}
	s.Cut(errors.New("late"))
	if s.Result().Reason != relay.ReasonEOF {
		t.Errorf("cut after its end: %+v", s.Result())
	}
}

func TestStartNil(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	_, a := tcp(t)
	s := r.NewSession(a, nil)
	s.Cut(errors.New("no use"))
	err := s.Start(func(relay.Result, error) { t.Error("ended") })
	if !errors.Is(err, os.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := a.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the other connection is left open: %v", err)
	}
}

// TestCut cuts sessions before they are started and at any moment after that.
func TestCut(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{IdleTimeout: time.Hour})
	cause := errors.New("cut by the test")
	for round := range 60 {
		farA, a := tcp(t)
		farB, b := tcp(t)
		s := r.NewSession(a, b)
		var cuts atomic.Int32
		cut := func() { s.Cut(cause); cuts.Add(1) }
		switch round % 3 {
		case 0:
			cut()
		case 1:
			go cut()
		}
		ends := start(t, s)
		if round%3 == 2 {
			if _, err := farA.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(farB, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			cut()
		}
		o := end(t, ends)
		if !errors.Is(o.err, cause) || o.result.Reason != relay.ReasonCanceled {
			t.Fatalf("round %d: %+v, %v", round, o.result, o.err)
		}
		for _, far := range []net.Conn{farA, farB} {
			if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("round %d: a peer sees %v", round, err)
			}
		}
	}
}
