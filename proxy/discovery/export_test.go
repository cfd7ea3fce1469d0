package discovery

import (
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// Service is an SRV record.
type Service struct {
	Priority, Weight, Port uint16
	Target                 string
}

// Weighted makes endpoints of SRV records.
func Weighted(of []Service, found map[string][]netip.Addr) []Endpoint {
	var services []service
	for _, s := range of {
		services = append(services, service{s.Priority, s.Weight, s.Port, s.Target})
	}
	return weighted(services, found)
}

// Servers are the servers of a resolv.conf.
type Servers struct{ servers }

// NewServers returns the servers of a file, which it does not read yet.
func NewServers(path string) *Servers { return &Servers{servers{path: path}} }

// Order returns the servers in the order in which they are asked.
func (s *Servers) Order() []string { return s.order() }

// Read extracts the answer to a question from a reply. left is the number of records that were left out.
func Read(reply *dns.Msg, name string, qtype uint16) (addresses []netip.Addr, targets, left int, ttl time.Duration, next, denied string) {
	f := read(reply, question{name, qtype})
	return f.addresses, len(f.services), len(f.refused), f.ttl, f.next, f.denied
}

// Heeds reports whether any watch uses dir.
func (n *Inotify) Heeds(dir string) bool {
	n.asking.Lock()
	defer n.asking.Unlock()
	return n.uses[dir] > 0
}
