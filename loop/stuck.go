package loop

import (
	"bytes"
	"runtime"
	"time"
)

const (
	stuckTime  = int64(time.Second)     // that a handler runs until it is reported
	stuckCheck = 250 * time.Millisecond // between two looks at the handlers
)

// watch reports handlers that do not come back, until the server does not serve any more.
func (s *Server) watch(one *serve) {
	reported := make([]int64, len(one.parts)) // when the handler has begun
	tick := time.NewTicker(stuckCheck)
	defer tick.Stop()
	for {
		select {
		case <-one.over:
			return
		case <-tick.C:
		}
		for i, part := range one.parts {
			began, now := part.began.Load(), monotonic()
			if began != 0 && began != reported[i] && now-began >= stuckTime {
				reported[i] = began
				s.Stuck(time.Duration(now-began), stacksAtWork())
			}
		}
	}
}

// maxStacks bounds the text of all goroutines' stacks.
const maxStacks = 64 << 20

// stacksAtWork returns the stacks of all goroutines that are in a handler and do not wait as coroutines.
func stacksAtWork() (found []byte) {
	all := make([]byte, min(1<<20+runtime.NumGoroutine()<<11, maxStacks))
	n := runtime.Stack(all, true)
	for ; n == len(all) && n < maxStacks; n = runtime.Stack(all, true) {
		all = make([]byte, 4*len(all))
	}
	for one := range bytes.SplitSeq(all[:n], []byte("\n\n")) {
		head, rest, _ := bytes.Cut(one, []byte("\n"))
		if bytes.Contains(head, []byte("[coroutine")) {
			continue
		}
		if bytes.Contains(rest, []byte("loop.(*serving).run(")) || bytes.Contains(rest, []byte("loop.(*Conn).run(")) {
			found = append(append(found, one...), '\n')
		}
	}
	return found
}
