package server

import "github.com/penstock/penstock/internal/sys"

// An overflowCount is how often the accept queue of a listening socket has overflowed. The
// socket's own counter has stray segments as well, which any host can send; that of the
// network namespace has none of these, and the overflows of all sockets. So the smaller of the
// two increases is counted.
type overflowCount struct {
	unknown bool // one of the counters could not be read at the last look
	total   int64
	drops   uint32 // the socket's counter at the last look; it wraps
	risen   uint32 // by how much it had risen since the look before
}

// look reads the socket's counter.
func (o *overflowCount) look(fd int) {
	drops, err := sys.ListenDrops(fd)
	if o.unknown = err != nil; !o.unknown {
		o.risen, o.drops = drops-o.drops, drops
	}
}

// settle counts the drops of the socket since the look before, at most most.
func (o *overflowCount) settle(limit uint64) {
	if !o.unknown {
		o.total += int64(min(uint64(o.risen), limit))
	}
}

// A namespaceCount is the counter of overflows of the whole network namespace.
type namespaceCount struct {
	read  func() (uint64, error) // sys.ListenOverflows
	known bool                   // whether it could be read at the last look
	last  uint64                 // before the sockets' counters were read
}

// countOverflows looks at the accept queues of all listening sockets.
//
// The namespace's counter is read before the sockets' counters and, if one of these has risen, after them. The time between
// is part of this look and of the next one, so that no overflow is missed.
func (s *Server) countOverflows() {
	ns := &s.watcher.namespace
	before, err := ns.read()
	risen := false
	for _, socket := range s.binds {
		if socket.listener.TCP() {
			socket.overflows.look(socket.fd)
			risen = risen || socket.overflows.risen > 0
		}
	}
	after := before
	if err == nil && risen {
		after, err = ns.read()
	}
	for _, socket := range s.binds {
		switch {
		case err != nil:
			socket.overflows.unknown = true
		case ns.known:
			socket.overflows.settle(after - ns.last)
		}
	}
	ns.known, ns.last = err == nil, before
}
