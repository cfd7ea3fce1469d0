package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

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

// joinsNothing expects Join to close both connections, and an error with a text.
func joinsNothing(t *testing.T, want string, join func(a, b net.Conn) error) {
	t.Helper()
	client, a := tcp(t)
	b, server := tcp(t)
	if err := join(a, b); !errors.Is(err, os.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	for _, far := range []net.Conn{client, server} {
		if n, err := far.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("a connection is open: %d, %v", n, err)
		}
	}
}

// TestJoinWithoutContext: it closes both connections, as it owns them.
func TestJoinWithoutContext(t *testing.T) {
	t.Parallel()

	var none context.Context
	joinsNothing(t, "ctx is nil", func(a, b net.Conn) error { _, err := relay.Join(none, a, b); return err })
	r := newRelay(t, nil)
	joinsNothing(t, "ctx is nil", func(a, b net.Conn) error { _, err := r.Join(none, a, b); return err })
	joinsNothing(t, "connection a is nil", func(a, b net.Conn) error {
		_ = a.Close()
		_, err := r.Join(t.Context(), nil, b)
		return err
	})
	joinsNothing(t, "connection b is nil", func(a, b net.Conn) error {
		_ = b.Close()
		_, err := r.Join(t.Context(), a, nil)
		return err
	})
}

// TestRefusedReason: the result of a session that was refused does not say that it runs.
func TestRefusedReason(t *testing.T) {
	t.Parallel()

	var none context.Context
	r, closed := newRelay(t, nil), newRelay(t, nil)
	_ = closed.Close()
	for name, join := range map[string]func(a, b net.Conn) (relay.Result, error){
		"no connections": func(net.Conn, net.Conn) (relay.Result, error) { return relay.Join(t.Context(), nil, nil) },
		"no context":     func(a, b net.Conn) (relay.Result, error) { return r.Join(none, a, b) },
		"a zero Relay":   func(a, b net.Conn) (relay.Result, error) { return new(relay.Relay).Join(t.Context(), a, b) },
		"a closed Relay": func(a, b net.Conn) (relay.Result, error) { return closed.Join(t.Context(), a, b) },
	} {
		_, a := tcp(t)
		_, b := tcp(t)
		res, err := join(a, b)
		const want = relay.ReasonError
		if err == nil || res.Reason != want || res.AToB.Reason != want || res.BToA.Reason != want {
			t.Errorf("%s: %v, %+v", name, err, res)
		}
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
	if err := s.Start(func(_ relay.Result, err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	_ = server.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestZeroRelay: a Relay that New has not made moves nothing, and says so.
func TestZeroRelay(t *testing.T) {
	t.Parallel()

	for _, r := range []*relay.Relay{new(relay.Relay), nil} {
		joinsNothing(t, "New has not made", func(a, b net.Conn) error { _, err := r.Join(t.Context(), a, b); return err })
		joinsNothing(t, "New has not made", func(a, b net.Conn) error {
			return r.NewSession(a, b).Start(func(relay.Result, error) { t.Error("it has ended") })
		})
		_, copies := r.Copy(io.Discard, strings.NewReader("text"))
		_, counts := r.CopyN(io.Discard, strings.NewReader("text"), 4)
		_, until := r.CopyContext(t.Context(), io.Discard, strings.NewReader("text"))
		_, moves := r.Move(io.Discard, strings.NewReader("text"))
		_, drives := r.NewDriver(nil, nil)
		for name, err := range map[string]error{"Copy": copies, "CopyN": counts, "CopyContext": until, "Move": moves, "NewDriver": drives} {
			if !errors.Is(err, os.ErrInvalid) || !strings.Contains(err.Error(), "New has not made") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	var zero relay.Relay
	if st := zero.Stats(); st.Buffers.Live != 0 || zero.Close() != nil {
		t.Errorf("%+v", st)
	}
}
