package admin

import "time"

// Discovery is how much the endpoints of an upstream can be relied on that were discovered.
type Discovery struct {
	Kind      string `json:"kind"`      // file or dns
	From      string `json:"from"`      // the file, or what was asked for
	Endpoints int    `json:"endpoints"` // that were found
	// Changed is when they last changed, and Confirmed when they were last known to be right:
	// the time of the last good answer. Zero and left out: never.
	Changed   time.Time `json:"changed,omitzero"`
	Confirmed time.Time `json:"confirmed,omitzero"`
	Next      time.Time `json:"next,omitzero"` // when is asked again; left out: on an event
	// Error is why the latest attempt failed, "" if it did not, and Failures how many have
	// since Confirmed: the endpoints are those of an earlier one then, if there was one.
	Error    string `json:"error,omitempty"`
	Failures int    `json:"failures,omitempty"`
	Stale    bool   `json:"stale,omitempty"` // they are older than their source lets them be
	// LeftOut is how many that were found are no endpoints, for they lead back into the process,
	// and LeftOutCause why the first of them does.
	LeftOut      int    `json:"left_out,omitempty"`
	LeftOutCause string `json:"left_out_cause,omitempty"`
}
