package admission

import (
	"cmp"
	"net/netip"
	"time"
)

// A network floods if so many of its connections have ended lately without a request of a client that may make it.
// It is more than probes and wrong tokens come to.
const (
	floodSize    = 32
	idleTime     = 8 * time.Second // after which the counts are halved
	mostNetworks = 4096            // that are counted at a time
)

// idle counts the connections with TLS that have ended lately without such a request, by network. A connection costs a
// host without a token nothing, and the server a handshake, and a place for as long as a client far away may need for
// its part. So when places are short, one network that floods has its connections closed first, the newest before their
// handshake: all others are accepted as fast as they come. The counts have no effect while there are places.
type idle struct {
	ended  map[netip.Addr]int
	halved time.Time
}

// note counts a connection that has ended.
func (i *idle) note(from netip.Addr) {
	i.age()
	if i.ended == nil || len(i.ended) >= mostNetworks {
		i.ended = make(map[netip.Addr]int)
	}
	i.ended[from]++
}

// age halves the counts as often as the time says.
func (i *idle) age() {
	times := time.Since(i.halved) / idleTime
	if times == 0 {
		return
	}
	i.halved = time.Now()
	for from, n := range i.ended {
		if i.ended[from] = n >> min(times, 62); i.ended[from] == 0 {
			delete(i.ended, from)
		}
	}
}

// flooding returns a connection of the network that floods most, to be closed: the first one that has been silent for a
// time, or else the newest one without a request; nil: no network floods. The caller holds mu.
func (l *Limiter) flooding(silence time.Duration) *Conn {
	l.idle.age()
	var silent, newest *Conn
	most := floodSize
	for _, c := range l.conns {
		n := l.idle.ended[c.from]
		if c.asked || n < most {
			continue
		}
		if n > most {
			most, silent = n, nil
		}
		newest = c
		if silent == nil && time.Since(c.since) >= silence && c.isSilent() {
			silent = c
		}
	}
	return cmp.Or(silent, newest)
}
