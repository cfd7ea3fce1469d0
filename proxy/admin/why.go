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

// MaxWhy limits the time that a [WhyQuery] watches sessions.
const MaxWhy = time.Minute

// A WhyQuery selects joined sessions by one of its fields, or all joined sessions.
type WhyQuery struct {
	// Session is the ID or the client of a session, as in [Session]. Source is an address or a prefix of clients.
	Session string `param:"session"`
	Source  netip.Prefix
	// Endpoint is an address or a name.
	Endpoint string `param:"endpoint"`
	Upstream string `param:"upstream"`
	Listener string `param:"listener"`
	// For is how long the sessions are watched. 0 means the whole life of each session.
	For time.Duration `param:"for"`
}

// A Why says what slows sessions down.
type Why struct {
	// WindowUs is how long the sessions were watched. 0 means the whole life of each session.
	WindowUs int64 `json:"window_us"`
	// Count is the number of examined sessions. More says that there were more.
	Count int64 `json:"count"`
	More  bool  `json:"more,omitempty"`
	// Adopted counts the examined sessions from an earlier process: their figures cover only their time in the lane.
	Adopted int64 `json:"adopted,omitempty"`
	// Waiting counts the clients that match the query and have no endpoint yet. If the query names an upstream, these
	// are the clients that wait for it.
	Waiting int64 `json:"waiting,omitempty"`
	// Verdict is the cause that has kept these sessions waiting the longest, if it took a tenth of the time of some
	// endpoint's sessions or more. A client that sends nothing is no such cause. Otherwise Verdict is the cause with
	// the largest share. Without sessions it is [NoVerdict]. Shares are the parts of the sessions' time by cause:
	// client, client_network, endpoint, endpoint_network, proxy, limit, idle, unknown.
	Verdict string             `json:"verdict"`
	Shares  map[string]float64 `json:"shares"`
	Advice  string             `json:"advice"` // what to do next, in words
	// Verdicts counts the sessions by verdict.
	Verdicts map[string]int64 `json:"verdicts"`
	// Most is the endpoint with most of the verdict's time, if the verdict is endpoint or endpoint_network. For other
	// verdicts it is the upstream with most of that time, without Endpoint and Name. Left out if none has most of it.
	Most *EndpointWhy `json:"most,omitempty"`
	// Endpoints are the sessions' endpoints, at most 100, the largest Share first.
	Endpoints []EndpointWhy `json:"endpoints"`
	// Sessions are the sessions that were kept waiting longest, at most 100.
	Sessions []SessionWhy `json:"sessions"`
}

// Kinds returns the verdicts with a share: first Verdict, then the others by falling share.
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

// Label names an endpoint for a reader: by its name, followed by its address if that is different.
func Label(name, address string) string {
	if name == "" || name == address || address == "" {
		return cmp.Or(name, address)
	}
	return name + " (" + address + ")"
}

// NoVerdict is the verdict of a [Why] without sessions.
const NoVerdict = "none"

// An EndpointWhy says what slows the sessions of one endpoint down.
type EndpointWhy struct {
	Upstream string `json:"upstream,omitempty"` // upstream of the endpoint
	Endpoint string `json:"endpoint,omitempty"` // address of the endpoint
	Name     string `json:"name,omitempty"`     // name of the endpoint
	Sessions int64  `json:"sessions"`           // examined sessions
	Limited  int64  `json:"limited"`            // examined sessions with the same verdict as the whole
	// Share is this endpoint's part of all the time that the verdict took. Shares are the parts of the time of its own
	// sessions, by verdict.
	Share  float64            `json:"share"`
	Shares map[string]float64 `json:"shares"`
}

// A SessionWhy says what slows one session down.
type SessionWhy struct {
	Client   string             `json:"client"`             // client, as in [Session]
	Listener string             `json:"listener"`           // listener of the session
	Upstream string             `json:"upstream,omitempty"` // upstream of the session
	Endpoint string             `json:"endpoint"`           // address of the endpoint
	Name     string             `json:"name,omitempty"`     // name of the endpoint; left out without a name
	AgeUs    int64              `json:"age_us"`             // age in microseconds
	Adopted  bool               `json:"adopted,omitempty"`  // comes from an earlier process: the figures cover only its time in the lane
	Verdict  string             `json:"verdict"`            // verdict with the largest share
	Why      string             `json:"why"`                // the figures behind the verdict, in words
	Shares   map[string]float64 `json:"shares"`             // parts of its time by verdict, from 0 to 1
	Waits    WaitsUs            `json:"waits"`
	// ClientLeg and EndpointLeg are the kernel's accounts of the two connections. Left out if unknown.
	ClientLeg   *Leg `json:"client_leg,omitempty"`
	EndpointLeg *Leg `json:"endpoint_leg,omitempty"`
}

// WaitsUs says what a session has waited for, in microseconds.
type WaitsUs struct {
	ForClient      int64 `json:"for_client"`            // for bytes from the client
	ForEndpoint    int64 `json:"for_endpoint"`          // for bytes from the endpoint
	PausesClient   int64 `json:"pauses_client"`         // number of waits for the client
	PausesEndpoint int64 `json:"pauses_endpoint"`       // number of waits for the endpoint
	ToClient       int64 `json:"to_client"`             // for the client to take bytes
	ToEndpoint     int64 `json:"to_endpoint"`           // for the endpoint to take bytes
	Bandwidth      int64 `json:"bandwidth"`             // for a bandwidth limit
	Loop           int64 `json:"loop"`                  // for a turn of the event loop
	CPU            int64 `json:"cpu"`                   // for a CPU for the process's threads; 0 if unknown
	CPUUnknown     bool  `json:"cpu_unknown,omitempty"` // the wait for a CPU is unknown
}

// A Leg is the kernel's account of a TCP connection during the watched time. The round-trip times, the rate and the
// queues are present values.
type Leg struct {
	BusyUs        int64 `json:"busy_us"`         // time with unacknowledged bytes
	PeerWindowUs  int64 `json:"peer_window_us"`  // part of busy_us in which the peer's window held bytes back
	SendBufferUs  int64 `json:"send_buffer_us"`  // part of busy_us in which the send buffer here held bytes back
	RTTUs         int64 `json:"rtt_us"`          // smoothed round-trip time
	MinRTTUs      int64 `json:"min_rtt_us"`      // shortest round-trip time
	ReceiverRTTUs int64 `json:"receiver_rtt_us"` // round-trip time estimated from received bytes
	DeliveryRate  int64 `json:"delivery_rate"`   // bytes per second
	AppLimited    bool  `json:"app_limited"`     // too little was sent to find out a higher delivery_rate
	Sent          int64 `json:"sent"`            // bytes sent, including retransmitted bytes
	Received      int64 `json:"received"`        // bytes received
	NotSent       int64 `json:"not_sent"`        // bytes that wait in the send queue now and were never sent
	PacketsOut    int64 `json:"packets_out"`     // segments with payload that were sent
	PacketsIn     int64 `json:"packets_in"`      // segments with payload that were received
	Retransmitted int64 `json:"retransmitted"`   // segments that were sent again
	OutOfOrder    int64 `json:"out_of_order"`    // segments that arrived out of order
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

// Why returns what slows sessions down. It takes a little longer than q.For.
func (c *Client) Why(ctx context.Context, q WhyQuery) (Why, error) {
	all := append(pairs(&q), "for", q.For.String()) // 0s, too
	if q.Source.IsValid() {
		all = append(all, "source", q.Source)
	}
	return get[Why](ctx, c, "/v1/why", all...)
}
