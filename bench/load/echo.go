package load

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/penstock/penstock/bench/traffic"
)

// The latencies that are told apart: three digits of anything up to longer
// than a connection can live.
const (
	longestLatency = int64(time.Hour)
	latencyDigits  = 3
)

// echo sends a message, waits for it to come back, and begins again, for the
// planned time.
func (r *Runner) echo(c *net.TCPConn, p Plan, seed uint32) (tally, error) {
	t := tally{latency: hdrhistogram.New(1, longestLatency, latencyDigits)}
	if err := c.SetDeadline(r.bound(p)); err != nil {
		return t, err
	}
	now := time.Now()
	end := now.Add(p.Duration)
	content, buf := traffic.NewStream(seed), make([]byte, p.Size)
	for now.Before(end) {
		message := content.Next(p.Size)
		if _, err := c.Write(message); err != nil {
			return t, err
		}
		t.sent += int64(len(message))
		n, err := io.ReadFull(c, buf)
		t.received += int64(n)
		r.received.Add(int64(n))
		if err != nil {
			return t, err
		}
		if !bytes.Equal(buf, message) {
			return t, errMismatch
		}
		t.requests++
		before := now
		now = time.Now()
		if err := t.latency.RecordValue(int64(now.Sub(before))); err != nil {
			return t, err
		}
	}
	return t, hangUp(c)
}

// hangUp half-closes c and expects nothing but an end of file in return.
func hangUp(c *net.TCPConn) error {
	if err := c.CloseWrite(); err != nil {
		return err
	}
	n, err := c.Read(make([]byte, 1))
	switch {
	case n > 0:
		return errMismatch
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
