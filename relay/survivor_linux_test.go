package relay_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// resetting are survivors by what they do; one that only writes has nothing but its error.
var resetting = map[string]sockets.Survivor{
	"reads": {Reads: true}, "reads and writes": {Reads: true, Writes: true}, "writes": {Writes: true},
}

// strain has one peer write, and read, and reset its connection at a random point of what it
// has moved, while the other one lives. end comes before the reset; it may be nil.
func strain(resets, survives halfConn, of sockets.Survivor, piece int, end func() error) *sockets.Survivor {
	for _, c := range []net.Conn{resets, survives} {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	b, most := make([]byte, piece), rand.Int64N(512<<10)
	var peers sync.WaitGroup
	peers.Go(func() { of.Live(survives, b) })
	if of.Reads {
		peers.Go(func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{resets}) })
		for n := int64(0); n < most; n += int64(piece) {
			if _, err := resets.Write(b); err != nil {
				break
			}
		}
	} else { // nothing that is sent to it is taken
		_, _ = io.CopyN(io.Discard, struct{ io.Reader }{resets}, most)
	}
	if end != nil {
		_ = end()
	}
	_ = resets.(*net.TCPConn).SetLinger(0)
	_ = resets.Close()
	peers.Wait()
	return &of
}

// TestResetIsNoEnd: whoever is reset, at whatever moment, the other one's connection is reset,
// and has seen no end of file before, be it spliced or copied, in small pieces or large.
func TestResetIsNoEnd(t *testing.T) {
	t.Parallel()

	times := full.Times(10, 40)
	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) {
				r := newRelay(t, &relay.Config{Engine: e})
				r.SetLinger(10 * time.Millisecond) // survivors that only write take nothing
				for name, of := range resetting {
					for _, piece := range []int{64, 64 << 10} {
						for i := range times {
							g := d.newRig(t, r, tcp, tcp)
							resets, survives := g.A, g.B
							if i%2 == 1 {
								resets, survives = g.B, g.A
							}
							if s := strain(resets, survives, of, piece, nil); !s.WasReset() {
								t.Errorf("one that %s, pieces of %d bytes: no reset: %v", name, piece, s)
							}
							if res, err := g.wait(); res.Reason != relay.ReasonReset || err == nil {
								t.Errorf("ended by %v, %v, want a reset", res.Reason, err)
							}
							_ = survives.Close()
						}
					}
				}
			})
		})
	}
}

// TestSurvivors holds the two kinds of end apart without any proxy: a reset, of which the
// survivor's own write may collect the error, and an end of file before a reset.
func TestSurvivors(t *testing.T) {
	t.Parallel()

	times := full.Times(40, 100)
	for name, of := range resetting {
		collected := 0
		for i := range times {
			resets, survives := sockets.TCPPair(t)
			var end func() error
			if i%2 == 1 {
				end = func() error { return errors.Join(resets.CloseWrite(), seenEnd(survives)) }
			}
			s := strain(resets, survives, of, 64<<10, end)
			if s.WasReset() != (end == nil) {
				t.Errorf("one that %s, an end of file before the reset: %v; %v", name, end != nil, s)
			}
			if s.Collected() {
				collected++
			}
			_ = survives.Close()
		}
		t.Logf("one that %s: %d of %d resets were collected by its own write", name, collected, times/2)
	}
}

// seenEnd waits until the peer's end of file has arrived at a socket.
func seenEnd(c *net.TCPConn) error {
	state := uint8(0)
	for end := time.Now().Add(patience); state != sys.TCP_CLOSE_WAIT; {
		raw, err := c.SyscallConn()
		if err == nil {
			err = errors.Join(raw.Control(func(fd uintptr) { state, err = sys.TCPState(int(fd)) }), err)
		}
		if err != nil || time.Now().After(end) {
			return fmt.Errorf("state %d: %w", state, err)
		}
	}
	return nil
}

// TestUnixKnowsNoReset: where the other side is reset, a peer on a unix socket reads an end of
// file, and its writes fail; only the result tells what it was.
func TestUnixKnowsNoReset(t *testing.T) {
	t.Parallel()

	eachDriver(t, func(t *testing.T, d *driving) {
		r := newRelay(t, nil)
		g := d.newRig(t, r, unixStream, tcp)
		if err := ping(g.B, g.A, 1); err != nil {
			t.Fatal(err)
		}
		abort(t, g.B)
		if n, err := g.A.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("it reads %d bytes, %v", n, err)
		}
		if res, err := g.wait(); res.Reason != relay.ReasonReset || res.Culprit != relay.SideB || err == nil {
			t.Errorf("ended by %v of %v, %v", res.Reason, res.Culprit, err)
		}
		if _, err := g.A.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("it writes: %v", err)
		}
	})
}
