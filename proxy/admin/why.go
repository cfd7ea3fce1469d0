package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/internal/source"
)

// MaxWhy is the longest time between the two looks of a [WhyQuery].
const MaxWhy = time.Minute

// A WhyQuery selects joined sessions by one of its fields, or all sessions.
type WhyQuery struct {
	// Session is the ID of a session, or its client, as [Session] has them, Source the address or prefix of clients.
	Session string `param:"session"`
	Source  netip.Prefix
	// Endpoint is an address or a name.
	Endpoint string `param:"endpoint"`
	Upstream string `param:"upstream"`
	Listener string `param:"listener"`
	// For is the time that is looked at; 0: since the beginning of each session.
	For time.Duration `param:"for"`
}

// A Why is what limits sessions.
type Why struct {
	// WindowUs is the time that was looked at; 0: since the beginning of each session.
	WindowUs int64 `json:"window_us"`
	// Count is how many sessions were looked at; More says that there were others.
	Count int64 `json:"count"`
	More  bool  `json:"more,omitempty"`
	// Adopted counts the sessions from an earlier process: their figures cover only their time in the
	// lane.
	Adopted int64 `json:"adopted,omitempty"`
	// Waiting counts the clients of the query without an endpoint; with an upstream in the query, the clients that wait for it.
	Waiting int64 `json:"waiting,omitempty"`
	// Verdict is the cause that has kept these sessions waiting for the longest, if it has a tenth of the time of some endpoint's sessions; a client that sends
	// nothing keeps nobody waiting. Else it is the verdict with the largest share. Without a session it is [NoVerdict]. Shares are of all the time of these sessions, by verdict:
	// client, client_network, endpoint, endpoint_network, proxy, limit, idle, unknown.
	Verdict string             `json:"verdict"`
	Shares  map[string]float64 `json:"shares"`
	Advice  string             `json:"advice"` // the next step, in words
	// Verdicts counts the sessions by verdict.
	Verdicts map[string]int64 `json:"verdicts"`
	// Most is the endpoint with most of the verdict's time, if the verdict is endpoint or
	// endpoint_network, or else the upstream with most of it, without Endpoint and Name; nil: neither
	// has.
	Most *EndpointWhy `json:"most,omitempty"`
	// Endpoints are the sessions' endpoints, up to 100, the largest Share first.
	Endpoints []EndpointWhy `json:"endpoints"`
	// Sessions are the sessions that were kept waiting for the longest, up to 100.
	Sessions []SessionWhy `json:"sessions"`
}

// Kinds returns the verdicts that have a share: Verdict, and then the others from the largest share on.
func (w *Why) Kinds() []string {
	return slices.SortedFunc(maps.Keys(w.Shares), func(a, b string) int {
		switch w.Verdict {
		case a:
			return -1
		case b:
			return 1
		}
		return cmp.Or(cmp.Compare(w.Shares[b], w.Shares[a]), cmp.Compare(a, b))
	})
}

// Label names an endpoint for a reader: by its name, with its address if that is another.
func Label(name, address string) string {
	if name == "" || name == address || address == "" {
		return cmp.Or(name, address)
	}
	return name + " (" + address + ")"
}

// NoVerdict is the verdict of a [Why] without sessions.
const NoVerdict = "none"

// An EndpointWhy is what limits the sessions of one endpoint.
type EndpointWhy struct {
	Upstream string `json:"upstream,omitempty"` // that it is of
	Endpoint string `json:"endpoint,omitempty"` // its address
	Name     string `json:"name,omitempty"`     // its name
	Sessions int64  `json:"sessions"`           // that were looked at
	Limited  int64  `json:"limited"`            // of those, with the verdict of the Why
	// Share is this endpoint's part of the verdict's time in all sessions. Shares are the parts of its
	// own sessions' time, by verdict.
	Share  float64            `json:"share"`
	Shares map[string]float64 `json:"shares"`
}

