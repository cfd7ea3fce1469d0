package pipe

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// Load writes b into p, for tests that may not splice.
func Load(p *Pipe, b []byte) {
	n, err := sys.Write(p.w, b)
	if err != nil {
		panic(err)
	}
	p.n += n
}

// Limits and ReadLimits stand for the limits of the kernel.
type Limits = limits

var ReadLimits = readLimits

// NewLimits makes limits without reading the kernel's: pages of 4 KiB.
func NewLimits(maxSize int, soft, hard, descriptors int64, exempt bool) *Limits {
	return &limits{pageSize: 4096, maxSize: maxSize, soft: soft, hard: hard, descriptors: descriptors, exempt: exempt}
}

// With returns cfg with a clock, and limits unless nil, for tests.
func With(cfg Config, now func() time.Time, l *Limits) *Config {
	cfg.now, cfg.limits = now, l
	return &cfg
}

func (l limits) Line(want int) int64 { return l.line(want) }
func (l limits) Sizes() []int        { return l.sizes() }
