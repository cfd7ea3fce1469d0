package router_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"pgregory.net/rapid"
)

// TestQueueModel: the client that has waited longest is woken first, one at a time. Room that
// comes while a client is being woken is not forgotten. A client that leaves costs no other a
// turn. A client that comes back has its place again, behind those that came at the same time.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q router.Queue
		var order []*router.Waiter // as they came
		since := map[*router.Waiter]int64{}
		var gone []*router.Waiter
		now := int64(1)
		asked := map[*router.Waiter]bool{}
		room := 0
		join := func(t *rapid.T) {
			w := new(router.Waiter)
			most := int64(rapid.IntRange(1, 5).Draw(t, "most"))
			now += int64(rapid.IntRange(0, 1).Draw(t, "time"))
			ok := q.Join(w, worker.WakerFunc(func() { asked[w] = true }), most, now)
			if want := int64(len(order)) < most; ok != want {
				t.Fatalf("joined: %v with %d of %d", ok, len(order), most)
			}
			if ok {
				order, since[w] = append(order, w), now
			}
		}
		back := func(t *rapid.T) {
			if len(gone) == 0 {
				return
			}
			n := rapid.IntRange(0, len(gone)-1).Draw(t, "who")
			w := gone[n]
			gone = slices.Delete(gone, n, n+1)
			at := slices.IndexFunc(order, func(o *router.Waiter) bool { return since[o] > since[w] })
			if at < 0 {
				at = len(order)
			}
			order = slices.Insert(order, at, w)
			if first := q.Rejoin(w, worker.WakerFunc(func() { asked[w] = true }), since[w]); first != (at == 0) {
				t.Fatalf("that it is the first is %v, want place %d", first, at)
			}
		}
		leave := func(t *rapid.T) {
			if len(order) == 0 {
				return
			}
			i := rapid.IntRange(0, len(order)-1).Draw(t, "who")
			q.Leave(order[i])
			q.Leave(order[i]) // again does nothing
			delete(asked, order[i])
			gone = append(gone, order[i])
			order = slices.Delete(order, i, i+1)
		}
		look := func(t *rapid.T) {
			for w := range asked {
				delete(asked, w)
				if !q.Turn(w) {
					t.Fatal("it was woken, and it is not its turn")
				}
				if w != order[0] && since[order[0]] >= since[w] {
					t.Fatal("it is the turn of one that came later")
				}
				for {
					if room > 0 {
						room--
						q.Leave(w)
						order = slices.DeleteFunc(order, func(o *router.Waiter) bool { return o == w })
						break
					}
					if !q.Stay(w) {
						break
					}
				}
				break
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": join, "leave": leave, "back": back, "look": look,
			"room": func(*rapid.T) {
				room++
				q.Next()
			},
			"": func(t *rapid.T) {
				if q.Waiting() != len(order) {
					t.Fatalf("%d wait, want %d", q.Waiting(), len(order))
				}
				if len(asked) > 1 {
					t.Fatal("two are woken at once")
				}
			},
		})
		for range len(order) + 1 { // with room for all, none is left
			room++
			q.Next()
			look(t)
		}
		for len(asked) > 0 {
			look(t)
		}
		if len(order) != 0 && room > 0 {
			t.Fatalf("%d wait though there is room for %d", len(order), room)
		}
	})
}

// TestQueueAtOnce: places are given to waiters by many goroutines, and none is lost.
func TestQueueAtOnce(t *testing.T) {
	var q router.Queue
	var places atomic.Int64
	const clients = 200
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var w router.Waiter
			woken := make(chan struct{}, 1)
			q.Join(&w, worker.WakerFunc(func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			}), clients, 1)
			q.Next()
			for {
				if q.Turn(&w) {
					for {
						if n := places.Load(); n > 0 && places.CompareAndSwap(n, n-1) {
							q.Leave(&w)
							return
						}
						if !q.Stay(&w) {
							break
						}
					}
				}
				<-woken
			}
		})
	}
	for range clients {
		wg.Go(func() {
			places.Add(1)
			q.Next()
		})
	}
	wg.Wait()
	if q.Waiting() != 0 || places.Load() != 0 {
		t.Errorf("%d wait, %d places", q.Waiting(), places.Load())
	}
}
