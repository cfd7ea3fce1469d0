package health

// A timed is an action that is due at a time. A Scheduler's goroutine calls expire once for
// each time that was set with at. expire must check whether the action is still due.
type timed interface{ expire(now int64) }

// never is a time that does not come.
const never = 1<<63 - 1

// awake is a time before which nothing is due, so that no wake is sent to a running goroutine.
const awake = -1 << 63

// due is an action and its time.
type due struct {
	at   int64
	what timed
}

// dueHeap is a heap, ordered by time.
type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = due{}
	*h = (*h)[:last]
	return x
}
