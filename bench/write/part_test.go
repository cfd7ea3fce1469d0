package write

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// part is a part that runs in this process.
type part struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *json.Decoder
	ended chan error
}

func runPart(t *testing.T, ctx context.Context, name string) *part {
	t.Helper()
	in, asks := io.Pipe()
	says, out := io.Pipe()
	p := &part{t: t, in: asks, out: json.NewDecoder(says), ended: make(chan error, 1)}
	go func() {
		err := RunPart(ctx, name, in, out)
		_ = out.CloseWithError(io.EOF)
		_ = in.CloseWithError(io.ErrClosedPipe)
		p.ended <- err
	}()
	t.Cleanup(func() {
		_ = asks.Close()
		_ = says.Close()
	})
	return p
}

// tell sends the part a request and returns its answer.
func (p *part) tell(what any) (m message, err error) {
	p.t.Helper()
	line, err := json.Marshal(what)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return m, err
	}
	return m, p.out.Decode(&m)
}

func TestPartsWriteToTheSink(t *testing.T) {
	sink := runPart(t, t.Context(), PartSink)
	var at listening
	if err := sink.out.Decode(&at); err != nil {
		t.Fatal(err)
	}
	forEachWay(t, func(t *testing.T, w *way) {
		p, s := runPart(t, t.Context(), w.part()), Message()
		profile := filepath.Join(t.TempDir(), "p")
		if m, err := p.tell(plan{Address: at.Address, Pieces: s.Pieces, Warmup: 3, Profile: profile}); err != nil || m.Turn != nil {
			t.Fatalf("%+v, %v, %v", m, err, <-p.ended)
		}
		for range 2 {
			m, err := p.tell(turn{Warmup: 2, Batches: 100})
			if err != nil || m.Turn == nil {
				t.Fatalf("%+v, %v", m, err)
			}
			if a := m.Turn; a.Bytes != 100*16<<10 || a.Elapsed <= 0 || a.User < 0 || a.System < 0 || a.Objects < 0 {
				t.Errorf("%+v", a)
			}
		}
		if m, err := p.tell(turn{}); err != nil || !m.Arrived {
			t.Errorf("%+v, %v", m, err)
		}
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(profile); err != nil || len(text) < 2 || text[0] != 0x1f || text[1] != 0x8b {
			t.Errorf("the profile is not compressed: %d bytes, %v", len(text), err)
		}
	})
	_ = sink.in.Close()
	if err := <-sink.ended; err != nil {
		t.Error(err)
	}
}

// A missing byte is an error.
func TestAByteThatIsMissingIsNoticed(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		_, _ = c.Write(binary.BigEndian.AppendUint64(nil, uint64(n-1)))
	}()
	p := runPart(t, t.Context(), ways[0].part())
	if _, err := p.tell(plan{Address: l.Addr().String(), Pieces: []int{100}, Warmup: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.tell(turn{}); err == nil {
		t.Error("the part reports that all bytes have arrived")
	}
	if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "99 bytes of 100 arrived") {
		t.Errorf("got %v", err)
	}
}

// The end of its context ends a sink while parts write to it.
func TestTheSinkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sink := runPart(t, ctx, PartSink)
	var at listening
	if err := sink.out.Decode(&at); err != nil {
		t.Fatal(err)
	}
	p := runPart(t, t.Context(), ways[0].part())
	if _, err := p.tell(plan{Address: at.Address, Pieces: []int{1 << 20}, Warmup: 1}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-sink.ended; err != nil {
		t.Error(err)
	}
	if _, err := p.tell(turn{Batches: 1 << 20}); err == nil {
		t.Error("the part writes without a receiver")
	}
	if err := <-p.ended; err == nil {
		t.Error("no error")
	}
}

func TestRunPartThatIsNone(t *testing.T) {
	const name = "write-umpire"
	err := RunPart(t.Context(), name, strings.NewReader(""), io.Discard)
	if err == nil || !strings.Contains(err.Error(), name) || IsPart(name) {
		t.Errorf("got %v", err)
	}
	if err := RunPart(t.Context(), ways[0].part(), strings.NewReader("?\n"), io.Discard); err == nil || !strings.Contains(err.Error(), "the plan") {
		t.Errorf("got %v", err)
	}
}
