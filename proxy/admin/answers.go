package admin

import "time"

// Answers describes how soon an endpoint sends its first byte, over all time.
type Answers struct {
	// Made is the number of sessions with an answer, and SumUs the sum of the times to their first bytes: since the
	// client's last byte if it had asked, and since the connect otherwise.
	Made     int64   `json:"made"`
	SumUs    int64   `json:"sum_us"`
	Percent  float64 `json:"percent"`   // of the answered sessions that had their first byte within WithinUs: at least 99
	WithinUs int64   `json:"within_us"` // the time, in microseconds, within which those had their first byte
	// Judged means that the endpoint's answers are known well enough to eject it if it no
	// longer answers any client.
	Judged bool `json:"judged"`
}

// A Silence is a period in which an endpoint has answered no client, though clients wait and
// that is unusual. It may be ejected for that, or not.
type Silence struct {
	Since   time.Time `json:"since"`           // of the first request without an answer
	Clients int64     `json:"clients"`         // that have sent data since, including those that have given up
	Usual   string    `json:"usual,omitempty"` // how soon it, or the other endpoints, answered before
	Proof   string    `json:"proof"`           // further evidence that it is unusual
}
