package monitor

import "time"

// recent counts the events of about the last minute, by tenths of a minute.
type recent struct {
	slots [6]int64
	at    int64 // the tenth that the last slot is of
}

const slotTime = int64(time.Minute) / 6

// add counts n at a time.
func (r *recent) add(now, n int64) {
	r.move(now)
	r.slots[r.at%int64(len(r.slots))] += n
}

// sum returns how many there were.
func (r *recent) sum(now int64) (n int64) {
	r.move(now)
	for _, k := range r.slots {
		n += k
	}
	return n
}

// move has the slots whose time is over be empty.
func (r *recent) move(now int64) {
	at := now / slotTime
	for range min(max(at-r.at, 0), int64(len(r.slots))) {
		r.at++
		r.slots[r.at%int64(len(r.slots))] = 0
	}
	r.at = max(at, r.at)
}
