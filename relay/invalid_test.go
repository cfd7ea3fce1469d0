package relay_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/relay"
)

// TestNilArguments: an argument that is not there is an error that names it.
func TestNilArguments(t *testing.T) {
	t.Parallel()

	var none context.Context
	text, sink := strings.NewReader("text"), new(bytes.Buffer)
	for name, c := range map[string]struct {
		copy func() (int64, error)
		want string
	}{
		"Copy without a source":                       {func() (int64, error) { return relay.Copy(sink, nil) }, "src is nil"},
		"Copy without a destination":                  {func() (int64, error) { return relay.Copy(nil, text) }, "dst is nil"},
		"Copy of a limit of nothing":                  {func() (int64, error) { return relay.Copy(sink, &io.LimitedReader{N: 1}) }, "src is nil"},
		"Copy of no limit":                            {func() (int64, error) { return relay.Copy(sink, (*io.LimitedReader)(nil)) }, "src is nil"},
		"CopyN without a source":                      {func() (int64, error) { return relay.CopyN(sink, nil, 4) }, "src is nil"},
		"CopyN without a destination":                 {func() (int64, error) { return relay.CopyN(nil, text, 4) }, "dst is nil"},
		"CopyContext without a context":               {func() (int64, error) { return relay.CopyContext(none, sink, text) }, "ctx is nil"},
		"CopyContext without a source":                {func() (int64, error) { return relay.CopyContext(t.Context(), sink, nil) }, "src is nil"},
		"CopyContext without a destination":           {func() (int64, error) { return relay.CopyContext(t.Context(), nil, text) }, "dst is nil"},
		"CopyContext of a limit of nothing":           {func() (int64, error) { return relay.CopyContext(t.Context(), sink, io.LimitReader(nil, 4)) }, "src is nil"},
		"WriteTo of a wrapped connection to nothing":  {func() (int64, error) { _, b := tcp(t); return relay.Wrap(b).(io.WriterTo).WriteTo(nil) }, "dst is nil"},
		"ReadFrom of a wrapped connection of nothing": {func() (int64, error) { _, b := tcp(t); return relay.Wrap(b).(io.ReaderFrom).ReadFrom(nil) }, "src is nil"},
	} {
		if n, err := c.copy(); n != 0 || !errors.Is(err, os.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	if text.Len() != len("text") || sink.Len() != 0 {
		t.Error("something was moved")
	}
	if flow, err := newRelay(t, nil).Move(sink, nil); flow.Reason != relay.ReasonError || !errors.Is(err, os.ErrInvalid) {
		t.Errorf("Move: %+v, %v", flow, err)
	}
}

// joinsNothing expects Join to reset both connections, an error with a text, and a result that does not say that the session runs.
func joinsNothing(t *testing.T, want string, join func(a, b net.Conn) (relay.Result, error)) {
	t.Helper()
	client, a := tcp(t)
	b, server := tcp(t)
	res, err := join(a, b)
	if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, os.ErrInvalid) && !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v, want %q", err, want)
	}
	const failed = relay.ReasonError
	if res.Reason != failed || res.AToB.Reason != failed || res.BToA.Reason != failed {
		t.Errorf("%s: %+v", want, res)
	}
	for _, far := range []net.Conn{client, server} {
		isReset(t, far)
	}
}

