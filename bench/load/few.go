package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/penstock/penstock/internal/sys"
)

// chatter is a Talk under way.
type chatter struct {
	Talk
	i            *idle
	few          []*sleeper
	left         int // of few, those that have not had their last answer
	began, until time.Time
	latency      *hdrhistogram.Histogram // nanoseconds
	requests     int64
}

// begins has some of the sleepers talk.
func (i *idle) begins(plan Talk) {
	switch {
	case i.talk != nil:
		i.loop.Stop(errors.New("load: a talk while one is under way"))
		return
	case plan.Connections > len(i.all):
		i.loop.Stop(fmt.Errorf("load: a talk of %d connections, of %d", plan.Connections, len(i.all)))
		return
	}
	t := &chatter{Talk: plan, i: i, left: plan.Connections, began: time.Now(), latency: hdrhistogram.New(1, longestLatency, latencyDigits)}
	t.until = t.began.Add(plan.Duration)
	i.talk = t
	for _, at := range rand.Perm(len(i.all))[:plan.Connections] {
		t.few = append(t.few, i.all[at])
	}
	for _, s := range t.few {
		s.ask(time.Now())
	}
}

// stuck names a message that has not come back.
func (t *chatter) stuck() error {
	for _, s := range t.few {
		if s.missing > 0 {
			return failed(t.i.plan, s.index, fmt.Errorf("%d of the %d bytes of a message have not come back", s.missing, t.Size))
		}
	}
	return nil
}

// ask sends a message.
func (s *sleeper) ask(now time.Time) {
	s.unsent, s.missing, s.asked = s.i.talk.Size, s.i.talk.Size, now
	if s.sendSome() && s.unsent > 0 {
		s.want(readable | sys.EPOLLOUT)
	}
}

// answered is a message that has come back.
func (s *sleeper) answered(now time.Time) {
	t := s.i.talk
	t.requests++
	if err := t.latency.RecordValue(int64(now.Sub(s.asked))); err != nil {
		s.fail(err)
		return
	}
	if now.Before(t.until) {
		s.ask(now)
		return
	}
	s.asked = time.Time{}
	if t.left--; t.left == 0 {
		s.i.talk = nil
		t.end(now)
	}
}

// end reports the result.
func (t *chatter) end(now time.Time) {
	if t.i.r.Talked == nil {
		return
	}
	bytes := t.requests * int64(t.Size)
	t.i.r.Talked(Result{
		Sent: bytes, Received: bytes, Requests: t.requests, Elapsed: now.Sub(t.began), Connections: int64(t.Connections),
		P50:  time.Duration(t.latency.ValueAtQuantile(50)),
		P99:  time.Duration(t.latency.ValueAtQuantile(99)),
		Mean: time.Duration(t.latency.Mean()),
	})
}
