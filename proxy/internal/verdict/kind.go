package verdict

// A Kind is a cause that may limit a session.
type Kind uint8

const (
	// Unknown means that the figures that would decide it could not be read.
	Unknown Kind = iota
	// Client means that the client program reads or sends slowly.
	Client
	// ClientNetwork means that the path to the client loses or delays bytes, or carries too few.
	ClientNetwork
	// Endpoint means that the endpoint reads, answers or sends slowly.
	Endpoint
	// EndpointNetwork means the same as ClientNetwork for the path to the endpoint.
	EndpointNetwork
	// Proxy means that this process had no CPU, or too much to do.
	Proxy
	// Limit means that the configuration limits the bandwidth.
	Limit
	// Idle means that neither side asked for anything.
	Idle
	// Kinds is the number of kinds.
	Kinds = int(iota)
)

var names = [Kinds]string{
	Unknown: "unknown", Client: "client", ClientNetwork: "client_network", Endpoint: "endpoint",
	EndpointNetwork: "endpoint_network", Proxy: "proxy", Limit: "limit", Idle: "idle",
}

// String returns the name, such as "client_network".
func (k Kind) String() string {
	if int(k) < Kinds {
		return names[k]
	}
	return names[Unknown]
}

var advice = [Kinds]string{
	Unknown:         "the kernel did not report the connections: read the waits, or run penstock why again while the session runs",
	Client:          "look at the client: it reads or sends slowly, and no change to the proxy makes it faster",
	ClientNetwork:   "look at the network path to the client: packet loss, queues and rate. A nearer proxy or another congestion control can help",
	Endpoint:        "look at the endpoint: its load, its disk, and what it waits for; if its load is the cause, more endpoints help",
	EndpointNetwork: "look at the network path to the endpoint: packet loss and full queues (ip -s link, ss -ti), and the rate of its link",
	Proxy:           "give the proxy more CPU: see its event loops in penstock status, their work in penstock profile, and throttling in cpu.stat of its cgroup",
	Limit:           "if this is not intended, raise the bandwidth limit in the configuration",
	Idle:            "nothing to do: neither side waited",
}

// TooYoung is the advice if all samples were shorter than [Least].
const TooYoung = "too short to judge: run penstock why with a longer --for, such as 5s"

// Advice returns what an operator should do next, as half a sentence.
func (k Kind) Advice() string {
	if int(k) < Kinds {
		return advice[k]
	}
	return advice[Unknown]
}
