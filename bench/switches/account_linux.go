package switches

import "time"

// account is what a part knows of itself; a part prints one for every line that
// it reads. Only the process itself learns this at the price of one system
// call: from outside the context switches of a thousand threads are in a
// thousand files, and reading them would slow down what is being measured.
type account struct {
	At          time.Duration `json:"at"`          // since some moment of the process
	CPU         time.Duration `json:"cpu"`         // used so far
	Switches    int64         `json:"switches"`    // context switches so far, also of threads that have ended
	Connections int           `json:"connections"` // open now
	Echoed      int64         `json:"echoed"`      // bytes so far
}
