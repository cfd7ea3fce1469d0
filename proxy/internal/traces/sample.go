package traces

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/penstock/penstock/proxy/internal/record"
)

// A sampler samples by the randomness of trace ids, as OpenTelemetry's specification has it
// (specification/trace/tracestate-probability-sampling.md): the last 56 bits of an ID against a
// threshold, which is passed on in the trace state so that the collector knows the probability.
type sampler struct {
	threshold uint64 // IDs below are not sampled
	state     string // of the sampled ones
	number    uint8  // not 0
}

const (
	randomBits = 56
	randomMask = 1<<randomBits - 1
)

// newSampler returns the sampler of a ratio, in 0..1; nil samples nothing.
func newSampler(ratio float64) *sampler {
	if !(ratio > 0) {
		return nil
	}
	threshold := uint64(math.Round((1 - min(ratio, 1)) * (1 << randomBits)))
	digits := strconv.FormatUint(1<<randomBits|threshold, 16)[1:] // with the zeros before
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		digits = "0"
	}
	return &sampler{threshold: threshold, state: "ot=th:" + digits}
}

func (s *sampler) samples(id record.ID) bool {
	return binary.BigEndian.Uint64(id[8:])&randomMask >= s.threshold
}
