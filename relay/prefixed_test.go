package relay_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/relay"
)

// readAhead are ways to hold bytes that were read from a connection before.
var readAhead = map[string]func(conn net.Conn, head []byte) net.Conn{
	"prefixed": relay.Prefixed,
	"buffered": func(conn net.Conn, head []byte) net.Conn {
		br := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(head), conn), 8<<10)
		_, _ = br.Peek(len(head)) // as a server has that has looked at the beginning
		return relay.Buffered(conn, br)
	},
	"both": func(conn net.Conn, head []byte) net.Conn {
		n := len(head) / 2
		return relay.Prefixed(relay.Prefixed(conn, head[n:]), head[:n])
	},
	"prefixed, copying": func(conn net.Conn, head []byte) net.Conn {
		return relay.Prefixed(struct{ net.Conn }{conn}, head)
	},
}

// TestCopyNReadAhead: copies of any lengths, one after the other, and reads between them, get each byte
// once, whether it was read ahead or not.
func TestCopyNReadAhead(t *testing.T) {
	t.Parallel()

	const text = "0123456789abcdef"
	for name, wrap := range readAhead {
		for _, lengths := range [][]int64{{4, 6, 6}, {8, 8}, {1, 7, 1, 7}, {16}, {9, 7}, {0, 4, 0, 12}} {
			r := newRelay(t, nil)
			in, near := tcp(t)
			dst, out := tcp(t)
			src := wrap(near, []byte(text[:8]))
			_, _ = in.Write([]byte(text[8:]))
			var want int64
			for i, n := range lengths {
				var moved int64
				var err error
				if i%2 == 0 {
					moved, err = r.CopyN(dst, src, n)
				} else { // by the wrapper's own Read
					moved, err = io.CopyN(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, n)
				}
				if moved != n || err != nil {
					t.Fatalf("%s, %v: copy %d of %d bytes: %d, %v", name, lengths, i, n, moved, err)
				}
				want += n
			}
			_ = dst.(*net.TCPConn).CloseWrite()
			if got, _ := io.ReadAll(out); string(got) != text[:want] {
				t.Errorf("%s, %v: got %q", name, lengths, got)
			}
		}
	}
}

// TestJoinReadAhead: the head arrives first, and what follows is moved beneath the wrapper.
func TestJoinReadAhead(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"prefixed", "buffered", "both"} {
		r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
		in, near := tcp(t)
		far, out := tcp(t)
		head := strings.Repeat("head", 1000)
		src := readAhead[name](near, []byte(head))
		done := make(chan relay.Result, 1)
		go func() {
			res, err := r.Join(context.Background(), src, far)
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		tail := filler()
		go func() { _, _ = in.Write(tail); _ = in.(*net.TCPConn).CloseWrite() }()
		got, err := io.ReadAll(out)
		if err != nil || string(got) != head+string(tail) {
			t.Fatalf("%s: %d bytes, %v, want %d", name, len(got), err, len(head)+len(tail))
		}
		_ = out.(*net.TCPConn).CloseWrite()
		if res := <-done; res.AToB.Spliced != int64(len(tail)) || res.AToB.Copied != int64(len(head)) || res.AToB.Fallbacks[relay.FallbackWrapped] != 0 {
			t.Errorf("%s: %+v", name, res.AToB)
		}
	}
}

// TestCopyBufio: a copy from a bufio.Reader over a connection or a file is spliced after its buffered
// bytes.
func TestCopyBufio(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	tail := filler()
	sources := map[string]func() io.Reader{
		"tcp": func() io.Reader {
			in, near := tcp(t)
			go func() { _, _ = in.Write(tail); _ = in.(*net.TCPConn).CloseWrite() }()
			return near
		},
		"unix": func() io.Reader {
			in, near := unixStream(t)
			go func() { _, _ = in.Write(tail); _ = in.(*net.UnixConn).CloseWrite() }()
			return near
		},
		"file": func() io.Reader {
			f := tempFile(t, os.O_RDWR|os.O_CREATE)
			if _, err := f.WriteAt(tail, 0); err != nil {
				t.Fatal(err)
			}
			return f
		},
		"plain": func() io.Reader { return bytes.NewReader(tail) },
	}
	for name, source := range sources {
		dst, out := tcp(t)
		src := bufio.NewReaderSize(source(), 4<<10)
		if _, err := src.Peek(1); err != nil {
			t.Fatal(err)
		}
		ahead := int64(src.Buffered())
		got := make(chan []byte, 1)
		go func() { b, _ := io.ReadAll(out); got <- b }()
		f, err := r.Move(dst, src)
		_ = dst.(*net.TCPConn).CloseWrite()
		if b := <-got; err != nil || !bytes.Equal(b, tail) {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
		want := int64(len(tail)) - ahead
		if name == "plain" {
			want = 0
		}
		if f.Spliced != want || f.Bytes() != int64(len(tail)) || f.Reason != relay.ReasonEOF {
			t.Errorf("%s: %+v, want %d spliced", name, f, want)
		}
	}
}

// trailed is a connection whose own WriteTo adds something to the end.
type trailed struct {
	*net.TCPConn
	n int64
}

func (c *trailed) WriteTo(w io.Writer) (int64, error) {
	n, err := io.Copy(w, c.TCPConn)
	c.n = n
	m, werr := io.WriteString(w, "the end")
	return n + int64(m), cmp.Or(err, werr)
}

// TestCopyBufioOverWriterTo: a bufio.Reader reads a connection with a WriteTo of its own. That sees its
// bytes moved before it goes on.
func TestCopyBufioOverWriterTo(t *testing.T) {
	t.Parallel()

	in, near := tcp(t)
	text := filler()
	go func() { _, _ = in.Write(text); _ = in.(*net.TCPConn).CloseWrite() }()
	dst, out := tcp(t)
	got := make(chan []byte, 1)
	go func() { b, _ := io.ReadAll(out); got <- b }()
	over := &trailed{TCPConn: near.(*net.TCPConn)}
	n, err := newRelay(t, nil).Copy(dst, bufio.NewReader(over))
	_ = dst.(*net.TCPConn).CloseWrite()
	want := append(slices.Clone(text), "the end"...)
	if b := <-got; err != nil || n != int64(len(want)) || over.n != int64(len(text)) || !bytes.Equal(b, want) {
		t.Errorf("%d bytes, %v; %d by WriteTo; %d arrived, want %d", n, err, over.n, len(b), len(want))
	}
}

// greedy hands out more than it is asked for.
type greedy struct{ net.Conn }

func (greedy) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return nil, []byte("too much"), nil
}
func (greedy) RelayWriter() io.Writer { return nil }

// TestReadAheadTooMuch: a wrapper that breaks its contract ends the copy before a byte is moved.
func TestReadAheadTooMuch(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	_, near := tcp(t)
	var b bytes.Buffer
	if n, err := r.CopyN(&b, greedy{near}, 4); n != 0 || err != relay.ErrReadAhead || b.Len() != 0 {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
}
