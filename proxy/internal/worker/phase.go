package worker

// A phase is the wait of a client that is not joined.
type phase uint8

const (
	dialing       phase = iota // a connection to the endpoint, its address, or a descriptor for it
	awaitHeader                // of the PROXY protocol
	awaitHello                 // the ClientHello
	awaitData                  // the first byte
	pausing                    // the end of a pause
	parked                     // to be woken
	writingHeader              // room for the rest of the PROXY header, at the endpoint
	responding                 // room for the rest of the response
	lingering                  // the client's end of file, after the response
)

// state returns its state in a list.
func (p phase) state() State {
	switch p {
	case awaitHeader, awaitHello, awaitData:
		return Prereading
	case pausing, parked:
		return Waiting
	case responding, lingering:
		return Responding
	default:
		return Dialing
	}
}
