package traces

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/penstock/penstock/proxy/internal/record"
)

// A sampler samples by the randomness of trace IDs, as in OpenTelemetry's specification
// (specification/trace/tracestate-probability-sampling.md). It compares the last 56 bits of an ID with a
// threshold. The threshold is also in the trace state, so the collector knows the probability.
type sampler struct {
	threshold uint64 // lower IDs are not sampled
	state     string // trace state of sampled sessions
	number    uint8  // not 0
}

const (
	randomBits = 56
	randomMask = 1<<randomBits - 1
)

// newSampler returns the sampler of a ratio from 0 to 1, or nil if no session is sampled.
func newSampler(ratio float64) *sampler {
	if !(ratio > 0) {
		return nil
	}
	threshold := uint64(math.Round((1 - min(ratio, 1)) * (1 << randomBits)))
	digits := strconv.FormatUint(1<<randomBits|threshold, 16)[1:] // with leading zeros
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		digits = "0"
	}
	return &sampler{threshold: threshold, state: "ot=th:" + digits}
}

func (s *sampler) samples(id record.ID) bool {
	return binary.BigEndian.Uint64(id[8:])&randomMask >= s.threshold
}
