package admin

// Cancels are requests of clients of PostgreSQL to cancel a query. Each is sent to every endpoint that may have it.
type Cancels struct {
	// Clients of PostgreSQL that have asked to cancel a query. Left out where the listener does not speak PostgreSQL.
	Requests int64 `json:"requests" metric:"cancel_requests_total"`
	Sent     int64 `json:"sent"`   // to endpoints
	Failed   int64 `json:"failed"` // could not be sent to an endpoint
}
