package traffic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Script is a client's instruction to a sink for a connection: to receive all bytes, to send
// Give bytes of content, to end its own side, and to record the result.
type Script struct {
	Token uint64 `json:"token"` // for AppendTell; each connection has one of its own
	Seed  uint32 `json:"seed"`  // of the content given
	Give  int64  `json:"give"`  // bytes
	// After makes it give only when the client has ended its side; otherwise it
	// gives at once, and ends its side whether the client has or not.
	After bool `json:"after,omitempty"`
	// Slow makes it receive through a small buffer, and pause between reads.
	Slow bool `json:"slow,omitempty"`
	// Reset makes it reset the connection once it has given all and received a
	// byte, in place of ending its side. If the client ends without a byte, it
	// ends as well.
	Reset bool `json:"reset,omitempty"`
}

// AppendScript appends the line that asks a sink to follow s; the client's bytes after the
// line are its upload.
func AppendScript(b []byte, s Script) []byte { return appendObject(append(b, scriptWord...), s) }

// ParseScript reads the line that AppendScript wrote.
func ParseScript(line []byte) (s Script, err error) {
	object, found := bytes.CutPrefix(line, []byte(scriptWord))
	if !found {
		return s, fmt.Errorf("bench: %q is not a script", line)
	}
	if err := parseObject(object, &s); err != nil {
		return s, fmt.Errorf("bench: script: %w", err)
	}
	if s.Give < 0 {
		return s, fmt.Errorf("bench: a script that gives %d bytes", s.Give)
	}
	return s, nil
}

// State is how a scripted connection stands at the sink.
type State string

// The states of a scripted connection.
const (
	StateNone  State = "none"  // the sink has not seen its script
	StateOpen  State = "open"  // at least one side has not ended
	StateEnded State = "ended" // both sides have ended in order
	StateReset State = "reset" // the client's side reset it
	StateAbort State = "abort" // the sink reset it, as the script says
)

// Report is a sink's record of a scripted connection.
type Report struct {
	State    State  `json:"state"`
	Received int64  `json:"received"` // bytes of upload
	Sum      []byte `json:"sum"`      // their SHA-256, 32 bytes
	Sent     int64  `json:"sent"`     // bytes of content
}

// AppendReport appends a report as a line.
func AppendReport(b []byte, r Report) []byte { return appendObject(b, r) }

// ParseReport reads the line that AppendReport wrote.
func ParseReport(line []byte) (r Report, err error) {
	if err := parseObject(line, &r); err != nil {
		return r, fmt.Errorf("bench: report: %w", err)
	}
	return r, nil
}

// appendObject appends a line of JSON.
func appendObject(b []byte, object any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		panic("bench: " + err.Error()) // numbers, booleans and strings can all be marshaled
	}
	return append(append(b, text...), '\n')
}

// parseObject reads a line that holds one object and nothing else.
func parseObject(line []byte, object any) error {
	if len(line) > MaxLine {
		return errors.New("the line is too long")
	}
	return json.Unmarshal(line, object)
}
