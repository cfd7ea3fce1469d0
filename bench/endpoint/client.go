package endpoint

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

const requestText = "GET / HTTP/1.1\r\nHost: endpoint\r\nConnection: close\r\n\r\n"

// The reasons why requests fail.
var (
	errClosed = errors.New("closed without an answer")
	errCut    = errors.New("cut short")
)

// A Request is the request of one client, on its own connection.
type Request struct {
	Address  string
	From     netip.Addr // local address; with the zero Addr the kernel chooses
	Deadline time.Time  // when the client gives up
	Answer   int        // size of the whole answer in bytes, see [AnswerBytes]
}

// Ask makes a request and reads its answer. first is when the answer's first byte came, or zero.
func Ask(ctx context.Context, r Request) (first time.Time, err error) {
	dialer := net.Dialer{Deadline: r.Deadline}
	if r.From.IsValid() {
		dialer.LocalAddr = &net.TCPAddr{IP: r.From.AsSlice()}
	}
	c, err := dialer.DialContext(ctx, "tcp", r.Address)
	if err != nil {
		return first, err
	}
	defer c.Close()
	if err := c.SetDeadline(r.Deadline); err != nil {
		return first, err
	}
	if _, err := io.WriteString(c, requestText); err != nil {
		return first, err
	}
	n, err := c.Read(make([]byte, r.Answer))
	switch {
	case n > 0:
		first = time.Now()
	case err == io.EOF:
		return first, errClosed
	}
	if err != nil && err != io.EOF {
		return first, err
	}
	switch rest, err := io.Copy(io.Discard, c); {
	case err != nil:
		return first, err
	case n+int(rest) != r.Answer:
		return first, errCut
	}
	return first, nil
}

// Reason returns in one word why a request failed.
func Reason(err error) string {
	switch {
	case errors.Is(err, errClosed), errors.Is(err, errCut):
		return err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "timed out"
	}
	return err.Error()
}

// AtRate calls ask rate times a second, evenly spaced, for the time total. Each call is at its time after start in
// a new goroutine, however long other calls take. AtRate returns when the last call is over. After ctx has ended,
// no further call begins.
func AtRate(ctx context.Context, start time.Time, rate float64, total time.Duration, ask func(i int, at time.Duration)) {
	var under sync.WaitGroup
	defer under.Wait()
	for i := 0; ; i++ {
		at := time.Duration(float64(i) / rate * float64(time.Second))
		if at >= total || ctx.Err() != nil || !pause(ctx, nil, time.Until(start.Add(at))) {
			return
		}
		under.Go(func() { ask(i, at) })
	}
}
