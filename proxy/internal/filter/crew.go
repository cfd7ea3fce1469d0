package filter

import (
	"slices"
	"sync"
)

// A crew is goroutines that work on what waits, in order. There are at most a given number of them, and only while
// something waits.
type crew[T any] struct {
	run        func() // of each goroutine, until take has nothing for it
	mu         sync.Mutex
	waiting    []T // from first on
	first      int
	running    int // goroutines
	goroutines sync.WaitGroup
}

// add adds v, unless as many as most wait already, and starts another goroutine if fewer than workers run.
func (c *crew[T]) add(v T, most, workers int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting)-c.first >= most {
		return false
	}
	c.waiting = append(c.waiting, v)
	if c.running < max(workers, 1) {
		c.running++
		c.goroutines.Go(c.run)
	}
	return true
}

// take takes what has waited longest. If nothing waits, the goroutine must end.
func (c *crew[T]) take() (v T, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.running--
		return v, false
	}
	v, c.waiting[c.first] = c.waiting[c.first], v
	if c.first++; 2*c.first >= len(c.waiting) {
		c.waiting, c.first = slices.Delete(c.waiting, 0, c.first), 0
	}
	return v, true
}

func (c *crew[T]) length() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) - c.first
}
