package health

import (
	"math"
	"time"

	"github.com/zeebo/xxh3"
)

// A phase is the time of the probe in each interval: at an offset by the endpoint's name, and
// later by up to the jitter, which differs each time.
type phase struct {
	hash     uint64
	interval int64
	offset   int64
	jitter   float64
}

func newPhase(name string, seed uint64, interval time.Duration, jitter float64) phase {
	p := phase{hash: xxh3.HashStringSeed(name, seed), interval: max(int64(interval), 1)}
	p.jitter = min(max(jitter, 0), 1)
	p.offset = int64(p.hash % uint64(p.interval))
	return p
}

// next returns the first time of probing after now.
func (p *phase) next(now int64) int64 {
	for k := (now-p.offset)/p.interval - 1; ; k++ {
		if at := p.at(k); at > now {
			return at
		}
	}
}

// at returns the time of probing of the k-th interval.
func (p *phase) at(k int64) int64 {
	return p.offset + k*p.interval + int64(p.jitter*p.random(k)*float64(p.interval))
}

// soon returns the time of a probe an interval of its own after now.
func (p *phase) soon(now int64, interval time.Duration) int64 {
	return now + int64(float64(interval)*(1-p.jitter*p.random(now)))
}

// random returns a number below 1 that depends on the endpoint and k alone: the finish of
// splitmix64.
func (p *phase) random(k int64) float64 {
	x := p.hash + uint64(k)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return math.Ldexp(float64((x^x>>31)>>11), -53)
}
