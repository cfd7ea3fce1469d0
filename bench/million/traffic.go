package million

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/report"
)

// times are how long something took, one by one.
type times []time.Duration

// at returns the time that so large a share of them does not exceed.
func (t times) at(share float64) report.Number {
	if len(t) == 0 {
		return report.Unmeasured()
	}
	sorted := slices.Sorted(slices.Values(t))
	return seconds(sorted[int(share*float64(len(t)-1))])
}

// sum is all of them together.
func (t times) sum() (all time.Duration) {
	for _, d := range t {
		all += d
	}
	return all
}

func seconds(d time.Duration) report.Number { return report.Number(d.Seconds()) }

// each is the time for one of n.
func each(d time.Duration, n int) report.Number { return seconds(d) / report.Number(n) }

// anyOrder is 0 to n-1, the same way each time.
func anyOrder(n int, seed uint64) []uint32 {
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// leastMessages is how many are measured at least: a few sessions have several.
var leastMessages = 100_000 // tests have less time

// mostMessages is how many are measured at most, of either kind.
const mostMessages = 200_000

// A talk is messages through sessions chosen at random, each in turn with one through
// the session that is the hot one of the same sockets.
type talk struct {
	message   func(i int) (time.Duration, error)
	cold, hot times
	ratios    report.Sample
}

// converse passes messages through all sessions, in random order. It reports its progress to
// progress.
func converse(n int, message func(i int) (time.Duration, error), progress func(done, all int)) (*Message, error) {
	t := &talk{message: message}
	rounds := (leastMessages + n - 1) / n
	for round := range rounds {
		for at, i := range anyOrder(n, uint64(round)) {
			progress(round*n+at, rounds*n)
			if err := t.one(int(i)); err != nil {
				return nil, err
			}
		}
	}
	return &Message{
		P50: t.cold.at(0.5), P99: t.cold.at(0.99), HotP50: t.hot.at(0.5), HotP99: t.hot.at(0.99),
		Ratio: report.Number(t.ratios.Median()), Messages: len(t.cold),
	}, nil
}

// one passes a message through session i, and measures it unless there are enough.
func (t *talk) one(i int) error {
	if len(t.cold) == mostMessages {
		_, err := t.message(i)
		return err
	}
	cold, hot, err := t.pair(i, i%shared)
	if err != nil {
		return err
	}
	t.cold, t.hot = append(t.cold, cold), append(t.hot, hot)
	t.ratios = append(t.ratios, float64(cold)/float64(hot))
	return nil
}

// pair passes a message through each; which is first alternates.
func (t *talk) pair(cold, hot int) (ofCold, ofHot time.Duration, err error) {
	first, second := cold, hot
	swapped := len(t.cold)%2 == 1
	if swapped {
		first, second = hot, cold
	}
	if ofCold, err = t.message(first); err != nil {
		return 0, 0, err
	}
	if ofHot, err = t.message(second); swapped {
		ofCold, ofHot = ofHot, ofCold
	}
	return ofCold, ofHot, err
}

// eachOf is how long f takes for one of them.
func eachOf(order []uint32, f func(i uint32)) report.Number {
	begun := time.Now()
	for _, i := range order {
		f(i)
	}
	return each(time.Since(begun), len(order))
}
