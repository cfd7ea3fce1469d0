package admin

// CounterNames are the names of the counters of a [Status].
var CounterNames = []string{
	"accept_pauses", "accepted", "failures", "fallbacks", "held", "hellos_missing", "last_resort", "lost", "queued", "refused", "retries", "transitions",
}
