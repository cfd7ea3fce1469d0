package admin

import (
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/internal/admission"
)

// Times of a feed. The status is looked at once in feedTime, or more rarely if a look takes long: a tenth
// of the time at most is spent on it, unless there would be none for slowestFeed.
const (
	feedTime    = time.Second
	slowestFeed = 5 * time.Second
)

// streamRoom is how many events may wait for the client of a stream. One that is further behind is closed.
const streamRoom = 4

// errLeft is the error of a stream after the server has left.
var errLeft = fmt.Errorf("the process has left its address: %w", admission.ErrBusy)

// A feed looks at the status for all streams, as long as there is one, and sends them its changes.
type feed struct {
	look func() Status

	mu      sync.Mutex
	left    bool // for good
	streams map[*stream]bool
	scene   *scene        // nil: no stream is there
	stop    chan struct{} // closed when the last stream goes; nil: likewise
	looking sync.WaitGroup
}

// A stream receives the events of a feed.
type stream struct {
	events chan []byte   // closed never
	lost   chan struct{} // closed when no more events come
	begun  bool          // it has had the whole state
}

func newFeed(look func() Status) *feed {
	return &feed{look: look, streams: make(map[*stream]bool)}
}

// join adds a stream. The caller calls leave.
func (f *feed) join() (*stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left {
		return nil, errLeft
	}
	s := &stream{events: make(chan []byte, streamRoom), lost: make(chan struct{})}
	f.streams[s] = true
	if f.stop == nil {
		f.stop, f.scene = make(chan struct{}), newScene()
		stop := f.stop
		f.looking.Go(func() { f.run(stop) })
	} else if f.scene.id > 0 {
		s.begun = true
		s.events <- f.scene.whole()
	}
	return s, nil
}

// leave removes a stream.
func (f *feed) leave(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(s)
}

// remove removes a stream. The caller holds mu.
func (f *feed) remove(s *stream) {
	if !f.streams[s] {
		return
	}
	delete(f.streams, s)
	close(s.lost)
	if len(f.streams) == 0 {
		close(f.stop)
		f.stop, f.scene = nil, nil
	}
}

// end ends all streams for good. It does not wait for a look that is under way.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = true
	for s := range f.streams {
		f.remove(s)
	}
}

// run looks at the status until stop is closed.
func (f *feed) run(stop chan struct{}) {
	for {
		began := time.Now()
		st := f.look()
		f.spread(&st, began, stop)
		rest := min(max(10*time.Since(began), feedTime), slowestFeed) - time.Since(began)
		select {
		case <-time.After(rest):
		case <-stop:
			return
		}
	}
}

// spread sends the changes to all streams, and the whole state to new ones.
func (f *feed) spread(st *Status, at time.Time, stop chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop != stop {
		return
	}
	changes := f.scene.update(st, at)
	for s := range f.streams {
		event := changes
		if !s.begun {
			s.begun, event = true, f.scene.whole()
		}
		select {
		case s.events <- event:
		default:
			f.remove(s)
		}
	}
}
