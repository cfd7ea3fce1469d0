package admin

import "time"

// Discovery describes how reliable the discovered endpoints of an upstream are.
type Discovery struct {
	Kind      string `json:"kind"`      // file or dns
	From      string `json:"from"`      // the file, or the name that is looked up
	Endpoints int    `json:"endpoints"` // number found
	// Changed is the time of the last change, and Confirmed that of the last good answer, when
	// they were last known to be right. Zero and left out: never.
	Changed   time.Time `json:"changed,omitzero"`
	Confirmed time.Time `json:"confirmed,omitzero"`
	Next      time.Time `json:"next,omitzero"` // time of the next look-up; left out: on an event
	// Error is the error of the latest attempt, or "". Failures counts the failures since
	// Confirmed. If there are any, the endpoints are those of an earlier attempt, if there was
	// one.
	Error    string `json:"error,omitempty"`
	Failures int    `json:"failures,omitempty"`
	Stale    bool   `json:"stale,omitempty"` // older than their source allows
	// LeftOut counts endpoints that were found but left out, for they lead back into the
	// process. LeftOutCause is the reason of the first one.
	LeftOut      int    `json:"left_out,omitempty"`
	LeftOutCause string `json:"left_out_cause,omitempty"`
}
