package vecio

import (
	"fmt"
	"time"
)

// Config sets up a [Writer]. The zero value means the defaults.
type Config struct {
	// CopyBelow: a piece with fewer bytes is copied, a longer one goes by reference. 0
	// means DefaultCopyBelow, negative never to copy.
	CopyBelow int

	// High bounds the bytes that are pending: a piece that would take them above it
	// waits until they are written down to Low, or is refused with ErrFull by a writer
	// that never waits, until then. Only a piece that comes when nothing is pending may
	// be longer. 0 means DefaultHigh. Low is 0 by default, that is, all is written.
	High, Low int

	// Policy is the effect of End.
	Policy Policy

	// Bound is how long an incomplete unit (Adaptive), or pieces that were not flushed
	// (Batch), may wait, see Writer.Due. 0 means DefaultBound for Adaptive and no bound for
	// Batch; Latency has none.
	Bound time.Duration

	// Now is a monotonic clock in nanoseconds, for Bound. Nil means the system's.
	Now func() int64
}

const (
	// DefaultCopyBelow is below which size of a piece a copy in user space costs less
	// than an entry of the vector. See docs/vecio.md for the measurement.
	DefaultCopyBelow = 2048

	// DefaultHigh is how many bytes may be pending.
	DefaultHigh = 1 << 20

	// maxRuns bounds the cost of empty and tiny pieces: so often may the length of a piece
	// that is pending differ from that of the one before it, and so many may be owned.
	maxRuns = 1 << 16
)

func (c Config) withDefaults() Config {
	if c.CopyBelow == 0 {
		c.CopyBelow = DefaultCopyBelow
	}
	if c.High == 0 {
		c.High = max(DefaultHigh, c.Low)
	}
	switch {
	case c.Policy == Latency:
		c.Bound = 0
	case c.Policy == Adaptive && c.Bound == 0:
		c.Bound = DefaultBound
	}
	if c.Now == nil {
		c.Now = monotonic
	}
	return c
}

func (c *Config) check() error {
	if c.High < 0 || c.Low < 0 || c.Low > c.High {
		return fmt.Errorf("penstock: vecio: watermarks %d and %d: give 0 <= Low <= High", c.Low, c.High)
	}
	return c.Policy.check(c.Bound)
}
