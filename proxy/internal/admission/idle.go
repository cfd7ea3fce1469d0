package admission

import (
	"cmp"
	"net/netip"
	"time"
)

// A network floods if floodSize of its connections have ended lately without a request that the client had a right
// to. Probes and wrong tokens do not add up to this number.
const (
	floodSize    = 32
	idleTime     = 8 * time.Second // time after which the counts are halved
	mostNetworks = 4096            // networks counted at a time
)

// idle counts, by network, the connections with TLS that have ended lately without such a request. A host without a
// token can make them at no cost, but each costs the server a handshake, and a place for as long as a distant client
// may need for its part. So when places are short, the network that floods most has its connections closed first, the
// newest before their handshake; all others are accepted as fast as they come. The counts have no effect while there
// are places.
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

// age halves the counts once for each idleTime that has passed.
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

// flooding returns a connection to close, of the network that floods most: the first one that has been silent for a time,
// or else the newest one without a request; nil: no network floods. The caller holds mu.
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