// TestJoinsNothing: a session without a context or one of its connections, of a Relay that is closed or that not made by New, is refused,
// and resets both connections, which it owns.
func TestJoinsNothing(t *testing.T) {
	t.Parallel()

	var none context.Context
	r, closed := newRelay(t, nil), newRelay(t, nil)
	_ = closed.Close()
	for want, joins := range map[string][]func(a, b net.Conn) (relay.Result, error){
		"ctx is nil": {
			func(a, b net.Conn) (relay.Result, error) { return relay.Join(none, a, b) },
			func(a, b net.Conn) (relay.Result, error) { return r.Join(none, a, b) },
		},
		"connection a is nil": {func(a, b net.Conn) (relay.Result, error) { abort(t, a); return r.Join(t.Context(), nil, b) }},
		"connection b is nil": {
			func(a, b net.Conn) (relay.Result, error) { abort(t, b); return r.Join(t.Context(), a, nil) },
			func(a, b net.Conn) (relay.Result, error) {
				abort(t, b)
				s := r.NewSession(a, nil)
				s.Cut(errors.New("no use"))
				err := s.Start(func(relay.Result, error) { t.Error("it has ended") })
				return s.Result(), err
			},
		},
		"the same connection": {
			func(a, b net.Conn) (relay.Result, error) { abort(t, b); return r.Join(t.Context(), a, a) },
			func(a, b net.Conn) (relay.Result, error) { abort(t, b); return r.Join(t.Context(), relay.Wrap(a), a) },
			func(a, b net.Conn) (relay.Result, error) {
				abort(t, b)
				return r.Join(t.Context(), a, relay.Prefixed(relay.Metered(a, new(relay.Meter)), []byte("x")))
			},
		},
		"refused after Close": {func(a, b net.Conn) (relay.Result, error) { return closed.Join(t.Context(), a, b) }},
		"not made by New": {
			func(a, b net.Conn) (relay.Result, error) { return new(relay.Relay).Join(t.Context(), a, b) },
			func(a, b net.Conn) (relay.Result, error) { return (*relay.Relay)(nil).Join(t.Context(), a, b) },
			func(a, b net.Conn) (relay.Result, error) {
				s := new(relay.Relay).NewSession(relay.Wrap(a), b)
				s.Cut(errors.New("no use"))
				err := s.Start(func(relay.Result, error) { t.Error("it has ended") })
				return s.Result(), err
			},
		},
	} {
		for _, join := range joins {
			joinsNothing(t, want, join)
		}
	}
}

// cutsInClose cuts its session when it is closed.
type cutsInClose struct {
	*net.TCPConn
	session *relay.Session
}

func (c *cutsInClose) Close() error {
	c.session.Cut(nil)
	return c.TCPConn.Close()
}

// TestRefusedCut: a connection that a refused session closes may cut the session.
func TestRefusedCut(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	must.Do(t, r.Close())
	_, a := tcp(t)
	_, b := tcp(t)
	c := &cutsInClose{TCPConn: a.(*net.TCPConn)}
	c.session = r.NewSession(c, b)
	ran := make(chan error, 1)
	go func() {
		_, err := c.session.Run(t.Context())
		ran <- err
	}()
	select {
	case err := <-ran:
		must.Is(t, err, relay.ErrClosed)
	case <-time.After(condition.Patience):
		t.Error("Run does not return")
	}
}

// TestStartWithoutEnd: a session that nobody would hear the end of does not begin, and may be started later.
func TestStartWithoutEnd(t *testing.T) {
	t.Parallel()

	client, a := tcp(t)
	b, server := tcp(t)
	s := newRelay(t, nil).NewSession(a, b)
	if err := s.Start(nil); !errors.Is(err, os.ErrInvalid) || !strings.Contains(err.Error(), "ended is nil") {
		t.Error(err)
	}
	ended := make(chan error, 1)
	must.Do(t, s.Start(func(_ relay.Result, err error) { ended <- err }))
	_ = client.Close()
	_ = server.Close()
	must.Do(t, <-ended)
}

