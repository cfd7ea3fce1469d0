package balancer

import (
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/terminate"
)

// queueOf says how long the accept queue of a listening socket is. While everything ends its
// descriptor may be closed already.
func (s *Server) queueOf(b *bound) admin.Queue {
	if s.closing {
		return admin.Queue{Address: b.listener.Addr()}
	}
	q := admin.Queue{Address: b.listener.Addr(), Dropped: b.dropped()}
	ask := sys.UnixListenQueue
	if b.listener.TCP() {
		ask = sys.ListenQueue
	}
	if length, most, err := ask(b.fd); err == nil {
		q.Known, q.Length, q.Most = true, int64(length), int64(most)
	}
	q.DroppedLastMinute = s.watcher.sums.Recent(s.now(), b, droppedLine)
	return q
}

// dropped returns how often the accept queue has overflowed, as far as that is known.
func (b *bound) dropped() int64 {
	if !b.listener.TCP() {
		return 0
	}
	n, err := sys.ListenDrops(b.fd)
	if err != nil {
		return 0
	}
	b.drops += int64(n - uint32(b.drops)) // it wraps
	return b.drops
}

func certificates(list []terminate.Lifetime) (of []admin.Certificate) {
	for _, l := range list {
		of = append(of, admin.Certificate{Path: l.Path, From: l.From, Ends: l.Ends})
	}
	return of
}
