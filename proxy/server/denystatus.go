package server

import (
	"slices"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
)

// The lines of counters that only a status has.
const (
	acceptedLine = "clients accepted"
	deniedLine   = "clients denied by hand"
)

// arrivals are clients of a listener, until some moment.
type arrivals struct{ accepted, denied int64 }

func arrivalsAt(l *router.ListenerState) arrivals { return arrivals{l.Accepted(), l.DeniedByHand()} }

// mark notes the moment from which a new denial is in force.
func (d *denials) mark(now int64, listeners map[string]*listener) {
	d.latest = now
	d.before = make(map[*router.ListenerState]arrivals, len(listeners))
	for _, l := range listeners {
		d.before[l.state] = arrivalsAt(l.state)
	}
}

// appendArrivals appends the counters for the last minute of a listener's clients.
func appendArrivals(list []monitor.Counter, l *router.ListenerState) []monitor.Counter {
	at := arrivalsAt(l)
	return append(list,
		monitor.Counter{Key: l, Message: acceptedLine, Total: at.accepted, Unlogged: true},
		monitor.Counter{Key: l, Message: deniedLine, Total: at.denied, Unlogged: true},
	)
}

// maxLatest is how many denials a status has.
const maxLatest = 10

// status returns the denials in force, nil if there are none.
func (d *denials) status() *admin.Denials {
	list := d.list
	if len(list) == 0 {
		return nil
	}
	st := &admin.Denials{Count: len(list)}
	for _, d := range slices.Backward(list[max(len(list)-maxLatest, 0):]) {
		st.Latest = append(st.Latest, d.Denial)
	}
	return st
}

// A denialSum is the denials at one listener, or those at all.
type denialSum struct {
	count  int
	latest admin.Denial
	all    bool // every client is denied
}

func (d *denialSum) add(one *denial) {
	d.count, d.latest, d.all = d.count+1, one.Denial, d.all || one.rule == source.All()
}

// sumUp counts the denials by listener.
func (d *denials) sumUp() {
	d.sums = make(map[string]denialSum)
	for i := range d.list {
		sum := d.sums[d.list[i].Listener]
		sum.add(&d.list[i])
		d.sums[d.list[i].Listener] = sum
	}
}
