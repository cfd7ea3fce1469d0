package tally

import "sync/atomic"

// Bytes counts the bytes of sessions by direction, including running sessions. The counts never decrease, except if a
// listener, upstream or endpoint was removed and has come back.
type Bytes struct {
	ClientToEndpoint ByEngine `json:"client_to_endpoint"`
	EndpointToClient ByEngine `json:"endpoint_to_client"`
}

// Add adds other bytes. Nobody counts meanwhile.
func (b *Bytes) Add(o Bytes) {
	b.ClientToEndpoint.add(o.ClientToEndpoint)
	b.EndpointToClient.add(o.EndpointToClient)
}

// Count is Add, but others may count and Load meanwhile.
func (b *Bytes) Count(o Bytes) {
	b.ClientToEndpoint.count(o.ClientToEndpoint)
	b.EndpointToClient.count(o.EndpointToClient)
}

// Load returns the bytes until now. Others may count meanwhile.
func (b *Bytes) Load() Bytes { return Bytes{Load(&b.ClientToEndpoint), Load(&b.EndpointToClient)} }

// ByEngine counts bytes by how they were moved.
type ByEngine struct {
	Spliced int64 `json:"spliced"`        // moved within the kernel, and never in this process's memory
	Copied  int64 `json:"copied"`         // copied through this process's memory
	Lane    int64 `json:"lane,omitempty"` // forwarded as packets, for sessions that have left user space
}

// All returns the bytes of all engines.
func (m ByEngine) All() int64 { return m.Spliced + m.Copied + m.Lane }

func (m *ByEngine) add(o ByEngine) {
	m.Spliced += o.Spliced
	m.Copied += o.Copied
	m.Lane += o.Lane
}

// count writes only the counters that change: usually one engine moves all bytes of a session.
func (m *ByEngine) count(o ByEngine) {
	if o.Spliced != 0 {
		atomic.AddInt64(&m.Spliced, o.Spliced)
	}
	if o.Copied != 0 {
		atomic.AddInt64(&m.Copied, o.Copied)
	}
	if o.Lane != 0 {
		atomic.AddInt64(&m.Lane, o.Lane)
	}
}
