package admin

// Summary is the counters and the resources of a process. Sessions that still run are in it
// with the bytes that they have moved so far. Its JSON form is part of the interface of the
// program: it is a part of the [Status], and the last line on standard output.
type Summary struct {
	Connections Connections      `json:"connections" metric:""`
	RefusedBy   map[string]int64 `json:"refused_by,omitempty"` // clients, by reason; only reasons that occurred
	Bytes       Bytes            `json:"bytes"`
	// Data that had arrived and that the other side did not take, in bytes.
	Lost int64 `json:"lost" metric:"bytes_lost_total"`
	Lane *Lane `json:"lane,omitempty" metric:"lane_"` // nil: no listener has asked for it
	// Departures from splicing. Reasons that did not occur are left out.
	Fallbacks map[string]int64 `json:"fallbacks" metric:"splice_fallbacks_total,reason"`
	Pipes     Pipes            `json:"pipes" metric:"pipes_"`
	Pauses    Pauses           `json:"pauses"`
	// Times that accepting failed, for lack of descriptors or memory as a rule, and was tried again later.
	AcceptPauses int64  `json:"accept_pauses" metric:"accept_pauses_total"`
	Goroutines   int64  `json:"goroutines"` // of the whole process, now
	Engine       Engine `json:"engine" metric:""`
	Arena        Arena  `json:"arena" metric:"arena_"`
	// SessionLog is the lines of the session log; left out: there was none so far.
	SessionLog *SessionLog `json:"session_log,omitempty" metric:"session_log_"`
	// CPUs are those on which the process may run now, such as 0-3; "": unknown.
	CPUs  string `json:"cpus"`
	Loops []Loop `json:"loops"` // event loops
}

// SessionLog is counts of lines, ever. Those written and those dropped are together all that were to be
// written, but for some that are under way.
type SessionLog struct {
	// Written lines of the session log.
	Lines int64 `json:"lines" metric:"lines_total"`
	// Dropped is by reason: ring, that of a loop was full; destination, it took no more; rate, there
	// were more than per_second. Only reasons that occurred.
	Dropped map[string]int64 `json:"dropped"`
	// Sessions without a line, because of only, slower_than or share.
	Filtered int64 `json:"filtered" metric:"filtered_total"`
	// DroppedLastMinute are lines that were lost within about the last minute, but for reason rate. Of a status.
	DroppedLastMinute int64 `json:"dropped_last_minute,omitempty"`
	// Error is the last error of the destination, for a minute. Of a status.
	Error string `json:"error,omitempty"`
}

// Pipes are counts of pipes.
type Pipes struct {
	// Pipes that were opened, ever.
	Made int64 `json:"made" metric:"made_total"`
	// Leases that were served by an idle pipe.
	Reused int64 `json:"reused" metric:"reused_total"`
	Leased int64 `json:"leased"` // now
	Idle   int64 `json:"idle"`   // now

	TooSmall int64 `json:"too_small"` // ever made smaller than the kernel's default, and not used: the user's quota was spent
	Refused  int64 `json:"refused"`   // ever not made, or not enlarged, by the kernel
	// Leases that were denied because the budget was spent.
	Denied int64 `json:"denied" metric:"denied_total"`

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
	// Turns of a session that ended with more to be moved, for the sake of other sessions.
	TurnsCut int64 `json:"turns_cut" metric:"turns_cut_total"`
}

// Arena is the memory in which loops keep the bytes that slow destinations have not taken.
type Arena struct {
	// Memory in which loops keep the bytes that slow destinations have not taken.
	Size int64 `json:"size" metric:"size_bytes"`
	// The part that loops have now, their read buffers included.
	Used int64 `json:"used" metric:"used_bytes"`
	// The most that they have had.
	Peak     int64 `json:"peak" metric:"peak_bytes"`
	Residues int64 `json:"residues"` // ever kept in it, one for each time that a destination blocked
	Refused  int64 `json:"refused"`  // those for which it had no room: they were kept on the heap

	Pages string `json:"pages"` // its kind of pages, in words
	// The part in huge pages, when it was made.
	Huge   int64 `json:"huge" metric:"huge_bytes"`
	Locked bool  `json:"locked"`          // it is not swapped out
	Nodes  []int `json:"nodes,omitempty"` // NUMA nodes to which it is bound, by loop; left out: to none
	// Fallback is why the pages are no better, and Unbound why it is bound to no node on a
	// machine with several; left out: they are as they should be.
	Fallback string `json:"fallback,omitempty"`
	Unbound  string `json:"unbound,omitempty"`
}

// A Loop is the counters and the resources of one event loop.
type Loop struct {
	Index int `json:"index"` // from 0, as in [Session]
	// Clients that an event loop serves now.
	Active int64 `json:"active" metric:"connections"`
	// Clients that it has served.
	Accepted int64 `json:"accepted" metric:"accepted_total"`
	// Clients that it has accepted and given to other loops.
	HandedOver int64 `json:"handed_over" metric:"handed_over_total"`
	// Rounds of waiting and serving.
	Turns int64 `json:"turns" metric:"turns_total"`
	// Times that it has slept until something happened.
	Blocked      int64 `json:"blocked" metric:"blocked_total"`
	Gathers      int64 `json:"gathers"`        // times that it let bytes gather
	BusyPollHits int64 `json:"busy_poll_hits"` // times that busy polling spared it to sleep
	Batches      int64 `json:"batches"`        // times that it took to SCHED_BATCH
	BatchRefused int64 `json:"batch_refused"`  // threads that could not be given that
	LagP99Us     int64 `json:"lag_p99_us"`     // 99 % of the turns took at most this long, in microseconds
	LagMaxUs     int64 `json:"lag_max_us"`     // the longest turn
	// Long turns, of 1,024 microseconds and more.
	LongTurns int64 `json:"long_turns" metric:"long_turns_total"`
	Overruns  int64 `json:"overruns"` // those that used 1,000 µs of CPU time, if that is measured

	TimerLateP99Us int64 `json:"timer_late_p99_us"` // 99 % of the timers fired at most this late, in microseconds
	TimerLateMaxUs int64 `json:"timer_late_max_us"` // the latest timer

	// Lag counts the turns by how long they took, and TimerLate the ticks at which timers fired by how late
	// that was: [i] those below 2^i microseconds, and not below half of that. Zeros at the end are left out.
	// The difference of two statuses is the time between them, see [Within].
	Lag       []int64 `json:"lag_counts"`
	TimerLate []int64 `json:"timer_late_counts"`
}
