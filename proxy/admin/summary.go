package admin

// Summary is the counters and the resources of a process. Sessions that still run are in it
// with the bytes that they have moved so far. Its JSON form is part of the interface of the
// program: it is a part of the [Status], and the last line on standard output.
type Summary struct {
	Connections Connections      `json:"connections"`
	RefusedBy   map[string]int64 `json:"refused_by,omitempty"` // clients, by reason; only reasons that occurred
	Bytes       Bytes            `json:"bytes"`
	Lost        int64            `json:"lost"`           // bytes that had arrived, and that the other side did not take
	Lane        *Lane            `json:"lane,omitempty"` // nil: no listener has asked for it
	Fallbacks   map[string]int64 `json:"fallbacks"`      // by reason; only reasons that occurred
	Pipes       Pipes            `json:"pipes"`
	Pauses      Pauses           `json:"pauses"`
	// AcceptPauses is how often accepting failed, for want of descriptors or memory as
	// a rule, and was tried again later.
	AcceptPauses int64  `json:"accept_pauses"`
	Goroutines   int64  `json:"goroutines"` // of the whole process, now
	Engine       Engine `json:"engine"`
	Arena        Arena  `json:"arena"`
	// SessionLog is the lines of the session log; left out: there was none so far.
	SessionLog *SessionLog `json:"session_log,omitempty"`
	// CPUs are those on which the process may run now, such as 0-3; "": unknown.
	CPUs  string `json:"cpus"`
	Loops []Loop `json:"loops"` // event loops
}

// SessionLog is counts of lines, ever. Those written and those dropped are together all that were to be
// written, but for some that are under way.
type SessionLog struct {
	Lines int64 `json:"lines"` // written
	// Dropped is by reason: ring, that of a loop was full; destination, it took no more; rate, there
	// were more than per_second. Only reasons that occurred.
	Dropped  map[string]int64 `json:"dropped"`
	Filtered int64            `json:"filtered"` // sessions without a line, because of only, slower_than or share
	// DroppedLastMinute are lines that were lost within about the last minute, but for reason rate. Of a status.
	DroppedLastMinute int64 `json:"dropped_last_minute,omitempty"`
	// Error is the last error of the destination, for a minute. Of a status.
	Error string `json:"error,omitempty"`
}

// Pipes are counts of pipes.
type Pipes struct {
	Made   int64 `json:"made"`   // ever
	Reused int64 `json:"reused"` // leases that were served by an idle pipe
	Leased int64 `json:"leased"` // now
	Idle   int64 `json:"idle"`   // now

	TooSmall int64 `json:"too_small"` // ever made smaller than the kernel's default, and not used: the user's quota was spent
	Refused  int64 `json:"refused"`   // ever not made, or not enlarged, by the kernel
	Denied   int64 `json:"denied"`    // leases, ever, that the budget had no room for

	// UsedPages are the pages of these pipes, BudgetPages those that they may have now, and MostPages those that
	// they may ever have: after a refusal the budget is lower for a while.
	UsedPages   int64 `json:"used_pages"`
	BudgetPages int64 `json:"budget_pages"`
	MostPages   int64 `json:"most_pages"`
}

// Pauses are the times for which the collector stopped everything, since the
// program began.
type Pauses struct {
	GC      int64 `json:"gc"`        // how many
	GCMaxUs int64 `json:"gc_max_us"` // the longest, in microseconds, rounded up to the resolution of the runtime
}

// Engine is the decisions of sessions' directions, see [relay.DriverStats].
type Engine struct {
	Promotions   int64 `json:"promotions"`    // from copying to splicing
	Demotions    int64 `json:"demotions"`     // and back
	PipeGrowths  int64 `json:"pipe_growths"`  // larger pipes were asked for
	MarksRaised  int64 `json:"marks_raised"`  // low-water marks of sockets, for bulk
	MarksLowered int64 `json:"marks_lowered"` // because too little came
	TurnsCut     int64 `json:"turns_cut"`     // ended with more to be moved, for the sake of others
}

// Arena is the memory in which loops keep the bytes that slow destinations have not taken.
type Arena struct {
	Size     int64 `json:"size"`     // bytes
	Used     int64 `json:"used"`     // bytes that the loops have now, their read buffers included
	Peak     int64 `json:"peak"`     // the most that they have had
	Residues int64 `json:"residues"` // ever kept in it, one for each time that a destination blocked
	Refused  int64 `json:"refused"`  // those for which it had no room: they were kept on the heap

	Pages  string `json:"pages"`           // its kind of pages, in words
	Huge   int64  `json:"huge"`            // bytes of huge pages, when it was made
	Locked bool   `json:"locked"`          // it is not swapped out
	Nodes  []int  `json:"nodes,omitempty"` // NUMA nodes to which it is bound, by loop; left out: to none
	// Fallback is why the pages are no better, and Unbound why it is bound to no node on a
	// machine with several; left out: they are as they should be.
	Fallback string `json:"fallback,omitempty"`
	Unbound  string `json:"unbound,omitempty"`
}

// A Loop is the counters and the resources of one event loop.
type Loop struct {
	Index        int   `json:"index"`          // from 0, as in [Session]
	Active       int64 `json:"active"`         // clients now
	Accepted     int64 `json:"accepted"`       // clients ever
	HandedOver   int64 `json:"handed_over"`    // clients that it gave to other loops
	Turns        int64 `json:"turns"`          // ever
	Blocked      int64 `json:"blocked"`        // times that it slept until something happened
	Gathers      int64 `json:"gathers"`        // times that it let bytes gather
	BusyPollHits int64 `json:"busy_poll_hits"` // times that busy polling spared it to sleep
	Batches      int64 `json:"batches"`        // times that it took to SCHED_BATCH
	BatchRefused int64 `json:"batch_refused"`  // threads that could not be given that
	LagP99Us     int64 `json:"lag_p99_us"`     // 99 % of the turns took at most this long, in microseconds
	LagMaxUs     int64 `json:"lag_max_us"`     // the longest turn
	LongTurns    int64 `json:"long_turns"`     // those that took 1,024 µs or more
	Overruns     int64 `json:"overruns"`       // those that used 1,000 µs of CPU time, if that is measured

	TimerLateP99Us int64 `json:"timer_late_p99_us"` // 99 % of the timers fired at most this late, in microseconds
	TimerLateMaxUs int64 `json:"timer_late_max_us"` // the latest timer

	// Lag counts the turns by how long they took, and TimerLate the ticks at which timers fired by how late
	// that was: [i] those below 2^i microseconds, and not below half of that. Zeros at the end are left out.
	// The difference of two statuses is the time between them, see [Within].
	Lag       []int64 `json:"lag_counts"`
	TimerLate []int64 `json:"timer_late_counts"`
}