// TestZeroRelay: a Relay that not made by New moves nothing, and says so.
func TestZeroRelay(t *testing.T) {
	t.Parallel()

	for _, r := range []*relay.Relay{new(relay.Relay), nil} {
		_, copies := r.Copy(io.Discard, strings.NewReader("text"))
		_, counts := r.CopyN(io.Discard, strings.NewReader("text"), 4)
		_, until := r.CopyContext(t.Context(), io.Discard, strings.NewReader("text"))
		_, moves := r.Move(io.Discard, strings.NewReader("text"))
		_, drives := r.NewDriver(nil, nil)
		for name, err := range map[string]error{"Copy": copies, "CopyN": counts, "CopyContext": until, "Move": moves, "NewDriver": drives} {
			if !errors.Is(err, os.ErrInvalid) || !strings.Contains(err.Error(), "not made by New") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	var zero relay.Relay
	if st := zero.Stats(); st.Buffers.Live != 0 || zero.Close() != nil {
		t.Errorf("%+v", st)
	}
}

// TestMissingEnds: ends that are nil of their type, closed, or hollow are errors of a copy, and never a panic.
func TestMissingEnds(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	file := func() *os.File {
		return must.Get(os.Create(filepath.Join(t.TempDir(), "f")))(t)
	}
	closed := func(c io.Closer) { _ = c.Close() }
	ends := map[string]func() io.ReadWriter{
		"nil os.File":       func() io.ReadWriter { return (*os.File)(nil) },
		"nil TCPConn":       func() io.ReadWriter { return (*net.TCPConn)(nil) },
		"nil UnixConn":      func() io.ReadWriter { return (*net.UnixConn)(nil) },
		"nil UDPConn":       func() io.ReadWriter { return (*net.UDPConn)(nil) },
		"nil tls.Conn":      func() io.ReadWriter { return (*tls.Conn)(nil) },
		"zero TCPConn":      func() io.ReadWriter { return new(net.TCPConn) },
		"zero UnixConn":     func() io.ReadWriter { return new(net.UnixConn) },
		"zero UDPConn":      func() io.ReadWriter { return new(net.UDPConn) },
		"closed os.File":    func() io.ReadWriter { f := file(); closed(f); return f },
		"closed TCPConn":    func() io.ReadWriter { c, _ := tcp(t); closed(c); return c },
		"closed Unix":       func() io.ReadWriter { c, _ := unixStream(t); closed(c); return c },
		"Stream of a nil":   func() io.ReadWriter { return relay.Stream((*os.File)(nil)) },
		"Wrap of a closed":  func() io.ReadWriter { c, _ := tcp(t); closed(c); return relay.Wrap(c) },
		"Meter of a closed": func() io.ReadWriter { c, _ := tcp(t); closed(c); return relay.Metered(c, new(relay.Meter)) },
	}
	for name, missing := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far, near := tcp(t)
			_, _ = far.Write([]byte("x"))
			_ = far.CloseWrite()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for way, f := range map[string]func() error{
				"source":       func() error { _, err := r.Copy(near, missing()); return err },
				"source file":  func() error { _, err := r.Copy(file(), missing()); return err },
				"source, n":    func() error { _, err := r.CopyN(near, missing(), 10); return err },
				"source, ctx":  func() error { _, err := r.CopyContext(ctx, near, missing()); return err },
				"source, Move": func() error { _, err := r.Move(near, missing()); return err },
				"both":         func() error { _, err := r.Copy(missing(), missing()); return err },
				"sink":         func() error { _, err := r.Copy(missing(), bytes.NewReader([]byte("x"))); return err },
				"sink, tcp":    func() error { _, err := r.Copy(missing(), near); return err },
			} {
				if err := f(); err == nil || strings.HasPrefix(name, "nil ") && !errors.Is(err, os.ErrInvalid) {
					t.Errorf("%s: error %v", way, err)
				}
			}
			if c, ok := missing().(net.Conn); ok {
				a, b := tcp(t)
				res, err := r.Join(context.Background(), c, a)
				if err == nil || strings.Contains(err.Error(), "read: read") || strings.Contains(err.Error(), "write: write") {
					t.Errorf("joined: %+v, %v", res, err)
				}
				if _, err := r.Join(context.Background(), b, c); err == nil {
					t.Error("joined as b")
				}
			}
		})
	}
}

// TestResultPrints: a side and the fallbacks of a result are printed as words.
func TestResultPrints(t *testing.T) {
	t.Parallel()
	fell := relay.Fallbacks{relay.FallbackWrapped: 1, relay.FallbackHalfClose: 2}
	got := fmt.Sprint(relay.SideNone, relay.SideA, relay.SideB, relay.Side(7), ": ", relay.Fallbacks{}, "; ", fell)
	if want := "none a b side(7): none; wrapped 1, half-close 2"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}

// TestConfig: a field that makes no sense, alone or beside another one, is refused, with what to write in its place.
func TestConfig(t *testing.T) {
	t.Parallel()

	for want, cfg := range map[string]relay.Config{
		"Engine is engine(3)":        {Engine: 3},
		"IdleTimeout is -1ns; ":      {IdleTimeout: -1},
		"HalfCloseTimeout is -1ns; ": {HalfCloseTimeout: -1},
		"MaxLifetime is -1ns; ":      {MaxLifetime: -1},
		"LegsAfter is -1ns; write 0": {LegsAfter: -1},
		"write 100µs to 1s":          {TailDelay: time.Microsecond},
		"write 1 to 1073741824, or":  {MaxPipeSize: -1},
		"write at most 1ms":          {Gather: time.Second},
		"set only one of them":       {CloseOnEOF: true, HalfCloseTimeout: time.Second},
	} {
		if r, err := relay.New(&cfg); r != nil || !errors.Is(err, relay.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v; want %q", cfg, r, err, want)
		}
	}
	if _, err := relay.ParseEngine("x"); !errors.Is(err, relay.ErrUnknownEngine) || err.Error() != `penstock: relay: unknown engine "x": write auto, splice or copy` {
		t.Error(err)
	}
	newRelay(t, &relay.Config{CloseOnEOF: true, IdleTimeout: time.Second, MaxPipeSize: 1, TailDelay: -1, Gather: -1})
}
