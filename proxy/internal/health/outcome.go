package health

// An Outcome is the result of a connection to an endpoint, as evidence about the endpoint.
type Outcome uint8

const (
	// Unknown: the client left first, or this process lacked a resource. It is no evidence
	// about the endpoint.
	Unknown Outcome = iota
	// OK: the endpoint was reached and has sent its first byte, or an end of file after the
	// client's, or nothing more is expected of it.
	OK
	// ConnectFailed: it could not be connected to, in time or at all.
	ConnectFailed
	// Reset: it was reached, and reset the connection before anything that the client sent
	// was passed on.
	Reset
	// Rejected: it was reached, and reset the connection before its own first byte, but after
	// something from the client; an end of file counts.
	Rejected
	// HungUp: it was reached, and ended the connection soon, before its own first byte and
	// before the client had ended it.
	HungUp
	// Silent: it was reached, and sent nothing for the time allowed.
	Silent

	outcomes // number of values
)

// after reports whether a connection with this outcome had been reached.
func (o Outcome) after() bool { return o != ConnectFailed }

// Failed reports whether the outcome counts as a failure of the endpoint.
func (o Outcome) Failed() bool { return o >= ConnectFailed && o < outcomes }

// mayBeClient reports whether it may be the client's doing: garbage, or nothing at all.
func (o Outcome) mayBeClient() bool { return o == Rejected || o == HungUp || o == Silent }

// String describes the outcome, in a few words.
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
