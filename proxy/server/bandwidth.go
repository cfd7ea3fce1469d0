package server

import (
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/relay"
)

// buckets are the rate limits that all sessions of a listener share; nil: there is no such
// limit.
type buckets struct{ both, up, down *relay.Bucket }

// each calls f with each bucket and the rate that it is to have.
func (b *buckets) each(c *config.Bandwidth, f func(b **relay.Bucket, rate int64)) {
	f(&b.both, c.Both)
	f(&b.up, c.Up)
	f(&b.down, c.Down)
}

// make makes those that there have not been before.
func (b *buckets) make(c *config.Bandwidth) {
	b.each(c, func(b **relay.Bucket, rate int64) {
		if rate > 0 && *b == nil {
			*b = relay.NewBucket(rate, c.Burst)
		}
	})
}

// set changes those that there have been before.
func (b *buckets) set(c *config.Bandwidth) {
	b.each(c, func(b **relay.Bucket, rate int64) {
		if rate > 0 {
			(*b).Set(rate, c.Burst)
		}
	})
}

// limit has sessions spend from those that a configuration asks for.
func (b buckets) limit(l *relay.Limits, c *config.Bandwidth) {
	b.each(c, func(b **relay.Bucket, rate int64) {
		if rate == 0 {
			*b = nil
		}
	})
	l.Bandwidth, l.BandwidthAToB, l.BandwidthBToA = b.both, b.up, b.down
}
