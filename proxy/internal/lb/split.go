package lb

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
)

// ErrSplit is wrapped by the error of invalid percentages.
var ErrSplit = errors.New("no such split")

// A WeightedSplit divides clients smoothly by percentages: among any thousand clients in a row, each part is
// exact, give or take one or two. It is safe for concurrent use.
type WeightedSplit struct {
	bounds atomic.Pointer[[]uint64] // the end of each part, as a fraction of 2^64-1
	turn   atomic.Uint64
}

// NewWeightedSplit returns a split by percentages, which must add up to 100. An error wraps [ErrSplit].
func NewWeightedSplit(percents ...float64) (*WeightedSplit, error) {
	s := new(WeightedSplit)
	s.turn.Store(rand.Uint64())
	if err := s.Set(percents...); err != nil {
		return nil, err
	}
	return s, nil
}

// Set changes the percentages for the clients that come from now on. After an error nothing has changed.
func (s *WeightedSplit) Set(percents ...float64) error {
	if old := s.bounds.Load(); old != nil && len(*old) != len(percents) {
		return fmt.Errorf("%w: it has %[3]d parts, not %[2]d", ErrSplit, len(percents), len(*old))
	}
	var sum float64
	bounds := make([]uint64, 0, len(percents))
	last := -1 // last part with more than 0 percent
	for i, p := range percents {
		if !(p >= 0 && p <= 100) {
			return fmt.Errorf("%w: write a percentage from 0 to 100 in place of %v", ErrSplit, p)
		}
		if p > 0 {
			last = i
		}
		sum += p
		bounds = append(bounds, uint64(min(sum/100, 1-1e-15)*(1<<64)))
	}
	if math.Abs(sum-100) > 1e-6 {
		return fmt.Errorf("%w: the percentages add up to %v, not to 100", ErrSplit, sum)
	}
	for i := last; i < len(bounds); i++ {
		bounds[i] = math.MaxUint64
	}
	s.bounds.Store(&bounds)
	return nil
}

// Next returns the part that the next client belongs to.
func (s *WeightedSplit) Next() int { return s.Part(s.Draw()) }

// Draw returns the next client's place, from which its part follows.
func (s *WeightedSplit) Draw() uint64 { return s.turn.Add(1) * golden }

// Part returns the part of a client's place, in this split and in later ones with the same percentages.
func (s *WeightedSplit) Part(at uint64) int {
	bounds := *s.bounds.Load()
	for i, end := range bounds {
		if at < end {
			return i
		}
	}
	return len(bounds) - 1
}
