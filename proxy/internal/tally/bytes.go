package tally

import "sync/atomic"

// Bytes counts the bytes of sessions by direction, including running sessions, and for listeners and the process the bytes
// of responses. The counts never decrease, except if a listener, upstream or endpoint was removed and has come back.
type Bytes struct {
	ClientToEndpoint ByEngine `json:"client_to_endpoint"`
	EndpointToClient ByEngine `json:"endpoint_to_client"`
}

// Add adds other bytes. Nobody counts meanwhile.
func (b *Bytes) Add(o Bytes) {
	to := b.counters()
	for i, n := range o.counters() {
		*to[i] += *n
	}
}

// Count is Add, but others may count and Load meanwhile. It writes only the counters that change: usually one engine moves all
// bytes of a session.
func (b *Bytes) Count(o Bytes) {
	to := b.counters()
	for i, n := range o.counters() {
		if *n != 0 {
			atomic.AddInt64(to[i], *n)
		}
	}
}

// Load returns the bytes until now. Others may count meanwhile.
func (b *Bytes) Load() Bytes { return Bytes{Load(&b.ClientToEndpoint), Load(&b.EndpointToClient)} }

func (b *Bytes) counters() [6]*int64 {
	in, out := &b.ClientToEndpoint, &b.EndpointToClient
	return [...]*int64{&in.Spliced, &in.Copied, &in.Lane, &out.Spliced, &out.Copied, &out.Lane}
}

// ByEngine counts bytes by how they were moved.
type ByEngine struct {
	Spliced int64 `json:"spliced"`        // moved within the kernel, and never in this process's memory
	Copied  int64 `json:"copied"`         // copied through this process's memory
	Lane    int64 `json:"lane,omitempty"` // forwarded as packets, for sessions that have left user space
}

// All returns the bytes of all engines.
func (m ByEngine) All() int64 { return m.Spliced + m.Copied + m.Lane }
