package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// Bounds of the time for which the lane is on, and off, with Messages.
const (
	longestOn  = 1500 * time.Millisecond
	longestOff = 400 * time.Millisecond
)

// flips has the sessions that have left user space come back and leave again, at random times, until the round is over. The
// lane is on when it returns.
func (s *soak) flips(ctx, round context.Context, n uint32) {
	times := rand.New(rand.NewPCG(s.Seed, uint64(n)<<32))
	for on := true; ; {
		wait := longestOff
		if on {
			wait = longestOn
		}
		select {
		case <-round.Done():
			if on {
				return
			}
		case <-time.After(time.Duration(times.Int64N(int64(wait)))):
		}
		on = !on
		if err := s.flip(ctx, on); err != nil {
			if ctx.Err() == nil {
				s.violate(fmt.Sprintf("round %d: %v", n, err))
			}
			return
		}
	}
}

// flip switches the lane.
func (s *soak) flip(ctx context.Context, on bool) error {
	changed, err := s.proxy.SwitchLane(ctx, on)
	want := admin.LaneOff
	if on {
		want = admin.LaneOn
	}
	switch {
	case err != nil:
		return err
	case changed.State != want || changed.Reset != 0:
		return fmt.Errorf("the lane switched %s: expected no session to be reset, got %+v", want, changed)
	}
	s.tally.count(flips)
	return nil
}
