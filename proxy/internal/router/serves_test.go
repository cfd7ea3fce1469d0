package router_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestNobodyIsRefusedWhileOneServes: with the defaults no client is lost in rolling restarts, or
// with pairs of which one is away and then the other.
func TestNobodyIsRefusedWhileOneServes(t *testing.T) {
	for name, c := range map[string]struct {
		servers int
		course  func(w *world)
	}{
		"one of two is away for 4s, back for 6s, then the other dies": {2, func(w *world) {
			w.come(100, 3*time.Second)
			w.turn(0, refusing)
			w.come(100, 4*time.Second)
			w.turn(0, serving)
			w.come(100, 6*time.Second)
			w.turn(1, refusing)
			w.come(100, 10*time.Second)
		}},
		"three are restarted one after the other": {3, func(w *world) {
			for range 3 {
				for i := range 3 {
					w.turn(i, refusing)
					w.come(100, 4*time.Second)
					w.turn(i, serving)
					w.come(100, 2*time.Second)
				}
			}
		}},
		"a single one restarts within 2s": {1, func(w *world) {
			for range 4 {
				w.come(300, 5*time.Second)
				w.turn(0, refusing)
				w.come(300, 2*time.Second)
				w.turn(0, serving)
			}
			w.come(300, 5*time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				synctest.Test(t, func(t *testing.T) {
					of := defaults(c.servers)
					of.seed = seed + 1
					w := newWorld(t, of)
					c.course(w)
					if w.end(); len(w.refused) > 0 {
						t.Error(w.report())
					}
				})
			}
		})
	}
}

// TestQueueIsServedWhenOneIsBack: clients that wait for room at the only server that serves are served
// by another one as soon as it is back, though it is ejected, or down by its checks, for long.
func TestQueueIsServedWhenOneIsBack(t *testing.T) {
	for _, checked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			of := defaults(2)
			of.limits[1] = 1
			if of.check.Interval, of.check.FastInterval = time.Minute, time.Minute; !checked {
				of.check = nil
			} else {
				of.outlierless, of.check.Fall = true, 1
			}
			w := newWorld(t, of)
			if w.turn(0, refusing); checked {
				w.servers[0].SetHealthy(false)
			}
			w.come(300, 3*time.Second)
			waiting := w.upstream.Waiting()
			w.turn(0, serving)
			time.Sleep(2*50*time.Millisecond + 10*roundTrip)
			if left := w.upstream.Waiting(); waiting < 100 || left != 0 {
				t.Errorf("checked %v: %d have waited, and %d do when it is back", checked, waiting, left)
			}
			if w.end(); len(w.refused) > 0 || w.longest > 4*time.Second {
				t.Error(w.report())
			}
			if checked {
				w.servers[0].SetHealthy(true)
			}
		})
	}
}

// TestNobodyHoldsAPlaceForTheDead: clients that wait while all endpoints refuse connections have no place
// under the upstream's bound, so that one of them finds out when an endpoint is back, and all are served.
func TestNobodyHoldsAPlaceForTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := defaults(2)
		of.check, of.breaker = nil, &health.BreakerConfig{Connections: 3}
		w := newWorld(t, of)
		w.come(620, 2*time.Second) // which is more than three at a time can serve
		waiting := w.upstream.Waiting()
		w.turn(0, refusing)
		w.turn(1, refusing)
		w.come(8, 2*time.Second)
		held := w.upstream.Waiting()
		w.turn(0, serving)
		served := w.servedSoFar()
		time.Sleep(2*50*time.Millisecond + 10*roundTrip)
		if served = w.servedSoFar() - served; waiting < 100 || held < 100 || served < 10 {
			t.Errorf("%d have waited for room, %d wait when it is gone, and %d served within 110 ms when one is back", waiting, held, served)
		}
		if w.end(); len(w.refused) > 0 {
			t.Error(w.report())
		}
	})
}
