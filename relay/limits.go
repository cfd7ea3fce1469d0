package relay

import (
	"math"
	"time"
)

// Limits are the limits of one session, in place of the timeouts of its relay's [Config]: a zero field means no
// such limit. Pass them to [Driver.StartLimited] or [Session.Limit]. Any number of sessions may share them. Once a
// session has them, only the rates of its Buckets may be changed.
//
// A direction that has to wait for bandwidth has not read yet: it holds neither pipe nor buffer, and its bytes stay
// with the source, which the TCP window slows down. It goes on splicing when its turn comes. Bytes that were read are
// passed on at once.
type Limits struct {
	// IdleTimeout ends a session when for this time no byte has moved in either direction, and no sent byte was
	// acknowledged. Waiting for bandwidth does not count as idle. If a peer stops acknowledging in the middle, the
	// session may live for another IdleTimeout.
	IdleTimeout time.Duration
	// HalfCloseTimeout replaces IdleTimeout once one direction has ended. 0 means that IdleTimeout stays in force;
	// but on goroutines it means five seconds if the end could not be passed on ([FallbackHalfClose]).
	HalfCloseTimeout time.Duration
	// MaxLifetime ends a session at that age. LifetimeJitter, from 0 to 1, shortens it
	// for each session by a random part of up to this share, so that sessions that
	// began together do not all end together.
	MaxLifetime    time.Duration
	LifetimeJitter float64
	// FirstByte ends a session if its second side, the endpoint, sends neither a byte nor an
	// end of file within this time after the join. The time runs even if the first side has
	// sent nothing: if the client speaks first, join only after it has spoken.
	FirstByte time.Duration

	// Bandwidth is shared by both directions of all sessions that use this Bucket.
	// BandwidthAToB and BandwidthBToA limit one direction. Sessions that wait for any of them
	// are served in turn. nil means that there is no such limit.
	Bandwidth, BandwidthAToB, BandwidthBToA *Bucket
	// PerConnection limits this session alone. Any bandwidth limit adds 800 bytes to the memory of a session.
	PerConnection Rates

	// Answered reports success early: the second side has sent a byte, and the time of FirstByte is over. It may
	// be called more than once, on a goroutine of the session, and must not wait.
	Answered func()

	// FirstByteCame is called when the second side sends its first byte. asked says whether the first side had
	// sent something. took is the time since the first side last sent something, or since the session began. It is
	// called once for each session, on the goroutine that drives the session, and must not wait.
	FirstByteCame func(took time.Duration, asked bool)

	// Of belongs to the caller: relay does not look at it.
	Of any
}

// Rates are the bandwidth of one session, in bytes a second; 0 means no such limit.
type Rates struct {
	// Both limits both directions together, AToB and BToA one direction.
	Both, AToB, BToA int64
	// Burst is how many bytes each of the rates lets move at once, as in [NewBucket].
	Burst int64
}

// limits are the limits of sessions that have none of their own.
func (c *Config) limits() Limits {
	return Limits{IdleTimeout: c.IdleTimeout, HalfCloseTimeout: c.HalfCloseTimeout, MaxLifetime: c.MaxLifetime}
}

// paces reports whether sessions may have to wait for bandwidth.
func (l *Limits) paces() bool {
	r := &l.PerConnection
	return l.Bandwidth != nil || l.BandwidthAToB != nil || l.BandwidthBToA != nil || r.Both > 0 || r.AToB > 0 || r.BToA > 0
}

// quiet returns how long the session may be without a move; half says that one direction has ended.
func (l *Limits) quiet(half bool) time.Duration {
	if half && l.HalfCloseTimeout > 0 {
		return l.HalfCloseTimeout
	}
	return l.IdleTimeout
}

// lifetime returns how old a session may become; seed is the session's own random number.
func (l *Limits) lifetime(seed int64) time.Duration {
	if l.MaxLifetime <= 0 || l.LifetimeJitter <= 0 {
		return max(l.MaxLifetime, 0)
	}
	share := float64(mix(uint64(seed))>>11) / (1 << 53)
	less := time.Duration(float64(l.MaxLifetime) * min(l.LifetimeJitter, 1) * share)
	return max(l.MaxLifetime-less, 1)
}

// mix spreads the small differences of seeds over all bits (Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators", 2014: the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// An age has the times from which the timeouts of a session count, on its driver's clock.
type age struct {
	now, started, active int64
	seed                 int64
	half                 bool // one direction has ended
	answered             bool // the second side has sent something, or waits for bandwidth
}

// An acks is what the peer of a TCP connection has acknowledged.
type acks struct {
	bytes int64         // acknowledged so far
	left  int           // sent and not acknowledged
	ago   time.Duration // since its last packet with an acknowledgement, possibly of nothing new
}

// A progress is what both sides have acknowledged, of bytes that the kernel still sends when no byte has moved for
// the idle time. Acknowledgements raise no event, so the driver looks for them when that time is over.
type progress struct {
	bytes int64 // acknowledged when a look last found progress
	since int64 // clock time since which nothing more was acknowledged, as of that look; 0: no look yet
}

// note records a look; the session has been idle since p.since or a later time. The first look cannot know
// what was acknowledged before: it takes the time of the last packet of a side that has not acknowledged
// everything.
func (p *progress) note(a, b acks, now int64) {
	ago := time.Duration(math.MaxInt64)
	for _, side := range [2]acks{a, b} {
		if side.left > 0 {
			ago = min(ago, side.ago)
		}
	}
	if n := a.bytes + b.bytes; ago < math.MaxInt64 && (p.since == 0 || n != p.bytes) {
		*p = progress{n, max(now-int64(ago), 1)}
	}
}

// quiet reports whether r is a timeout for sessions in which no byte moves.
func (r Reason) quiet() bool { return r == ReasonIdle || r == ReasonHalfClose }

// next returns the time until the next timeout and its reason, or ReasonNone if there is none.
func (l *Limits) next(a age) (left time.Duration, what Reason) {
	left = math.MaxInt64
	if quiet := l.quiet(a.half); quiet > 0 {
		left, what = quiet-time.Duration(a.now-a.active), ReasonIdle
		if a.half && l.HalfCloseTimeout > 0 {
			what = ReasonHalfClose
		}
	}
	if l.FirstByte > 0 && !a.answered {
		if rest := l.FirstByte - time.Duration(a.now-a.started); rest < left {
			left, what = rest, ReasonFirstByte
		}
	}
	if life := l.lifetime(a.seed); life > 0 {
		if rest := life - time.Duration(a.now-a.started); rest <= max(left, 0) {
			left, what = rest, ReasonLifetime
		}
	}
	return left, what
}

// answered reports whether a direction's source has sent bytes, or has ended.
func (d *direction) answered() bool {
	return d.spoken() || d.reason.Load() != uint32(ReasonNone)
}

// spoken reports whether a direction's source has sent bytes: an end of file alone is no success.
func (d *direction) spoken() bool { return d.moved() > 0 }

func (d *direction) moved() int64 { return d.spliced.Load() + d.copied.Load() }
