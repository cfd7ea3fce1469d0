package health

import "sync"

// untoldMax is how many transitions may wait for who tells them; of more than that the
// latest are not told.
const untoldMax = 1 << 16

// A voice tells of transitions, on a goroutine of its own: whoever is told may write
// to somebody who does not read.
type voice struct {
	tell func(Transition)
	wake chan struct{}

	mu     sync.Mutex
	untold []Transition
	lost   int // of those that were to be told
}

// say has a transition told. It waits for nobody.
func (v *voice) say(t Transition) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.untold) == untoldMax {
		v.lost++
		return
	}
	t.Suppressed += v.lost
	v.lost = 0
	v.untold = append(v.untold, t)
	nudge(v.wake)
}

// run tells until stop, and then what is left.
func (v *voice) run(stop chan struct{}) {
	for {
		select {
		case <-stop:
			v.tellAll()
			return
		case <-v.wake:
			v.tellAll()
		}
	}
}

func (v *voice) tellAll() {
	v.mu.Lock()
	untold := v.untold
	v.untold = nil
	v.mu.Unlock()
	for _, t := range untold {
		v.tell(t)
	}
}
