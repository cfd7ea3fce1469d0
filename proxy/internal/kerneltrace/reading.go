package kerneltrace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// A Kind is a kind of event. The numbers are those of enum event in bpf/trace.c.
type Kind int

// The kinds.
const (
	Retransmit       Kind = 1 + iota // a segment was sent again
	RetransmitSynAck                 // the answer to a client's SYN was sent again
	ResetSent
	ResetReceived
	ConnectFailed
	Drop        // a packet was thrown away
	BufferLimit // a packet found no memory: tcp_mem, or the limit of a cgroup
	DeviceStall // a device has completed nothing for a while
	kinds
)

var kindNames = [kinds]string{"", "retransmit", "retransmit-synack", "reset-sent", "reset-received", "connect-failed", "drop", "buffer-limit", "device-stall"}

// String returns the name.
func (k Kind) String() string { return kindNames[k] }

// MarshalText implements [encoding.TextMarshaler].
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Kind) UnmarshalText(text []byte) error {
	i := slices.Index(kindNames[1:], string(text))
	if i < 0 {
		return fmt.Errorf("penstock: kerneltrace: no kind of event %q", text)
	}
	*k = Kind(i + 1)
	return nil
}

// A Side is how a process came to a connection.
type Side int

// The sides.
const (
	Unknown   Side = iota
	Accepted       // it listened
	Connected      // it connected
)

// String returns the name.
func (s Side) String() string { return [...]string{"unknown", "accepted", "connected"}[s] }

// MarshalText implements [encoding.TextMarshaler].
func (s Side) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// An Event is how often one thing has happened to one connection.
type Event struct {
	Kind          Kind
	Side          Side
	Local, Remote netip.AddrPort // not valid for a DeviceStall
	Incoming      bool           // of packets
	// Reason is the kernel's reason of a drop or of a reset that was sent, in lower case; the
	// state of congestion control of a retransmission; "" if there is none.
	Reason      string
	Count       uint64
	First, Last time.Duration // since the machine was booted (CLOCK_MONOTONIC)
}

// A Period is something that takes time. The numbers are those of enum duration in bpf/trace.c.
type Period int

// The periods.
const (
	Connect        Period = 1 + iota // from connect to an established connection
	RetransmitWait                   // until a segment was sent again
	DeviceQueue                      // in the queue of a network device
)

// A Duration is the durations of one period at one place.
type Duration struct {
	Period Period
	Side   Side
	Place  netip.AddrPort // the listener's address if accepted, and the endpoint's if connected
	Device int            // index of the network device; 0: none
	Histogram
}

// A Thread is a thread, and how long it waited for a CPU while it could run.
type Thread struct {
	PID, TID int
	Histogram
}

// A Reading is everything that was counted.
type Reading struct {
	Events    []Event
	Durations []Duration
	Threads   []Thread
	// Unmatched are events in the network namespace of the traced processes, of connections that
	// are not known to be theirs.
	Unmatched map[Kind]uint64
	// Lost counts events, durations and waits of threads for which the maps had no room.
	Lost uint64
}

// Read reads what was counted since Open.
func (t *Tracer) Read() (*Reading, error) {
	r := &Reading{Unmatched: make(map[Kind]uint64)}
	for _, read := range []func(*Reading) error{t.readEvents, t.readDurations, t.readThreads, t.readCounts} {
		if err := read(r); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
	}
	return r, nil
}

// each calls do for each entry of a map, until it returns false.
func each[K, V any](m *ebpf.Map, do func(*K, *V)) error {
	var k K
	var v V
	entries := m.Iterate()
	for entries.Next(&k, &v) {
		do(&k, &v)
	}
	return entries.Err()
}

func (t *Tracer) readEvents(r *Reading) error {
	return each(t.maps.Maps["events"], func(k *traceEventKey, v *traceTally) {
		e := Event{Kind: Kind(k.Event), Incoming: k.Direction == 1, Count: v.Count, First: time.Duration(v.First), Last: time.Duration(v.Last)}
		if e.Kind <= 0 || e.Kind >= kinds {
			return
		}
		e.Reason = t.reasons.name(e.Kind, k.Detail)
		if e.Kind != DeviceStall {
			e.Local = netip.AddrPortFrom(addressOf(k.Flow.Local.Word), k.Flow.LocalPort)
			e.Remote = netip.AddrPortFrom(addressOf(k.Flow.Remote.Word), k.Flow.RemotePort)
			e.Side = t.sideOf(&k.Flow)
		}
		r.Events = append(r.Events, e)
	})
}

// sideOf returns the side of a connection that the programs have taken for a traced one.
func (t *Tracer) sideOf(f *traceFlow) Side {
	var o traceOwnership
	if t.maps.Maps["owners"].Lookup(f, &o) == nil {
		return Side(o.Side)
	}
	s := Socket{Local: netip.AddrPortFrom(addressOf(f.Local.Word), f.LocalPort), Netns: f.Netns}
	var one uint32
	if slices.ContainsFunc(s.accepting(), func(p tracePlace) bool { return t.maps.Maps["listening"].Lookup(p, &one) == nil }) {
		return Accepted
	}
	return Unknown
}

func (t *Tracer) readDurations(r *Reading) error {
	return each(t.maps.Maps["durations"], func(k *traceDurationKey, v *traceHistogram) {
		r.Durations = append(r.Durations, Duration{
			Period: Period(k.Duration), Side: Side(k.Side), Device: int(k.Device),
			Place:     netip.AddrPortFrom(addressOf(k.Place.Address.Word), uint16(k.Place.Port)),
			Histogram: histogramOf(v),
		})
	})
}

func (t *Tracer) readThreads(r *Reading) error {
	return each(t.maps.Maps["threads"], func(tid *uint32, v *traceThread) {
		if v.Wait.Count > 0 {
			r.Threads = append(r.Threads, Thread{PID: int(v.Tgid), TID: int(*tid), Histogram: histogramOf(&v.Wait)})
		}
	})
}

func (t *Tracer) readCounts(r *Reading) error {
	err := each(t.maps.Maps["unmatched"], func(i *uint32, n *uint64) {
		if *n > 0 && Kind(*i) < kinds {
			r.Unmatched[Kind(*i)] = *n
		}
	})
	return errors.Join(err, each(t.maps.Maps["lost"], func(_ *uint32, n *uint64) { r.Lost += *n }))
}
