package write

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/penstock/penstock/vecio"
)

// A Latency is the distribution of how long an exchange took, from the first write to
// the last byte of the answer.
type Latency struct{ P50, P99, Max time.Duration }

// The exchange: a request in two pieces, which is answered when it is whole.
const (
	nagleHeader = 16
	nagleBody   = 240
	nagleAnswer = 64
)

// Nagle measures a program that writes a header, writes a body and waits for the answer, over
// loopback. Before: on a socket as the kernel makes it, with two calls of Write. The header
// leaves at once. Nagle's algorithm keeps the body until the header is acknowledged (RFC 896).
// The peer cannot answer yet, and delays the acknowledgement for 40 ms or more (TCP_DELACK_MIN
// in include/net/tcp.h), but for the first few of a connection. After: the same two pieces on
// the same kind of socket through a [vecio.Writer] with the policy Latency.
//
// It makes so many exchanges of both by turns, after some that do not count, and takes about
// 40 ms for each. It ends early with ctx's error.
func Nagle(ctx context.Context, rounds int) (before, after Latency, err error) {
	if rounds < 1 {
		return before, after, fmt.Errorf("write: %d rounds: ask for at least 1", rounds)
	}
	plain, err := newNagled(ctx)
	if err != nil {
		return before, after, err
	}
	defer plain.close()
	gathered, err := newNagled(ctx)
	if err != nil {
		return before, after, err
	}
	defer gathered.close()
	w, err := vecio.New(gathered.client, &vecio.Config{Policy: vecio.Latency})
	if err != nil {
		return before, after, err
	}
	defer w.Close()
	return exchanges(ctx, rounds, plain.timed(plain.write), gathered.timed(func() error { return gatherNagled(w) }))
}

// nagleWarmUp is how many exchanges the kernel may acknowledge at once, before it
// takes a connection for an interactive one (net/ipv4/tcp_input.c, TCP_MAX_QUICKACKS).
const nagleWarmUp = 20

// exchanges has both take turns.
func exchanges(ctx context.Context, rounds int, a, b func() (time.Duration, error)) (before, after Latency, err error) {
	var times [2][]time.Duration
	for i := range nagleWarmUp + rounds {
		for j, f := range []func() (time.Duration, error){a, b} {
			d, err := f()
			if ctx.Err() != nil {
				return before, after, ctx.Err()
			}
			if err != nil {
				return before, after, fmt.Errorf("write: write-write-read: %w", err)
			}
			if i >= nagleWarmUp {
				times[j] = append(times[j], d)
			}
		}
	}
	return latencyOf(times[0]), latencyOf(times[1]), nil
}

func latencyOf(times []time.Duration) Latency {
	slices.Sort(times)
	n := len(times)
	return Latency{P50: times[n/2], P99: times[min(n-1, n*99/100)], Max: times[n-1]}
}

// A nagled is a connection on which Nagle's algorithm is at work, as on any that a
// program other than Go's makes, and the peer that answers.
type nagled struct {
	client *net.TCPConn
	server net.Conn
	forget func() bool   // stops listening to the context
	done   chan struct{} // the peer has ended
}

func newNagled(ctx context.Context) (*nagled, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	defer l.Close()
	var d net.Dialer
	client, err := d.DialContext(ctx, "tcp4", l.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	server, err := l.Accept()
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("write: %w", err)
	}
	n := &nagled{client: client.(*net.TCPConn), server: server, done: make(chan struct{})}
	n.forget = context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	go n.answer()
	if err := n.client.SetNoDelay(false); err != nil {
		n.close()
		return nil, fmt.Errorf("write: %w", err)
	}
	return n, nil
}

// answer is the peer.
func (n *nagled) answer() {
	defer close(n.done)
	request, answer := make([]byte, nagleHeader+nagleBody), make([]byte, nagleAnswer)
	for {
		if _, err := io.ReadFull(n.server, request); err != nil {
			return
		}
		if _, err := n.server.Write(answer); err != nil {
			return
		}
	}
}

func (n *nagled) close() {
	n.forget()
	n.client.Close()
	n.server.Close()
	<-n.done
}

// timed sends a request by f, and times it until the answer is there.
func (n *nagled) timed(f func() error) func() (time.Duration, error) {
	answer := make([]byte, nagleAnswer)
	return func() (time.Duration, error) {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		_, err := io.ReadFull(n.client, answer)
		return time.Since(start), err
	}
}

var (
	nagleHeaderBytes = make([]byte, nagleHeader)
	nagleBodyBytes   = make([]byte, nagleBody)
)

// write is one Write for each piece.
func (n *nagled) write() error {
	if _, err := n.client.Write(nagleHeaderBytes); err != nil {
		return err
	}
	_, err := n.client.Write(nagleBodyBytes)
	return err
}

// gatherNagled is one unit of both.
func gatherNagled(w *vecio.Writer) error {
	if err := w.Append(nagleHeaderBytes); err != nil {
		return err
	}
	if err := w.Append(nagleBodyBytes); err != nil {
		return err
	}
	return w.End()
}
