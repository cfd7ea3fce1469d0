package relay_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/penstock/penstock/relay"
)

// duplex is a stream of two pipes, which has no deadlines.
type duplex struct {
	*io.PipeReader
	*io.PipeWriter
}

func (d duplex) Close() error { return errors.Join(d.PipeReader.Close(), d.PipeWriter.Close()) }

func newDuplex() (far, near duplex) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return duplex{r1, w2}, duplex{r2, w1}
}

// deliver1000 moves 1,000 bytes.
func deliver1000(from io.Writer, to io.Reader) error {
	sent := make(chan error, 1)
	go func() { _, err := from.Write(filler()[:1000]); sent <- err }()
	got := make([]byte, 1000)
	_, err := io.ReadFull(to, got)
	if err == nil && !isFiller(got, 0) {
		err = errors.New("other bytes came")
	}
	return errors.Join(err, <-sent)
}

// TestStream: a stream that is no connection is joined to one, both ways, until it ends or is cut.
func TestStream(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for name, end := range map[string]func(far duplex, out halfConn, cancel context.CancelFunc){
		"stream": func(far duplex, _ halfConn, _ context.CancelFunc) { far.PipeWriter.Close() },
		"other":  func(_ duplex, out halfConn, _ context.CancelFunc) { out.CloseWrite() },
		"cut":    func(_ duplex, _ halfConn, cancel context.CancelFunc) { cancel() },
	} {
		far, near := newDuplex()
		out, conn := tcp(t)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan relay.Result, 1)
		go func() { res, _ := r.Join(ctx, relay.Stream(near), conn); done <- res }()
		if err := deliver1000(far, out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := deliver1000(out, far); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		end(far, out, cancel)
		if name == "stream" { // which is half-closed: the other side goes on
			if err := expect(out, nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			out.CloseWrite()
		}
		res := <-done
		if (res.Reason == relay.ReasonCanceled) != (name == "cut") || res.AToB.Bytes() != 1000 || res.BToA.Bytes() != 1000 {
			t.Errorf("%s: %+v", name, res)
		}
		if _, err := far.PipeWriter.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: the stream is not closed: %v", name, err)
		}
		cancel()
	}
}

// TestStreamOfFile: a file is spliced beneath its stream.
func TestStreamOfFile(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		_ = syscall.SetNonblock(fd, true)
	}
	far, near := os.NewFile(uintptr(fds[0]), "far"), os.NewFile(uintptr(fds[1]), "near")
	defer far.Close()
	out, conn := tcp(t)
	done := make(chan relay.Result, 1)
	go func() { res, _ := r.Join(context.Background(), relay.Stream(near), conn); done <- res }()
	if err := deliver1000(far, out); err != nil {
		t.Fatal(err)
	}
	far.Close()
	out.CloseWrite()
	if res := <-done; res.AToB.Spliced != 1000 {
		t.Errorf("%+v", res)
	}
}

// TestStreamOfConn: a connection is its own stream.
func TestStreamOfConn(t *testing.T) {
	t.Parallel()

	_, conn := tcp(t)
	if relay.Stream(conn) != net.Conn(conn) || relay.Stream(nil) != nil {
		t.Error("another one")
	}
}
