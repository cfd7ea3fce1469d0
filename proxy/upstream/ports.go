package upstream

// A portRange is the ports that the kernel chooses from for a socket that connects
// without having been bound.
type portRange struct{ low, high uint16 }

func (r portRange) has(port uint16) bool { return r.low <= port && port <= r.high }

// allPorts is for when it is not known.
var allPorts = portRange{1, 65535}
