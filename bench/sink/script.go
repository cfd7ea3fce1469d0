package sink

import (
	"crypto/sha256"
	"errors"
	"hash"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// How a slow actor receives: through a small buffer, a little at a time. The
// buffer has room for a segment of loopback's, 64 KiB: with less, the peer sends
// only when its timer says so, every 200 ms (net/ipv4/tcp_timer.c,
// tcp_probe_timer), and slow becomes endless.
const (
	slowBuffer = 128 << 10 // SO_RCVBUF
	slowPiece  = 16 << 10
	slowPause  = 2 * time.Millisecond
)

// actor follows a script.
type actor struct {
	socket
	script   traffic.Script
	content  *traffic.Stream
	report   traffic.Report
	sum      hash.Hash // of the bytes received
	ended    bool      // the client's side
	shut     bool      // our side
	resting  bool      // a slow one between two reads
	finished bool      // closed; a timer may still hold the actor
}

func newActor(s socket, script traffic.Script) *actor {
	return &actor{
		socket: s, script: script, content: traffic.NewStream(script.Seed),
		report: traffic.Report{State: traffic.StateOpen}, sum: sha256.New(),
	}
}

// begin takes over the connection; b has come after the script.
func (a *actor) begin(b []byte) {
	a.w.loop.Hand(a.fd, a)
	if a.script.Slow {
		// It was accepted with a larger window: that much comes without waiting.
		_ = sys.SetsockoptInt(a.fd, sys.SOL_SOCKET, sys.SO_RCVBUF, slowBuffer)
	}
	a.took(b)
	a.record()
	a.proceed()
}

// Ready implements reactor.Handler.
func (a *actor) Ready(events uint32) {
	if a.ended && events&(sys.EPOLLERR|sys.EPOLLHUP) != 0 {
		a.broken(syscall.ECONNRESET) // our own side has not ended, or this would be over
		return
	}
	if events&sys.EPOLLOUT != 0 && a.giving() && !a.give() {
		return
	}
	if events&^sys.EPOLLOUT != 0 && !a.ended && !a.resting && !a.read() {
		return
	}
	a.record()
	a.proceed()
}

// giving reports whether it is time to send.
func (a *actor) giving() bool {
	return a.report.Sent < a.script.Give && (a.ended || !a.script.After)
}

// give sends content, and reports whether the connection lives.
func (a *actor) give() bool {
	left := a.script.Give - a.report.Sent
	chunk := a.content.Next(int(min(left, traffic.MaxChunk)))
	rest, err := a.send(chunk)
	if err != nil {
		a.broken(err)
		return false
	}
	a.content.Back(len(rest))
	a.report.Sent += int64(len(chunk) - len(rest))
	return true
}

// read receives, and reports whether the connection lives.
func (a *actor) read() bool {
	b, ok, err := a.receiveSome()
	switch {
	case err != nil:
		a.broken(err)
		return false
	case !ok:
	case len(b) == 0:
		a.ended = true
	default:
		a.took(b)
		if a.script.Slow {
			a.rest()
		}
	}
	return true
}

// receiveSome receives no more than the script's pace allows.
func (a *actor) receiveSome() ([]byte, bool, error) {
	if !a.script.Slow {
		return a.receive()
	}
	whole := a.w.buf
	defer func() { a.w.buf = whole }()
	a.w.buf = whole[:slowPiece]
	return a.receive()
}

// took adds received bytes to the count and the sum.
func (a *actor) took(b []byte) {
	a.report.Received += int64(len(b))
	_, _ = a.sum.Write(b)
}

// rest receives nothing for a while.
func (a *actor) rest() {
	a.resting = true
	a.w.loop.After(slowPause, func() {
		a.resting = false
		if !a.finished {
			a.proceed()
		}
	})
}

// proceed takes the next step of the script and requests the events that it needs.
func (a *actor) proceed() {
	given := a.report.Sent == a.script.Give && (a.ended || !a.script.After)
	switch {
	case given && a.script.Reset && a.report.Received > 0:
		_ = sys.AbortOnClose(a.fd)
		a.finish(traffic.StateAbort)
		return
	case given && (a.ended || !a.script.Reset) && !a.shut:
		a.shut = true
		if err := sys.ShutdownWrite(a.fd); err != nil {
			a.broken(err)
			return
		}
	}
	if a.shut && a.ended {
		a.finish(traffic.StateEnded)
		return
	}
	var events uint32
	if a.giving() {
		events |= sys.EPOLLOUT
	}
	if !a.ended && !a.resting {
		events |= readable
	}
	a.want(events)
}

// broken is the end of a connection by an error: of those, a TCP socket gets
// ECONNRESET for a reset, and EPIPE for one after the client's end of file
// (net/ipv4/tcp_input.c, tcp_reset).
func (a *actor) broken(err error) {
	state := traffic.State(err.Error())
	for _, e := range []error{syscall.ECONNRESET, syscall.EPIPE, syscall.ENOTCONN} {
		if errors.Is(err, e) {
			state = traffic.StateReset
		}
	}
	a.finish(state)
}

// finish closes and says how it came to that.
func (a *actor) finish(state traffic.State) {
	a.finished = true
	a.report.State = state
	a.record()
	a.close()
}

// record writes the state to the ledger.
func (a *actor) record() {
	r := a.report
	if r.State != traffic.StateOpen {
		r.Sum = a.sum.Sum(nil)
	}
	a.w.known.set(a.script.Token, r)
}
