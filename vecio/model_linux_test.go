package vecio_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/vecio"
)

// A sink is a kernel, or a Write, that gives any permitted answer at random, and keeps
// the bytes that it has taken.
type sink struct {
	t    *rapid.T
	got  []byte
	dead bool // it has answered with an error that is one

	calls, blocked, retried int64
}

var errDead = syscall.ECONNRESET

func (s *sink) take(t *rapid.T, p []byte) int {
	n := len(p)
	switch rapid.IntRange(0, 3).Draw(t, "how much") {
	case 0:
		n = rapid.IntRange(0, len(p)).Draw(t, "some")
	case 1:
		n = min(n, 1)
	}
	s.got = append(s.got, p[:n]...)
	return n
}

// kernel answers a gathered write.
func (s *sink) kernel(pieces [][]byte) (int, error) {
	s.calls++
	if len(pieces) == 0 || len(pieces) > 1024 {
		s.t.Fatalf("%d pieces in one call", len(pieces))
	}
	all := bytes.Join(pieces, nil)
	for _, p := range pieces {
		if len(p) == 0 {
			s.t.Fatal("an empty piece in a call")
		}
	}
	switch rapid.IntRange(0, 19).Draw(s.t, "answer") {
	case 0, 1, 2, 3:
		s.blocked++
		return 0, syscall.EAGAIN
	case 4, 5:
		s.retried++
		return 0, syscall.EINTR
	case 6:
		s.dead = true
		return 0, errDead
	}
	n := s.take(s.t, all)
	if n == 0 {
		s.blocked++
		return 0, syscall.EAGAIN
	}
	return n, nil
}

// Write answers a coalesced writer. Only a deadline interrupts it without failing.
func (s *sink) Write(p []byte) (int, error) {
	s.calls++
	switch n := s.take(s.t, p); {
	case n == len(p):
		return n, nil
	case rapid.IntRange(0, 3).Draw(s.t, "answer") == 0:
		s.dead = true
		return n, errDead
	default:
		return n, os.ErrDeadlineExceeded
	}
}

// A model is the state that a writer must have.
type model struct {
	sink
	w   *vecio.Writer
	cfg vecio.Config

	all    []byte  // of the pieces that were taken
	ends   []int64 // where each of them ends
	begin  int     // written before the last failure or Reset: where all begins in got
	owned  []*lease
	failed error
}

// A lease is an owned piece.
type lease struct {
	t     *rapid.T
	m     *model
	piece []byte
	end   int64
	back  int
}

func (l *lease) Release(p []byte) {
	l.back++
	if l.back > 1 || len(p) != len(l.piece) || cap(p) != cap(l.piece) {
		l.t.Fatalf("a piece of %d bytes is given back as %d, for the %d. time", len(l.piece), len(p), l.back)
	}
	clear(p) // a later read of it is wrong
}

func (m *model) piece(t *rapid.T) []byte {
	n := 0
	switch rapid.IntRange(0, 5).Draw(t, "size") {
	case 0:
	case 1:
		n = rapid.IntRange(1, 10_000).Draw(t, "large")
	default:
		n = rapid.IntRange(1, 64).Draw(t, "small")
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(len(m.all) + i*7 + n)
	}
	return p
}

// took notes the outcome of a piece.
func (m *model) took(t *rapid.T, p []byte, err error) bool {
	switch {
	case m.failed != nil && err != m.failed:
		t.Fatalf("%v from a writer that has failed with %v", err, m.failed)
	case m.failed != nil:
		return false
	case err == vecio.ErrFull:
		if n := m.w.Pending(); n+len(p) <= m.cfg.High && n <= m.cfg.Low || n == 0 {
			t.Fatalf("a piece of %d bytes is refused with %d pending", len(p), n)
		}
		return false
	case err != nil:
		m.met(t, err)
		return false
	}
	m.all = append(m.all, p...)
	m.ends = append(m.ends, int64(len(m.all)))
	return true
}

// met notes the outcome of a call.
func (m *model) met(t *rapid.T, err error) {
	var e *vecio.WriteError
	switch {
	case err == nil, err == vecio.ErrBlocked:
		return
	case !errors.As(err, &e):
		t.Fatalf("%v", err)
	}
	written := int64(len(m.got) - m.begin)
	piece, start := int64(0), int64(0)
	for _, end := range m.ends {
		if end > written {
			break
		}
		piece, start = piece+1, end
	}
	offset := written - start
	if e.Written != written || e.Piece != piece || e.Offset != offset || e.Pieces != int64(len(m.ends)) {
		t.Fatalf("%+v, want %d bytes written and piece %d of %d, from %d on", *e, written, piece, len(m.ends), offset)
	}
	if m.dead {
		m.failed = err
		if !errors.Is(err, errDead) {
			t.Fatalf("%v", err)
		}
	} else if !e.Timeout() {
		t.Fatalf("%v", err)
	}
}

