package endpoint

// A Failure is what befalls endpoints.
type Failure string

// The failures.
const (
	Healthy Failure = "" // as it should be
	Silent  Failure = "silent"
	Slow    Failure = "slow"
	Refuse  Failure = "refuse"
	Reset   Failure = "reset"
)

// About says in a line what becomes of an endpoint.
func (f Failure) About() string {
	return map[Failure]string{
		Silent: "accept connections, and say nothing on them",
		Slow:   "answer late",
		Refuse: "refuse connections, and have reset those there were",
		Reset:  "accept connections, and reset each at once",
	}[f]
}
