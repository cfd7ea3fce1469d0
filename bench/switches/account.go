package switches

import "time"

// account is a part's own figures; a part prints one for every line that it reads. Only the
// process itself gets them at the price of one system call. From outside, the context switches
// of a thousand threads are in a thousand files, and reading them would slow down the measured
// process.
type account struct {
	At          time.Duration `json:"at"`          // since some moment of the process
	CPU         time.Duration `json:"cpu"`         // used so far
	Switches    int64         `json:"switches"`    // context switches so far, also of threads that have ended
	Connections int           `json:"connections"` // open now
	Echoed      int64         `json:"echoed"`      // bytes so far
}
