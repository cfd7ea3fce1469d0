// Package origin is the server behind the proxies of a benchmark. On one port
// it serves three kinds of clients, by their first bytes:
//
//   - "bulk SEED\n" is answered with the content of that seed (package traffic)
//     until the client half-closes, and then a trailer;
//   - an HTTP GET is answered with a page, or with the number of bytes in its path
//     (/10M), for people with curl;
//   - everything else is echoed.
package origin

import (
	"context"
	"io"
	"net"
	"sync/atomic"

	"github.com/penstock/penstock/bench/service"
	"github.com/penstock/penstock/bench/traffic"
)

// echoBuffer is the longest message that is echoed by one read and one write.
const echoBuffer = 32 << 10

// Serve serves l, which it owns, until ctx is done.
func Serve(ctx context.Context, l net.Listener) error {
	return service.Serve(ctx, l, handle)
}

// handle serves one client. Its errors are the client's: a connection that
// breaks is counted by the load, which misses its bytes.
func handle(_ context.Context, c *net.TCPConn) {
	buf := make([]byte, echoBuffer)
	n, kind := 0, traffic.KindUnknown
	for kind == traffic.KindUnknown {
		m, err := c.Read(buf[n:])
		n += m
		kind = traffic.Classify(buf[:n])
		if err != nil && kind == traffic.KindUnknown {
			kind = traffic.KindEcho // the client ended within a word
		}
	}
	switch kind {
	case traffic.KindBulk:
		bulk(c, buf, n)
	case traffic.KindHTTP:
		serveHTTP(c, buf[:n])
	default:
		echo(c, buf, n)
	}
}

// echo sends back all received bytes, beginning with the n bytes already in buf.
func echo(c *net.TCPConn, buf []byte, n int) {
	for {
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
		m, err := c.Read(buf)
		if err != nil {
			return
		}
		n = m
	}
}

// bulk sends content until the client half-closes, then the trailer that says
// how much it was.
func bulk(c *net.TCPConn, buf []byte, n int) {
	line, err := readLine(c, buf, n)
	if err != nil {
		return
	}
	seed, err := traffic.ParseBulk(line)
	if err != nil {
		return
	}
	var ended atomic.Bool
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		_, _ = io.Copy(io.Discard, c)
		ended.Store(true)
	}()
	if err := stream(c, seed, &ended); err != nil {
		_ = c.Close() // ends the watcher as well
	}
	<-watching
}

// stream writes content until ended, then its trailer.
func stream(w io.Writer, seed uint32, ended *atomic.Bool) error {
	content, sent := traffic.NewStream(seed), int64(0)
	for !ended.Load() {
		n, err := w.Write(content.Next(traffic.MaxChunk))
		if err != nil {
			return err
		}
		sent += int64(n)
	}
	_, err := w.Write(traffic.AppendTrailer(nil, sent))
	return err
}

// readLine reads on until the n bytes in buf hold a whole request line.
func readLine(c *net.TCPConn, buf []byte, n int) ([]byte, error) {
	for {
		for i, b := range buf[:n] {
			if b == '\n' {
				return buf[:i+1], nil
			}
		}
		if n >= traffic.MaxRequest {
			return nil, io.ErrShortBuffer
		}
		m, err := c.Read(buf[n:])
		if err != nil {
			return nil, err
		}
		n += m
	}
}
