package worker

// A phase is the wait of a client that is not joined.
type phase uint8

const (
	dialing       phase = iota // a connection to the endpoint, its address, or a descriptor for it
	awaitHeader                // of the PROXY protocol
	awaitHello                 // the ClientHello
	awaitData                  // the first byte
	awaitFirst                 // first bytes that decide the route
	awaitSilence               // the same, or that none has come for a time
	looking                    // the first bytes, for its search
	awaitPostgres              // a message of PostgreSQL
	awaitAnswer                // the endpoint's to an SSLRequest of PostgreSQL
	pausing                    // the end of a pause
	parked                     // to be woken
	writingHeader              // room for the rest of the PROXY header, at the endpoint
	responding                 // room for the rest of the response
	lingering                  // the client's end of file, after the response
)

// state returns its state in a list.
func (p phase) state() State {
	switch p {
	case awaitHeader, awaitHello, awaitData, awaitFirst, awaitSilence, awaitPostgres, looking:
		return Prereading
	case pausing, parked:
		return Waiting
	case responding, lingering:
		return Responding
	default:
		return Dialing
	}
}

// prereads reports whether the client's bytes are looked at.
func (p phase) prereads() bool { return awaitHeader <= p && p <= awaitPostgres }

// recognises reports whether they are looked at for their protocol.
func (p phase) recognises() bool { return p == awaitFirst || p == awaitSilence }
