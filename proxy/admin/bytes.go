package admin

// Bytes are what sessions have moved, those that still run included, by direction. They
// never fall, but where what they are of has gone and come back.
type Bytes struct {
	ClientToEndpoint Moved `json:"client_to_endpoint"`
	EndpointToClient Moved `json:"endpoint_to_client"`
}

// Moved are bytes by engine: what was spliced has not been in this process's memory.
type Moved struct {
	Spliced int64 `json:"spliced"`
	Copied  int64 `json:"copied"`
}

// All are the bytes of both engines.
func (m Moved) All() int64 { return m.Spliced + m.Copied }
