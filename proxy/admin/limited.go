package admin

// ConnectBoundsUs are the upper bounds of the first buckets of [Connects], in microseconds. The last bucket has none.
var ConnectBoundsUs = [...]int64{1000, 5000, 20_000, 100_000, 500_000, 1_500_000, 5_000_000, 15_000_000}

// Connects counts connections that were made to endpoints, ever, and the time that they took.
type Connects struct {
	// Connections that were made for clients, ever.
	Made  int64 `json:"made" metric:"sessions_total"`
	SumUs int64 `json:"sum_us"` // the time of all together, in microseconds
	// Buckets counts them by the time they took, see [ConnectBoundsUs]. Left out of an endpoint.
	Buckets []int64 `json:"buckets,omitempty"`
}
