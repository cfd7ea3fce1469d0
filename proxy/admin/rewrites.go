package admin

// Rewrites are a listener's sessions of which the bytes of one direction are rewritten. These are copied: that direction is not zero-copy.
type Rewrites struct {
	Sessions  int64            `json:"sessions"`         // that have begun
	OffLoop   int64            `json:"off_loop"`         // clients refused, because their sessions would have had to run on goroutines
	Encrypted int64            `json:"encrypted"`        // sessions that were reset, because TLS, SSH or GSSAPI encryption began in the bytes to be masked
	Unframed  int64            `json:"unframed"`         // sessions that were reset, because the bytes to be masked were not of the framing
	Bytes     int64            `json:"bytes"`            // that were rewritten, changed or not
	Masked    map[string]int64 `json:"masked,omitempty"` // matches by kind: token, card, email, pattern
	Late      int64            `json:"late_bytes"`       // that had gone on as they were when those came that they would have been masked with
	BytesOut  int64            `json:"bytes_out"`        // that have gone on: a module may have made more or less of those that came

	Calls    int64            `json:"calls,omitempty"`    // of modules, each about a chunk of a session
	TimeUs   int64            `json:"time_us,omitempty"`  // of those calls, together
	Reset    map[string]int64 `json:"reset,omitempty"`    // sessions that were reset because of their module, by reason: trap, timeout, memory, stack, exit, start, answer, buffer, overload, denied
	Passed   map[string]int64 `json:"passed,omitempty"`   // sessions whose bytes have gone on as they came, because their module had failed (on_error: pass), by reason
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
