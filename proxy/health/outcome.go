package health

// An Outcome is what a connection to an endpoint came to, as far as that says
// something of the endpoint.
type Outcome uint8

const (
	// Unknown: the client left first, or this process was short of something. It says
	// nothing of the endpoint.
	Unknown Outcome = iota
	// OK: the endpoint that was reached has sent its first byte, or an end of file after the
	// client's, or nothing more is asked of it.
	OK
	// ConnectFailed: it could not be connected to, in time or at all.
	ConnectFailed
	// Reset: it was reached, and reset the connection before anything that the client sent
	// was passed on.
	Reset
	// Rejected: it was reached, and reset the connection after something that the client
	// sent, its end of file included, and before its own first byte.
	Rejected
	// HungUp: it was reached, and ended the connection soon, before its own first byte and
	// before the client had ended it.
	HungUp
	// Silent: it was reached, and sent nothing for as long as it may.
	Silent

	outcomes // how many there are
)

// after reports whether a connection that came to this had been reached.
func (o Outcome) after() bool { return o != ConnectFailed }

// Failed reports whether it counts as a failure of the endpoint.
func (o Outcome) Failed() bool { return o >= ConnectFailed && o < outcomes }

// mayBeClient reports whether it may be the client's doing: garbage, or nothing at all.
func (o Outcome) mayBeClient() bool { return o == Rejected || o == HungUp || o == Silent }

// String says what happened, in a few words.
func (o Outcome) String() string {
	switch o {
	case OK:
		return "ok"
	case ConnectFailed:
		return "cannot be connected to"
	case Reset:
		return "reset before its first byte"
	case Rejected:
		return "reset before its first byte, after the client's"
	case HungUp:
		return "ended before its first byte"
	case Silent:
		return "silent after the connect"
	default:
		return "unknown"
	}
}
