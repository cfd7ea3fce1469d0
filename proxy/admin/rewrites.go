package admin

// Rewrites are a listener's sessions of which the bytes of one direction are rewritten. These are copied: that direction is not zero-copy.
type Rewrites struct {
	// Rewritten sessions: the bytes of one direction are rewritten. Like the other series of rewriting it is left out where there are none.
	Sessions int64 `json:"sessions" metric:"sessions_total"`
	// Clients that were refused, because their sessions were to be rewritten and could not be: they would have had to run on goroutines.
	OffLoop   int64 `json:"off_loop" metric:"refused_total"`
	Encrypted int64 `json:"encrypted"` // sessions that were reset, because TLS, SSH or GSSAPI encryption began in the bytes to be masked
	Unframed  int64 `json:"unframed"`  // sessions that were reset, because the bytes to be masked were not of the framing
	// Rewritten bytes, changed or not.
	Bytes int64 `json:"bytes" metric:"bytes_total"`
	// Matches that were masked. kind is token, card, email or pattern.
	Masked map[string]int64 `json:"masked,omitempty" metric:"masked_total,kind"`
	// Unmasked bytes, that had gone on as they were when those came that they would have been masked with (rewrite.hold).
	Late     int64 `json:"late_bytes" metric:"late_bytes_total"`
	BytesOut int64 `json:"bytes_out"` // that have gone on: a module may have made more or less of those that came

	Calls  int64            `json:"calls,omitempty"`   // of modules, each about a chunk of a session
	TimeUs int64            `json:"time_us,omitempty"` // of those calls, together
	Reset  map[string]int64 `json:"reset,omitempty"`   // sessions that were reset because of their module, by reason: trap, timeout, memory, stack, exit, start, answer, buffer, overload, denied
	// Unchanged sessions, whose bytes have gone on as they came, because their module had failed (rewrite.on_error: pass). Reasons are those of
	// penstock_rewrite_reset_total. It is left out where there are no modules.
	Passed   map[string]int64 `json:"passed,omitempty" metric:"passed_total,reason"`
	Logged   int64            `json:"logged,omitempty"`   // lines that modules have logged
	Unlogged int64            `json:"unlogged,omitempty"` // lines beyond those that are logged in a second
	Modules  []RewriteModule  `json:"modules,omitempty"`  // that new sessions are rewritten by
}

// A RewriteModule is a module of WebAssembly that rewrites sessions.
type RewriteModule struct {
	File      string `json:"file"`      // of the module
	Direction string `json:"direction"` // up or down
	Engine    string `json:"engine"`    // compiler or interpreter
	Instances int64  `json:"instances"` // that sessions have
}
