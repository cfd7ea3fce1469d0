package million

import "github.com/penstock/penstock/bench/report"

// A Form is the owner of the sessions.
type Form string

// The forms.
const (
	// Loop is Penstock on a loop.
	Loop Form = "loop"
	// Goroutines are two for each session, each with a buffer of 32 KiB.
	Goroutines Form = "goroutines"
)

// Figures are the results of one process. Times are in seconds; one that this form does not
// have is null.
type Figures struct {
	// User memory of each session, while all rest.
	RssAnonBytes report.Number `json:"rss_anon_bytes_per_session"`
	HeapBytes    report.Number `json:"heap_bytes_per_session"`

	Message Message    `json:"message"`
	Collect Collect    `json:"collections"`
	Wheel   Wheel      `json:"timer_wheel"`
	Idle    IdleTimers `json:"idle_timers"`
	Table   Table      `json:"session_table"`
	Slots   Slots      `json:"arena"`
	Stuck   Stuck      `json:"stuck"`

	ElapsedSeconds report.Number `json:"elapsed_seconds"`
}

// Message is one of 1 KiB through a session, from the event to the end of the write.
type Message struct {
	// Of a session chosen at random.
	P50 report.Number `json:"p50_seconds"`
	P99 report.Number `json:"p99_seconds"`
	// Of one of few that are always the same, so that its data is in the caches. They are on
	// the same sockets and in turn with the others.
	HotP50 report.Number `json:"hot_p50_seconds"`
	HotP99 report.Number `json:"hot_p99_seconds"`
	// Ratio is the median of the first to the second, message by message.
	Ratio    report.Number `json:"ratio"`
	Messages int           `json:"messages"` // of either kind
}

// Collect is the cost of explicit garbage collections, one after the other, while messages go
// through sessions chosen at random.
type Collect struct {
	Times      int           `json:"times"`
	Wall       report.Number `json:"seconds"`               // of one, the median
	CPU        report.Number `json:"cpu_seconds"`           // of one, the mean
	Pause      report.Number `json:"longest_pause_seconds"` // the longest of all
	UsualPause report.Number `json:"usual_pause_seconds"`   // the median of each one's longest
	RestPause  report.Number `json:"resting_pause_seconds"` // the longest of as many while no message passes
	MessageP99 report.Number `json:"message_p99_seconds"`
	Longest    report.Number `json:"message_longest_seconds"`
}

// Wheel is the cost of one timer of so many, in random order, each due at a random time of an
// hour. The times of the loop's turns are processor time, here and below.
type Wheel struct {
	Arm    report.Number `json:"arm_seconds"`
	Move   report.Number `json:"move_seconds"`   // arm one that is armed
	Disarm report.Number `json:"disarm_seconds"` // and
	Expire report.Number `json:"expire_seconds"` // be called, spread over the shorter lists before
	Hot    report.Number `json:"hot_seconds"`    // move one and the same
	// Of the loop's turns in which they are called: those in which a longer list is
	// spread are the longest.
	Turn        report.Number `json:"turn_seconds"` // the median
	LongestTurn report.Number `json:"longest_turn_seconds"`
	// The same if all are due at one and the same time, in random order.
	Together     report.Number `json:"together_seconds"`              // of one
	TogetherTurn report.Number `json:"together_longest_turn_seconds"` // of the loop's
}

// IdleTimers are the cost of the idle timeouts of all sessions. Each has moved bytes since its
// timer was armed, so the timer is checked and armed again.
type IdleTimers struct {
	Session     report.Number `json:"seconds_per_session"`
	Turns       int           `json:"turns"`        // of the loop
	Turn        report.Number `json:"turn_seconds"` // the median
	LongestTurn report.Number `json:"longest_turn_seconds"`
}

// Table is the cost of finding one of two registrations for each session.
type Table struct {
	Find report.Number `json:"find_seconds"`
	Hot  report.Number `json:"hot_seconds"` // one and the same
}

// Slots is an arena with a slot of SlotBytes out for each session.
type Slots struct {
	SlotBytes int           `json:"slot_bytes"`
	Get       report.Number `json:"get_seconds"`
	PutGet    report.Number `json:"put_and_get_seconds"` // of one chosen at random
	Hot       report.Number `json:"hot_seconds"`         // of one and the same
}

// Stuck is every session with a destination that does not read, and a message of
// SlotBytes for it, which is in a slot of the arena.
type Stuck struct {
	HeapBytes report.Number `json:"heap_bytes_per_session"` // beside the slot
	Stash     report.Number `json:"stash_p50_seconds"`      // read, and put away
	Deliver   report.Number `json:"deliver_p50_seconds"`    // and write in the end
}

// numbers lists the numbers that may be unknown.
func (f *Figures) numbers() []*report.Number {
	return []*report.Number{
		&f.RssAnonBytes, &f.HeapBytes,
		&f.Message.P50, &f.Message.P99, &f.Message.HotP50, &f.Message.HotP99, &f.Message.Ratio,
		&f.Collect.Wall, &f.Collect.CPU, &f.Collect.Pause, &f.Collect.UsualPause, &f.Collect.RestPause, &f.Collect.MessageP99, &f.Collect.Longest,
		&f.Wheel.Arm, &f.Wheel.Move, &f.Wheel.Disarm, &f.Wheel.Expire, &f.Wheel.Hot, &f.Wheel.Turn, &f.Wheel.LongestTurn,
		&f.Wheel.Together, &f.Wheel.TogetherTurn,
		&f.Idle.Session, &f.Idle.Turn, &f.Idle.LongestTurn, &f.Table.Find, &f.Table.Hot,
		&f.Slots.Get, &f.Slots.PutGet, &f.Slots.Hot,
		&f.Stuck.HeapBytes, &f.Stuck.Stash, &f.Stuck.Deliver,
	}
}

// newFigures knows nothing yet.
func newFigures() *Figures {
	f := new(Figures)
	for _, x := range f.numbers() {
		*x = report.Unmeasured()
	}
	return f
}
