package health

// An Outcome is what a connection to an endpoint came to, as far as that says
// something of the endpoint.
type Outcome uint8

const (
	// Unknown: the client left first, or this process was short of something. It says
	// nothing of the endpoint.
	Unknown Outcome = iota
	// OK: the endpoint that was reached has sent its first byte or an end of file, or
	// nothing more is asked of it.
	OK
	// ConnectFailed: it could not be connected to, in time or at all.
	ConnectFailed
	// Reset: it was reached, and reset the connection before its first byte.
	Reset
	// Silent: it was reached, and sent nothing for as long as it may.
	Silent

	outcomes // how many there are
)

// after reports whether a connection that came to this had been reached.
func (o Outcome) after() bool { return o != ConnectFailed }

// Failed reports whether it counts as a failure of the endpoint.
func (o Outcome) Failed() bool { return o >= ConnectFailed && o < outcomes }

// String says what happened, in a few words.
func (o Outcome) String() string {
	switch o {
	case OK:
		return "ok"
	case ConnectFailed:
		return "cannot be connected to"
	case Reset:
		return "reset before its first byte"
	case Silent:
		return "silent after the connect"
	default:
		return "unknown"
	}
}
