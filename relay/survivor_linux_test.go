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
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// A survivor is the peer of one that resets its connection.
type survivor struct {
	reads, writes bool
	read, write   error // what ended its calls; nil: it made none
}

// live reads and writes until its calls fail. An end of file ends reading, not writing.
func (s *survivor) live(c net.Conn, piece []byte) {
	_ = c.SetDeadline(time.Now().Add(patience))
	var calls sync.WaitGroup
	if s.reads {
		calls.Go(func() {
			for buf := make([]byte, 64<<10); s.read == nil; {
				_, s.read = c.Read(buf)
			}
		})
	}
	if s.writes {
		calls.Go(func() {
			for s.write == nil {
				_, s.write = c.Write(piece)
			}
		})
	}
	calls.Wait()
}

// wasReset reports whether the connection was reset without an end of file before. The
// kernel gives the socket one error, to whichever call comes first (sk_err): ECONNRESET,
// but EPIPE if a FIN has been received (net/ipv4/tcp_input.c, tcp_reset). A read that comes
// after a write has got it answers like one at an end of file, so what the read says is not
// enough.
func (s *survivor) wasReset() bool {
	return errors.Is(s.read, syscall.ECONNRESET) || errors.Is(s.write, syscall.ECONNRESET)
}

// collected reports whether the survivor's own write has taken the error from its read.
func (s *survivor) collected() bool { return s.read == io.EOF && s.wasReset() }

func (s *survivor) String() string { return fmt.Sprintf("read: %v, write: %v", s.read, s.write) }

// resetting are survivors by what they do; one that only writes has nothing but its error.
var resetting = map[string]survivor{
	"reads": {reads: true}, "reads and writes": {reads: true, writes: true}, "writes": {writes: true},
}

// strain has one peer write, and read, and reset its connection at a random point of what it
// has moved, while the other one lives. end comes before the reset; it may be nil.
func strain(resets, survives halfConn, of survivor, piece int, end func() error) *survivor {
	_ = resets.SetDeadline(time.Now().Add(patience))
	b, most := make([]byte, piece), rand.Int64N(512<<10)
	var peers sync.WaitGroup
	peers.Go(func() { of.live(survives, b) })
	if of.reads {
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
	const times = 40
	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) {
				r := newRelay(t, &relay.Config{Engine: e})
				for name, of := range resetting {
					for _, piece := range []int{64, 64 << 10} {
						for i := range times {
							g := d.newRig(t, r, tcp, tcp)
							resets, survives := g.A, g.B
							if i%2 == 1 {
								resets, survives = g.B, g.A
							}
							if s := strain(resets, survives, of, piece, nil); !s.wasReset() {
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
	const times = 100
	for name, of := range resetting {
		collected := 0
		for i := range times {
			resets, survives := sockets.TCPPair(t)
			var end func() error
			if i%2 == 1 {
				end = func() error { return errors.Join(resets.CloseWrite(), seenEnd(survives)) }
			}
			s := strain(resets, survives, of, 64<<10, end)
			if s.wasReset() != (end == nil) {
				t.Errorf("one that %s, an end of file before the reset: %v; %v", name, end != nil, s)
			}
			if s.collected() {
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
