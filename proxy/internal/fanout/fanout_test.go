package fanout_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/penstock/penstock/proxy/internal/fanout"
)

// A rig is a queue whose sends wait until they are let go.
type rig struct {
	fanout.Queue
	begun chan uint64 // the source of each send
	free  chan struct{}

	mu         sync.Mutex
	ended      int
	overloaded []uint64 // sources
	all        sync.WaitGroup
}

func newRig() *rig { return &rig{begun: make(chan uint64, 1<<16), free: make(chan struct{})} }

func (r *rig) add(source uint64, targets int) {
	r.all.Add(1)
	r.Add(&fanout.Job{
		Source: source, Targets: func() int { return targets },
		Send: func(int) { r.begun <- source; <-r.free },
		Done: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.ended++; errors.Is(err, fanout.ErrOverload) {
				r.overloaded = append(r.overloaded, source)
			}
			r.all.Done()
		},
	}, fanout.MaxJobs)
}

// TestBounds: however many jobs come, so many have a place, and so many sends run. The others are refused at once, and each job ends once.
func TestBounds(t *testing.T) {
	r := newRig()
	const came = 1000
	for range came {
		r.add(1, 60)
	}
	for range fanout.MaxSends {
		<-r.begun
	}
	r.mu.Lock()
	if len(r.overloaded) != came-fanout.MaxJobs || r.ended != len(r.overloaded) || len(r.begun) != 0 {
		t.Errorf("%d are refused, %d have ended, and %d more sends run", len(r.overloaded), r.ended, len(r.begun))
	}
	r.mu.Unlock()
	close(r.free)
	r.all.Wait()
	if n := len(r.begun) + fanout.MaxSends; r.ended != came || n != 60*fanout.MaxJobs {
		t.Errorf("%d ended after %d sends", r.ended, n)
	}
	r.add(1, 0)
	r.add(1, 1)
	r.all.Wait()
	if r.ended != came+2 || len(r.overloaded) != came-fanout.MaxJobs {
		t.Errorf("afterwards: %d ended, %d refused", r.ended, len(r.overloaded))
	}
}

// TestFairness: a source that comes late, while another one has filled the queue, gets a place, and every second send.
func TestFairness(t *testing.T) {
	r := newRig()
	for range 2 * fanout.MaxJobs {
		r.add(1, 60)
	}
	for range fanout.MaxSends {
		<-r.begun
	}
	r.add(2, 10)
	for range 20 {
		r.free <- struct{}{}
	}
	late := 0
	for range 20 {
		if <-r.begun == 2 {
			late++
		}
	}
	if late != 10 {
		t.Errorf("%d of 20 sends are of the source that came late, want 10", late)
	}
	close(r.free)
	r.all.Wait()
	for _, source := range r.overloaded {
		if source != 1 {
			t.Errorf("source %d is refused", source)
		}
	}
	if len(r.overloaded) != fanout.MaxJobs+1 {
		t.Errorf("%d jobs are refused", len(r.overloaded))
	}
}

// TestSourcesShare: of many sources that fill the queue each keeps a place, and one more gets none.
func TestSourcesShare(t *testing.T) {
	r := newRig()
	for range 2 {
		for source := range uint64(fanout.MaxJobs) {
			r.add(source, 1)
		}
	}
	r.add(fanout.MaxJobs, 1)
	if n := len(r.overloaded); n != fanout.MaxJobs+1 {
		t.Errorf("%d are refused", n)
	}
	close(r.free)
	r.all.Wait()
}

// TestAJobThatMakesRoomIsNotSent: while all earlier jobs of its source are being sent, the newest one has the next turn, until it
// has to go.
func TestAJobThatMakesRoomIsNotSent(t *testing.T) {
	t.Parallel()

	r := newRig()
	for range fanout.MaxSends {
		r.add(1, 1)
		<-r.begun
	}
	for source := range uint64(fanout.MaxJobs - fanout.MaxSends + 1) {
		r.add(source+1, 1)
	}
	if !slices.Equal(r.overloaded, []uint64{1}) {
		t.Errorf("refused: %v, want [1]", r.overloaded)
	}
	close(r.free)
	r.all.Wait()
	if n := len(r.begun); n != fanout.MaxJobs-fanout.MaxSends {
		t.Errorf("%d more sends", n)
	}
}
