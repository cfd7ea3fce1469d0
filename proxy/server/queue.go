package server

import (
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// queueOf says how long the accept queue of a listening socket is. While everything ends its
// descriptor may be closed already.
func (s *Server) queueOf(b *listenSocket) admin.Queue {
	if s.closing {
		return admin.Queue{Address: b.listener.Addr()}
	}
	q := admin.Queue{Address: b.listener.Addr(), Dropped: b.overflows.total, DroppedKnown: b.listener.TCP() && !b.overflows.unknown}
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

func certificates(list []tlsterm.Lifetime) (of []admin.Certificate) {
	for _, l := range list {
		of = append(of, admin.Certificate{Path: l.Path, From: l.From, Ends: l.Ends})
	}
	return of
}
