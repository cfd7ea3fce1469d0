//go:build linux

package verdict_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// A cause is a kind of fault.
type cause string

// The causes.
const (
	SlowReader cause = "slow reader"
	SlowSender cause = "slow sender"
	SlowAnswer cause = "slow answer"
	Window     cause = "tiny window"
	Loss       cause = "loss"
	ThinLink   cause = "thin link"
	Starved    cause = "starved proxy"
	Bandwidth  cause = "bandwidth limit"
	Idle       cause = "idle"

	// On a path of some round-trip time (fault.RTT):
	LongWay    cause = "long way" // of questions that are answered at once
	LongLoss   cause = "loss on a long way"
	LongWindow cause = "window on a long way" // which holds less than the path
	LongReader cause = "slow reader on a long way"
	LongSender cause = "slow sender on a long way"
	LongAnswer cause = "slow answer on a long way"
)

// causes are all of them.
var causes = []cause{
	SlowReader, SlowSender, SlowAnswer, Window, Loss, ThinLink, Starved, Bandwidth, Idle,
	LongWay, LongLoss, LongWindow, LongReader, LongSender, LongAnswer,
}

// A fault is a cause with its strength, at one side, and the traffic that it meets.
type fault struct {
	Cause    cause
	Client   bool    // at the client's side, not the endpoint's; nothing for some causes
	Requests bool    // questions and answers, not a stream
	Upload   bool    // the client sends the bulk of the bytes
	Strength float64 // of the unit of the cause
	Unit     string
	Reno     bool // the congestion control, in place of the machine's own
	Chunk    int  // bytes of a read, a write, an answer, or a queue
	Lane     bool // the session has left user space before
	// RTT is the round trip to the fault's side in ms, from the session's beginning, and Jitter how much of it comes and
	// goes; 0: as of the machine.
	RTT    float64
	Jitter float64
}

// want is the verdict that is right.
func (f *fault) want() string {
	side := "endpoint"
	if f.Client {
		side = "client"
	}
	switch f.Cause {
	case Loss, ThinLink, LongWay, LongLoss:
		return side + "_network"
	case Starved:
		return "proxy"
	case Bandwidth:
		return "limit"
	case Idle:
		return "idle"
	}
	return side
}

func (f *fault) String() string {
	traffic := "download"
	switch {
	case f.Requests:
		traffic = "requests"
	case f.Upload:
		traffic = "upload"
	}
	if f.Reno {
		traffic += ", reno"
	}
	if f.Lane {
		traffic += ", in the lane"
	}
	path := ""
	if f.RTT > 0 {
		path = fmt.Sprintf(", %.0f ms away, jitter %.0f ms", f.RTT, f.Jitter)
	}
	return fmt.Sprintf("%s (%s), %s: %.3g %s, %d B%s", f.Cause, f.want(), traffic, f.Strength, f.Unit, f.Chunk, path)
}

// between draws from a range, each factor as likely.
func between(r *rand.Rand, low, high float64) float64 {
	return low * math.Exp(r.Float64()*math.Log(high/low))
}

func drawn(r *rand.Rand, c cause) fault {
	f := fault{Cause: c, Client: r.IntN(2) == 0, Upload: r.IntN(2) == 0, Reno: r.IntN(2) == 0}
	size := func(low, high float64) int { return int(between(r, low, high)) }
	switch c {
	case SlowReader:
		f.Strength, f.Unit, f.Upload = between(r, 0.2, 20), "MB/s", !f.Client
		f.Chunk = size(16<<10, 256<<10)
	case SlowSender:
		f.Strength, f.Unit, f.Upload = between(r, 5, 500), "ms between writes", f.Client
		f.Chunk = size(1<<10, 256<<10)
	case SlowAnswer:
		f.Strength, f.Unit, f.Requests = between(r, 10, 700), "ms before each", true
		f.Chunk = size(100, 100<<10)
	case Window:
		f.Strength, f.Unit, f.Upload = between(r, 2, 6), "KB of buffer", !f.Client
		f.Chunk = 64 << 10
	case Loss:
		f.Strength, f.Unit, f.Requests = between(r, 4, 20), "% of packets", r.IntN(3) == 0
		f.Chunk = size(64<<10, 512<<10)
	case ThinLink:
		f.Strength, f.Unit, f.Requests = between(r, 0.5, 20), "Mbit/s", r.IntN(3) == 0
		f.Chunk = size(64<<10, 512<<10)
	case Starved:
		f.Strength, f.Unit, f.Requests = between(r, 2, 15), "% of a CPU", r.IntN(3) == 0
		f.Chunk = size(100, 64<<10)
	case Bandwidth:
		f.Strength, f.Unit = between(r, 0.1, 10), "MB/s"
		f.Chunk = 64 << 10
	case Idle:
		f.Strength, f.Unit, f.Requests = between(r, 2.2, 6), "s between questions", true
		f.Chunk = size(100, 10<<10)
	default:
		f.drawFar(r)
	}
	f.Upload = f.Upload && !f.Requests
	return f
}

// firstFlight is how many bytes a sender may have under way at once (RFC 6928).
const firstFlight = 10 * 1400

// drawFar draws a fault on a long path. Its strength is such that the path is not the limit, unless it is the fault.
func (f *fault) drawFar(r *rand.Rand) {
	f.RTT = between(r, 20, 200)
	if r.IntN(2) == 0 {
		f.Jitter = f.RTT / 10 * r.Float64()
	}
	f.Chunk = int(between(r, 100, firstFlight))
	switch f.Cause {
	case LongWay:
		f.Strength, f.Unit, f.Requests = f.RTT, "ms", true
	case LongLoss:
		f.Strength, f.Unit = between(r, 2, 10), "% of packets"
	case LongWindow:
		f.RTT = max(f.RTT, 50)
		f.Strength, f.Unit, f.Upload = between(r, 4, 64), "KB of buffer", !f.Client
	case LongReader:
		f.Strength, f.Unit, f.Upload = between(r, 0.05, 1), "MB/s", !f.Client
		f.Chunk = int(between(r, 4<<10, 64<<10))
	case LongSender:
		f.Strength, f.Unit, f.Upload = f.RTT*between(r, 0.25, 2), "ms between writes", f.Client
	case LongAnswer:
		f.Strength, f.Unit, f.Requests, f.Client = f.RTT*between(r, 2, 5), "ms before each", true, false
	}
}

// inLane are the causes that there can be in the lane: neither this process nor a limit of it is one.
func (c cause) inLane() bool { return c != Starved && c != Bandwidth }

// period is the strength of those that are times.
func (f *fault) period() time.Duration {
	if f.Cause == Idle {
		return time.Duration(f.Strength * float64(time.Second))
	}
	return milliseconds(f.Strength)
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
