package million

import (
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/pauses"
	"github.com/penstock/penstock/bench/report"
)

// collectTimes is how often garbage is collected.
const collectTimes = 10

// collections are their times.
type collections struct{ walls, pauses times }

// collectAgain collects garbage, one collection after the other.
func collectAgain() (c collections) {
	meter := pauses.New()
	for range collectTimes {
		begun := time.Now()
		runtime.GC()
		c.walls = append(c.walls, time.Since(begun))
		c.pauses = append(c.pauses, meter.Since().Longest)
	}
	return c
}

// collect collects garbage while no message passes, and while messages pass through sessions chosen at random.
func collect(n int, message func(i int) (time.Duration, error)) (*Collect, error) {
	resting := slices.Max(collectAgain().pauses)
	cpu, done := collectorCPU(), make(chan collections, 1)
	go func() { done <- collectAgain() }()
	r := rand.New(rand.NewPCG(1, uint64(n)))
	var took times
	for {
		t, err := message(r.IntN(n))
		if err != nil {
			<-done
			return nil, err
		}
		took = append(took, t)
		select {
		case c := <-done:
			return &Collect{
				Times: collectTimes, Wall: c.walls.at(0.5), CPU: report.Number(collectorCPU()-cpu) / collectTimes,
				Pause: seconds(slices.Max(c.pauses)), UsualPause: c.pauses.at(0.5), RestPause: seconds(resting),
				MessageP99: took.at(0.99), Longest: seconds(slices.Max(took)),
			}, nil
		default:
		}
	}
}

// collectorCPU is the CPU time of collections, in seconds, by the runtime's estimate.
func collectorCPU() float64 {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64()
}
