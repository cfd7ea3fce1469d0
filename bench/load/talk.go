package load

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// talkSize is the buffer of a talk, in bytes.
const talkSize = 32 << 10

// talk is a connection of Correct: an ordinary one, with a goroutine that waits. Its
// errors describe the event in a proxy's terms.
type talk struct {
	*net.TCPConn // owned
	r            *Runner
}

// dialTalk connects. Whatever happens on the connection happens by the deadline.
// A receive buffer above 0 is set before connecting, so that the first window is
// that small.
func (r *Runner) dialTalk(ctx context.Context, address string, deadline time.Time, receiveBuffer int) (*talk, error) {
	dialer := net.Dialer{Deadline: deadline, Control: func(_, _ string, c syscall.RawConn) (err error) {
		if receiveBuffer == 0 {
			return nil
		}
		if e := c.Control(func(fd uintptr) {
			err = sys.SetsockoptInt(int(fd), sys.SOL_SOCKET, sys.SO_RCVBUF, receiveBuffer)
		}); e != nil {
			return e
		}
		return os.NewSyscallError("setsockopt", err)
	}}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	t := &talk{c.(*net.TCPConn), r}
	if err := t.SetDeadline(deadline); err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// Read counts.
func (t *talk) Read(b []byte) (int, error) {
	n, err := t.TCPConn.Read(b)
	t.r.received.Add(int64(n))
	return n, err
}

// Write counts.
func (t *talk) Write(b []byte) (int, error) {
	n, err := t.TCPConn.Write(b)
	t.r.sent.Add(int64(n))
	return n, err
}

// reset closes the connection by a reset.
func (t *talk) reset() {
	_ = t.SetLinger(0)
	_ = t.Close()
}

// upload sends n bytes of content, and adds them to sum if that is not nil.
func (t *talk) upload(seed uint32, n int64, sum hash.Hash) error {
	content := traffic.NewStream(seed)
	for n > 0 {
		b := content.Next(int(min(n, traffic.MaxChunk)))
		if sum != nil {
			_, _ = sum.Write(b)
		}
		if _, err := t.Write(b); err != nil {
			return fmt.Errorf("sending, with %d bytes to go: %w", n, said(err))
		}
		n -= int64(len(b))
	}
	return nil
}

// download receives n bytes of content, a piece at a time with a pause after
// each if pause is above 0.
func (t *talk) download(content *traffic.Stream, n int64, pause time.Duration) error {
	buf := make([]byte, talkSize)
	for got := int64(0); got < n; {
		m, err := t.Read(buf[:min(int64(len(buf)), n-got)])
		if !content.Check(buf[:m]) {
			return fmt.Errorf("within bytes %d to %d: %w", got, got+int64(m), errMismatch)
		}
		if got += int64(m); err != nil && got < n {
			return fmt.Errorf("after %d of %d bytes: %w", got, n, said(err))
		}
		if pause > 0 {
			time.Sleep(pause)
		}
	}
	return nil
}

// finish expects the end of file, and nothing before it.
func (t *talk) finish() error {
	switch n, err := t.Read(make([]byte, 1)); {
	case n > 0:
		return errors.New("bytes come after the last one")
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("waiting for the end of file: %w", said(err))
	}
	return nil
}

// said puts an error of a connection into words.
func said(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("an end of file came")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the connection was reset: %w", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("nothing happened for too long: %w", os.ErrDeadlineExceeded)
	}
	return err
}

// checkSum compares a report with the upload.
func checkSum(r traffic.Report, n int64, sum hash.Hash) error {
	switch {
	case r.Received != n:
		return fmt.Errorf("the server received %d of %d bytes", r.Received, n)
	case string(r.Sum) != string(sum.Sum(nil)):
		return fmt.Errorf("the server received %d bytes with SHA-256 %x, not %x", n, r.Sum, sum.Sum(nil))
	}
	return nil
}

// newSum is the checksum of an upload.
func newSum() hash.Hash { return sha256.New() }
