package lane

// A Reason is why a session does not leave user space, or could not come back. It is an error, so that errors.Is finds it:
// those that wrap it name the operation.
type Reason uint8

// Reasons. Those up to Interrupted are of the packet and the moment, or of the two sockets as the program
// saw them at the last attempt; those after it are known when the connections are joined, or are of [Session.ComeBack].
const (
	None             Reason = iota
	NoSocket                // a socket is not found under the addresses of its packets
	NotEstablished          // a socket is ending, or in repair
	Unread                  // a socket has bytes that were not read
	OutOfOrder              // a socket has packets out of order, or a backlog
	NotNext                 // the packet is not the next one
	Unacknowledged          // bytes that were sent are not acknowledged
	InFlight                // bytes are on the way to a socket
	ResetSeen               // an RST is on the way to a socket
	Timestamps              // one connection has timestamps and the other has none
	Microseconds            // timestamps in microseconds
	SegmentSize             // segments of one connection are too large for the other
	PathMTU                 // segments of one connection do not fit the other's path
	ECN                     // one connection has ECN and the other has none, a mark is on its way back, or accurate ECN
	Multipath               // MPTCP
	Signed                  // TCP-MD5 or TCP-AO
	Urgent                  // an urgent byte
	UpperLayer              // an upper layer protocol, such as kernel TLS
	BigTCP                  // segments above 64 KiB
	Device                  // packets of a side were not seen yet, or one side alone is on the loopback
	Route                   // packets leave at another device than they arrive at, by IPsec, a tunnel or a mark; or the route is not known
	Interrupted             // another packet arrived during the attempt
	MixedFamilies           // one connection is IPv4 and the other IPv6
	LinkLocal               // an address of one link, which has a zone
	SharedConnection        // the other end of a connection is joined here too
	Full                    // no slot is free
	NotTCP                  // a descriptor is of no TCP socket
	JoinedAlready           // a connection is of a session of this lane already
	Kept                    // by ComeBack, until MayLeave
	AddressTaken            // of coming back: another socket has the address
	NotPermitted            // of coming back: without CAP_NET_ADMIN
	Unrestorable            // of coming back: a socket could not be made

	reasons
)

var reasonTexts = [reasons]string{
	None: "none", NoSocket: "socket not found", NotEstablished: "socket is ending", Unread: "unread bytes", OutOfOrder: "packets out of order",
	NotNext: "packet is not the next", Unacknowledged: "unacknowledged bytes", InFlight: "bytes on the way", ResetSeen: "reset on the way",
	Timestamps: "timestamps on one side alone", Microseconds: "timestamps in microseconds", SegmentSize: "segments do not fit", PathMTU: "path MTU too small",
	ECN: "ECN differs", Multipath: "MPTCP", Signed: "signed segments", Urgent: "urgent byte", UpperLayer: "upper layer protocol", BigTCP: "big TCP",
	Device: "device not known", Route: "route by another way", Interrupted: "interrupted by another packet",
	MixedFamilies: "IPv4 on one side and IPv6 on the other", LinkLocal: "link-local address", SharedConnection: "both ends are joined here", Full: "no slot is free",
	NotTCP: "no TCP socket", JoinedAlready: "connection is joined already",
	Kept: "kept in user space", AddressTaken: "address is taken", NotPermitted: "TCP_REPAIR is not permitted", Unrestorable: "socket cannot be made",
}

// String returns the reason as a few words, such as "no slot is free".
func (r Reason) String() string {
	if r >= reasons {
		return "unknown"
	}
	return reasonTexts[r]
}

// Error is String.
func (r Reason) Error() string { return r.String() }
