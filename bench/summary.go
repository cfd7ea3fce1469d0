package bench

// Summary is what `penstock proxy --log json` prints on SIGUSR1 and at its
// end: the proxy's own account of what it did.
type Summary struct {
	Connections struct {
		Accepted int64 `json:"accepted"`
		Active   int64 `json:"active"`
		Refused  int64 `json:"refused"`
	} `json:"connections"`
	Bytes struct {
		ClientToEndpoint Moved `json:"client_to_endpoint"`
		EndpointToClient Moved `json:"endpoint_to_client"`
	} `json:"bytes"`
	Lost      int64            `json:"lost"` // bytes read and never delivered
	Fallbacks map[string]int64 `json:"fallbacks"`
	Pipes     struct {
		Made   int64 `json:"made"`
		Reused int64 `json:"reused"`
		Leased int64 `json:"leased"`
		Idle   int64 `json:"idle"`
	} `json:"pipes"`
}

// Moved is bytes by the way they went.
type Moved struct {
	Spliced int64 `json:"spliced"` // by splice(2), without entering the process
	Copied  int64 `json:"copied"`  // by read(2) and write(2)
}

// Total is the bytes moved either way.
func (m Moved) Total() int64 { return m.Spliced + m.Copied }

// Add returns the sum of both.
func (m Moved) Add(n Moved) Moved {
	return Moved{Spliced: m.Spliced + n.Spliced, Copied: m.Copied + n.Copied}
}

// Both is the bytes of both directions.
func (s *Summary) Both() Moved { return s.Bytes.ClientToEndpoint.Add(s.Bytes.EndpointToClient) }

// Since returns what happened between the summary before and s. What is a
// state and not a counter (Active, Leased, Idle) is taken from s.
func (s *Summary) Since(before *Summary) *Summary {
	d := *s
	d.Connections.Accepted -= before.Connections.Accepted
	d.Connections.Refused -= before.Connections.Refused
	d.Bytes.ClientToEndpoint = s.Bytes.ClientToEndpoint.sub(before.Bytes.ClientToEndpoint)
	d.Bytes.EndpointToClient = s.Bytes.EndpointToClient.sub(before.Bytes.EndpointToClient)
	d.Lost -= before.Lost
	d.Pipes.Made -= before.Pipes.Made
	d.Pipes.Reused -= before.Pipes.Reused
	d.Fallbacks = make(map[string]int64)
	for reason, n := range s.Fallbacks {
		if n -= before.Fallbacks[reason]; n != 0 {
			d.Fallbacks[reason] = n
		}
	}
	return &d
}

func (m Moved) sub(n Moved) Moved {
	return Moved{Spliced: m.Spliced - n.Spliced, Copied: m.Copied - n.Copied}
}
