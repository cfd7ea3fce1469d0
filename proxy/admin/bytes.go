package admin

// Bytes counts the bytes of sessions, including live ones, by direction. The counts never
// fall, except if their owner was removed and has come back.
type Bytes struct {
	ClientToEndpoint ByEngine `json:"client_to_endpoint"`
	EndpointToClient ByEngine `json:"endpoint_to_client"`
}

// ByEngine counts bytes by engine. Spliced bytes have not been in this process's memory.
type ByEngine struct {
	Spliced int64 `json:"spliced"`        // moved within the kernel
	Copied  int64 `json:"copied"`         // through this process's memory
	Lane    int64 `json:"lane,omitempty"` // as packets, of sessions that have left user space
}

// All returns the bytes of all engines.
func (m ByEngine) All() int64 { return m.Spliced + m.Copied + m.Lane }
