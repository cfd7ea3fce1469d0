package admin

// A Filter is a module that is asked about the clients of a listener, see docs/filters.md. Its counts go on
// when another file takes its name.
type Filter struct {
	Name string `json:"name"` // of its key name, or of its file
	File string `json:"file"` // of the module
	// Engine is compiler, or interpreter: where memory may not be made executable, and until a large module has
	// been compiled.
	Engine string `json:"engine"`
	// Calls is how often it was asked, and TimeUs the time of all calls, in microseconds.
	Calls  int64 `json:"calls"`
	TimeUs int64 `json:"time_us"`
	// Answers are by answer: allow, deny, route, next, more, overload. A call that has failed is counted by the
	// answer that on_error has made of it, and in Failures by reason: trap, timeout, memory, stack, exit, start,
	// answer.
	Answers  map[string]int64 `json:"answers,omitempty"`
	Failures map[string]int64 `json:"failures,omitempty"`
	// FailedLastMinute is those of about the last minute.
	FailedLastMinute int64 `json:"failed_last_minute"`
	Tagged           int64 `json:"tagged"` // clients that have got tags
	// Logged and Unlogged are its lines that were logged, and those beyond the bound.
	Logged   int64 `json:"logged"`
	Unlogged int64 `json:"unlogged"`
	// Waiting is the clients that wait to be asked about now; Running and Idle are instances.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	Idle    int `json:"idle"`
	// Times are the calls by their times: the nth of less than 2^n microseconds, the last of all others.
	Times []int64 `json:"times"`
}
