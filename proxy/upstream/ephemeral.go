package upstream

import "sync"

var ephemeral = sync.OnceValue(ephemeralPorts)

// EphemeralPort reports whether a port is one that the kernel may choose as a local one
// (net.ipv4.ip_local_port_range, ip(7)): a connect to such a port of this machine on which
// nobody listens may connect a socket to itself, see [ErrSelfConnect].
func EphemeralPort(port uint16) bool { return ephemeral().has(port) }
