package main

// A trigger calls a function in its own goroutine, since the function may block on a slow
// reader. Requests are coalesced.
type trigger struct {
	wanted chan struct{} // holds at most one request
}

// newTrigger calls grant for each request.
func newTrigger(grant func()) *trigger {
	w := &trigger{wanted: make(chan struct{}, 1)}
	go func() {
		for range w.wanted {
			grant()
		}
	}()
	return w
}

// fire makes a request, unless one is pending that has not been started.
func (w *trigger) fire() {
	select {
	case w.wanted <- struct{}{}:
	default:
	}
}

// end accepts no more requests; a pending one is still served.
func (w *trigger) end() {
	close(w.wanted)
}
