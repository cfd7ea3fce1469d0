package health

// A timed is something that has to be done at a time, and is asked to do it by a
// Keeper's goroutine, once for each time that it was put down for. It has to look
// itself whether it still is to be done.
type timed interface{ turn(now int64) }

// never is a time that does not come.
const never = 1<<63 - 1

// awake is a time before which nothing is due, so that nobody wakes who is.
const awake = -1 << 63

// due is when what is to be called.
type due struct {
	at   int64
	what timed
}

// dueHeap has the earliest first.
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
