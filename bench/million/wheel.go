package million

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock/penstock/loop"
)

// A bell is a timer that counts.
type bell struct {
	timer loop.Timer
	rung  *int
}

// Expired implements loop.Expirer.
func (b *bell) Expired(*loop.Timer) { *b.rung++ }

// span is when timers are due.
const span = time.Hour

// wheel measures a loop's wheel with n timers.
func wheel(n int) (*Wheel, error) {
	c := new(clock)
	l, err := loop.New(&loop.Config{Now: c.read})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	rung := 0
	bells := make([]bell, n)
	for i := range bells {
		bells[i].rung = &rung
	}
	r := rand.New(rand.NewPCG(2, uint64(n)))
	arm := func(i uint32) { l.Arm(&bells[i].timer, &bells[i], time.Duration(r.Int64N(int64(span)))) }
	w, order := new(Wheel), anyOrder(n, 2)
	w.Arm = eachOf(order, arm)
	w.Move = eachOf(anyOrder(n, 3), arm)
	w.Hot = eachOf(make([]uint32, leastMessages), arm)
	w.Disarm = eachOf(order, func(i uint32) { l.Disarm(&bells[i].timer) })
	eachOf(anyOrder(n, 4), arm)
	turns, err := c.run(l, 0, span, n, nothing)
	if err == nil && rung != n {
		err = fmt.Errorf("million: %d of %d timers expired", rung, n)
	}
	if err != nil {
		return nil, err
	}
	w.Expire, w.Turn, w.LongestTurn = each(turns.sum(), n), turns.at(0.5), seconds(slices.Max(turns))
	rung = 0
	eachOf(anyOrder(n, 5), func(i uint32) { l.Arm(&bells[i].timer, &bells[i], span) })
	turns, err = c.run(l, span, 2*span, n, nothing)
	if err == nil && rung != n {
		err = fmt.Errorf("million: %d of %d timers that were due together expired", rung, n)
	}
	w.Together, w.TogetherTurn = each(turns.sum(), n), seconds(slices.Max(turns))
	return w, err
}