// check holds the writer against the model.
func (m *model) check(t *rapid.T) {
	written := len(m.got) - m.begin
	if written > len(m.all) {
		t.Fatalf("%d bytes written of %d", written, len(m.all))
	}
	if s := m.w.Stats(); s.Written != int64(written) || s.Pieces != int64(len(m.ends)) || s.Copied+s.Refs != s.Pieces || s.CopiedBytes+s.RefBytes != int64(len(m.all)) {
		t.Fatalf("%d bytes of %d pieces written: %+v", written, len(m.ends), s)
	}
	pending := len(m.all) - written
	if m.failed != nil {
		pending = 0
	}
	if n := m.w.Pending(); n != pending {
		t.Fatalf("%d bytes pending, want %d", n, pending)
	}
	if (pending == 0) != m.w.Idle() {
		t.Fatalf("with %d bytes pending: idle is %v", pending, m.w.Idle())
	}
	for _, l := range m.owned {
		if done := m.failed != nil || l.end <= int64(written); done != (l.back == 1) {
			t.Fatalf("a piece that ends at %d was given back %d times with %d bytes written", l.end, l.back, written)
		}
	}
}

// verify compares the bytes once nothing more is written of them.
func (m *model) verify(t *rapid.T) {
	if got := m.got[m.begin:]; !bytes.Equal(got, m.all[:len(got)]) {
		t.Fatal("the sink got something else than was appended")
	}
}

// TestModel: any pieces, owned or not, through any answers of a kernel or a Write: the
// bytes in order, each exactly once; each owned piece back exactly once, no earlier than
// written and no later than in the call that wrote it; errors exact to the byte.
func TestModel(t *testing.T) {
	for name, open := range map[string]func(m *model) (*vecio.Writer, error){
		"kernel": func(m *model) (*vecio.Writer, error) { return vecio.NewScripted(m.kernel, &m.cfg) },
		"Write":  func(m *model) (*vecio.Writer, error) { return vecio.New(&m.sink, &m.cfg) },
	} {
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { play(t, open) }) })
	}
}

func play(t *rapid.T, open func(m *model) (*vecio.Writer, error)) {
	m := &model{}
	m.t = t
	m.cfg.CopyBelow = rapid.SampledFrom([]int{-1, 1, 16, 64, 5000, 1 << 20}).Draw(t, "copy below")
	m.cfg.High = rapid.SampledFrom([]int{1, 100, 20_000, 1 << 20}).Draw(t, "high")
	m.cfg.Low = rapid.IntRange(0, m.cfg.High).Draw(t, "low")
	start := func(t *rapid.T) {
		w, err := open(m)
		if err != nil {
			t.Fatal(err)
		}
		m.w = w
	}
	start(t)
	forget := func() {
		m.begin, m.all, m.ends, m.owned, m.failed, m.dead = len(m.got), nil, nil, nil, nil, false
	}
	t.Repeat(map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			p := m.piece(t)
			m.took(t, p, m.w.Append(p))
			if len(p) < m.cfg.CopyBelow {
				clear(p) // a short one was copied
			}
		},
		"many": func(t *rapid.T) {
			for range rapid.IntRange(1000, 3000).Draw(t, "many") {
				p := []byte{byte(len(m.all))}
				if !m.took(t, p, m.w.Append(p)) {
					return
				}
			}
		},
		"string": func(t *rapid.T) {
			p := m.piece(t)
			m.took(t, p, m.w.AppendString(string(p)))
		},
		"own": func(t *rapid.T) {
			p := m.piece(t)
			l := &lease{t: t, m: m, piece: p}
			saved := bytes.Clone(p)
			taken := m.took(t, saved, m.w.Own(p, l))
			if l.end = int64(len(m.all)); taken {
				m.owned = append(m.owned, l)
			} else if l.back != 1 {
				t.Fatalf("a piece that was not taken is given back %d times", l.back)
			}
		},
		"flush": func(t *rapid.T) {
			err := m.w.Flush()
			if m.failed == nil {
				m.met(t, err)
			} else if err != m.failed {
				t.Fatalf("%v from a writer that has failed with %v", err, m.failed)
			}
			if err == nil && m.w.Pending() != 0 {
				t.Fatalf("%d bytes pending after Flush", m.w.Pending())
			}
		},
		"close": func(t *rapid.T) {
			pending := m.w.Pending()
			err := m.w.Close()
			var e *vecio.WriteError
			if (pending > 0) != errors.As(err, &e) || pending == 0 && err != nil || pending > 0 && e.Written != int64(len(m.got)-m.begin) {
				t.Fatalf("Close with %d bytes pending: %v", pending, err)
			}
			m.verify(t)
			for _, l := range m.owned {
				if l.back != 1 {
					t.Fatalf("a piece was given back %d times after Close", l.back)
				}
			}
			if m.w.Flush() != vecio.ErrClosed || m.w.Append(nil) != vecio.ErrClosed {
				t.Fatal("a closed writer writes")
			}
			forget()
			start(t)
		},
		"": m.check,
	})
	m.verify(t)
	if err := m.w.Reset(io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, l := range m.owned {
		if l.back != 1 {
			t.Fatalf("a piece was given back %d times in the end", l.back)
		}
	}
}
