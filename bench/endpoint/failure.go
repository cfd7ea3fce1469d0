package endpoint

// A Failure is a state of endpoints.
type Failure string

// The failures.
const (
	Healthy Failure = "" // the endpoint works
	Silent  Failure = "silent"
	Slow    Failure = "slow"
	Refuse  Failure = "refuse"
	Reset   Failure = "reset"
)

// About describes the behaviour of endpoints in one line.
func (f Failure) About() string {
	return map[Failure]string{
		Silent: "accept connections, and send nothing",
		Slow:   "answer late",
		Refuse: "refuse connections, and have reset the existing connections",
		Reset:  "accept connections, and reset each at once",
	}[f]
}