// A SessionWhy is what limits one session.
type SessionWhy struct {
	Client   string             `json:"client"`             // its source, as in [Session]
	Listener string             `json:"listener"`           // where it came in
	Upstream string             `json:"upstream,omitempty"` // that it went to
	Endpoint string             `json:"endpoint"`           // its address
	Name     string             `json:"name,omitempty"`     // of the endpoint; left out: it has none
	AgeUs    int64              `json:"age_us"`             // in microseconds
	Adopted  bool               `json:"adopted,omitempty"`  // a process before this one had it: figures are of its time in the lane alone
	Verdict  string             `json:"verdict"`            // with the largest share
	Why      string             `json:"why"`                // the figures that carry it
	Shares   map[string]float64 `json:"shares"`             // of its time, by verdict: from 0 to 1
	Waits    WaitsUs            `json:"waits"`
	// ClientLeg and EndpointLeg are the kernel's accounts of the two connections; nil: unknown.
	ClientLeg   *Leg `json:"client_leg,omitempty"`
	EndpointLeg *Leg `json:"endpoint_leg,omitempty"`
}

// WaitsUs is how the time of a session has passed, in microseconds.
type WaitsUs struct {
	ForClient      int64 `json:"for_client"`            // for bytes of the client
	ForEndpoint    int64 `json:"for_endpoint"`          // for bytes of the endpoint
	PausesClient   int64 `json:"pauses_client"`         // of those waits
	PausesEndpoint int64 `json:"pauses_endpoint"`       // likewise
	ToClient       int64 `json:"to_client"`             // for the client to take some
	ToEndpoint     int64 `json:"to_endpoint"`           // for the endpoint to take some
	Bandwidth      int64 `json:"bandwidth"`             // for a limit
	Loop           int64 `json:"loop"`                  // for a turn of the loop
	CPU            int64 `json:"cpu"`                   // for which a thread of the process had no CPU; 0 if unknown
	CPUUnknown     bool  `json:"cpu_unknown,omitempty"` // whether that is unknown
}

// A Leg is the kernel's account of a TCP connection: of the time that is looked at, except for the
// round-trip times, the rate and the queues.
type Leg struct {
	BusyUs        int64 `json:"busy_us"`         // with bytes outstanding
	PeerWindowUs  int64 `json:"peer_window_us"`  // of that: kept back by the peer's window
	SendBufferUs  int64 `json:"send_buffer_us"`  // and kept back by our send buffer
	RTTUs         int64 `json:"rtt_us"`          // smoothed round-trip time
	MinRTTUs      int64 `json:"min_rtt_us"`      // the least round-trip time
	ReceiverRTTUs int64 `json:"receiver_rtt_us"` // estimated from bytes that came
	DeliveryRate  int64 `json:"delivery_rate"`   // bytes a second
	AppLimited    bool  `json:"app_limited"`     // too little was to be sent to find out more of DeliveryRate
	Sent          int64 `json:"sent"`            // bytes, those sent again included
	Received      int64 `json:"received"`        // bytes
	NotSent       int64 `json:"not_sent"`        // bytes that wait in the send queue, and were never sent, now
	PacketsOut    int64 `json:"packets_out"`     // segments with payload, sent
	PacketsIn     int64 `json:"packets_in"`      // segments with payload, received
	Retransmitted int64 `json:"retransmitted"`   // segments sent again
	OutOfOrder    int64 `json:"out_of_order"`    // segments that came out of order
}

func (s *Server) why(ctx context.Context, a *arguments) (any, error) {
	var q WhyQuery
	a.into(&q)
	if q.For > MaxWhy {
		return nil, fmt.Errorf("%w: for: %v: write a time up to %v, such as 1s; 0s is since the beginning of each session", ErrInvalid, q.For, MaxWhy)
	}
	if of := a.text("source"); of != "" {
		var err error
		if q.Source, err = ParseSource(of); err != nil {
			return nil, fmt.Errorf("%w: source: %w", ErrInvalid, err)
		}
	}
	return s.cfg.Balancer.Why(ctx, q)
}

// ParseSource reads an address or a prefix, as [source.ParsePrefix] does.
func ParseSource(text string) (netip.Prefix, error) {
	return source.ParsePrefix(text, "write 10.0.0.7 or 10.0.0.0/8")
}

// Why returns what limits sessions. It takes as long as q.For and a little more.
func (c *Client) Why(ctx context.Context, q WhyQuery) (Why, error) {
	all := append(pairs(&q), "for", q.For.String()) // 0s, too
	if q.Source.IsValid() {
		all = append(all, "source", q.Source)
	}
	return get[Why](ctx, c, "/v1/why", all...)
}
