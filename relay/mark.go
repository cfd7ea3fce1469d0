package relay

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A lowWaterMark is a source's low-water mark (SO_RCVLOWAT, socket(7)): how many bytes have to be
// queued before the source counts as readable. A direction raises it when its source runs dry in
// the middle of proven bulk, so that it is woken for half a pipe at a time and not for every few
// segments. Nothing else changes: queued bytes can be read at any time, an end of file or a reset
// wakes at once, and the kernel wakes as well when the window is about to shut (net/ipv4/tcp.c,
// tcp_epollin_ready).
//
// Only the last bytes of a stream that pauses without an end of file could wait forever. So a guard looks at a
// direction while its mark is raised, and no byte waits for longer than a [Config.TailDelay]. The guard of
// sessions on goroutines looks twice in that time, and lowers the mark if the direction has moved nothing
// since. The guard of a [Driver] looks three times: it skips a direction that has moved since the last look,
// otherwise it reads the queued bytes, and it lowers the mark once it has found nothing a few times in a row.
type lowWaterMark struct {
	raised atomic.Bool // set by the direction, cleared by the guard

	// The direction writes these before it sets raised, the guard before it clears raised.
	since int64 // bytes moved when the mark was last lowered
	proof int64 // bytes to move after that before the mark is raised

	seen  int64 // bytes moved at the guard's last look; only the guard uses it
	quiet int   // consecutive looks that found nothing
}

const (
	// markPipe is the smallest pipe for which a mark pays: a pipe of 256 KiB gained nothing.
	markPipe = 1 << 20
	// markProof is how many bytes a direction moves before its bulk counts as proven. It doubles each time the
	// guard has to lower the mark, so that flows with bursts, or with less than half a pipe in a tick, soon get
	// no mark.
	markProof = 16 << 20
)

// raiseMark is called when the source has run dry, before it is waited for.
func (d *direction) raiseMark() {
	if d.env().tune.TailDelay < 0 || d.pipeSize.bytes() < markPipe || d.mode != splicing || d.is(oneWay) {
		return
	}
	o := d.rareState()
	if o.mark == nil {
		o.mark = &lowWaterMark{proof: markProof}
	}
	m := o.mark
	if m.raised.Load() || d.spliced.Load()-m.since < m.proof {
		return
	}
	if !d.link.raiseMark(d.pipeSize.bytes() / 2) {
		m.proof = math.MaxInt64
		return
	}
	m.seen = d.spliced.Load()
	m.raised.Store(true)
	d.env().counts.note(markRaised)
	d.env().guardMark(d)
}

// lowerMark makes the source readable for every byte again. The kernel wakes waiters if
// there are any (tcp_set_rcvlowat).
func (d *direction) lowerMark() {
	m := d.rareState().mark
	m.since = d.spliced.Load()
	if m.proof < math.MaxInt64/2 {
		m.proof *= 2
	}
	d.link.lowerMark()
	d.env().counts.note(markLowered)
	m.raised.Store(false)
}

// A guard looks after the directions with raised marks. Its timer runs while there are any.
type guard struct {
	clock  clock
	tick   time.Duration
	mu     sync.Mutex
	raised []*direction
	timer  timer // nil until the first mark is raised
	runs   bool
}

func (g *guard) add(d *direction) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.raised = append(g.raised, d)
	switch {
	case g.runs:
		return
	case g.timer == nil:
		g.timer = g.clock.afterFunc(g.tick, g.look)
	default:
		g.timer.Reset(g.tick)
	}
	g.runs = true
}

// look lowers the marks of directions that have moved nothing since the last look, even if they have ended.
func (g *guard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := g.raised[:0]
	for _, d := range g.raised {
		if moved := d.spliced.Load(); moved != d.rareState().mark.seen {
			d.rareState().mark.seen = moved
			kept = append(kept, d)
			continue
		}
		d.lowerMark()
	}
	clear(g.raised[len(kept):])
	g.raised = kept
	if g.runs = len(kept) > 0; g.runs {
		g.timer.Reset(g.tick)
	}
}
