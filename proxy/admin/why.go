package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// MaxWhy is the longest time between the two looks of a [WhyQuery].
const MaxWhy = time.Minute

// A WhyQuery selects joined sessions by one of its names, or all.
type WhyQuery struct {
	// Session is a client as [Session] has it, Source the address or prefix of clients.
	Session string
	Source  netip.Prefix
	// Endpoint is an address or a name.
	Endpoint, Upstream, Listener string
	// For is the time that is looked at; 0: since the beginning of each session.
	For time.Duration
}

// A Why is what limits sessions.
type Why struct {
	// WindowUs is the time that was looked at; 0: since the beginning of each session.
	WindowUs int64 `json:"window_us"`
	// Count is how many sessions were looked at; More says that there were others.
	Count int64 `json:"count"`
	More  bool  `json:"more,omitempty"`
	// Verdict is the verdict with the largest share, and Shares are of all the time of these sessions, by verdict:
	// client, client_network, endpoint, endpoint_network, proxy, limit, idle, unknown.
	Verdict string             `json:"verdict"`
	Shares  map[string]float64 `json:"shares"`
	Advice  string             `json:"advice"`
	// Verdicts counts the sessions by verdict.
	Verdicts map[string]int64 `json:"verdicts"`
	// Sessions are those that were not idle for the longest, up to 100.
	Sessions []SessionWhy `json:"sessions"`
}

// A SessionWhy is what limits one session.
type SessionWhy struct {
	Client   string             `json:"client"`
	Listener string             `json:"listener"`
	Upstream string             `json:"upstream,omitempty"`
	Endpoint string             `json:"endpoint"` // its address
	Name     string             `json:"name,omitempty"`
	AgeUs    int64              `json:"age_us"`
	Verdict  string             `json:"verdict"`
	Why      string             `json:"why"` // the figures that carry it
	Shares   map[string]float64 `json:"shares"`
	Waits    WaitsUs            `json:"waits"`
	// ClientLeg and EndpointLeg are the kernel's accounts of the two connections; nil: unknown.
	ClientLeg   *Leg `json:"client_leg,omitempty"`
	EndpointLeg *Leg `json:"endpoint_leg,omitempty"`
}

// WaitsUs is how the time of a session has passed, in microseconds.
type WaitsUs struct {
	ForClient      int64 `json:"for_client"`    // for bytes of the client
	ForEndpoint    int64 `json:"for_endpoint"`  // for bytes of the endpoint
	PausesClient   int64 `json:"pauses_client"` // of those waits
	PausesEndpoint int64 `json:"pauses_endpoint"`
	ToClient       int64 `json:"to_client"` // for the client to take some
	ToEndpoint     int64 `json:"to_endpoint"`
	Bandwidth      int64 `json:"bandwidth"` // for a limit
	Loop           int64 `json:"loop"`      // for a turn of the loop
	CPU            int64 `json:"cpu"`       // for which a thread of the process had no CPU; 0 if unknown
	CPUUnknown     bool  `json:"cpu_unknown,omitempty"`
}

// A Leg is the kernel's account of a TCP connection: of the time that is looked at, but for the round-trip times, the
// rate and the queues.
type Leg struct {
	BusyUs        int64 `json:"busy_us"`        // with bytes outstanding
	PeerWindowUs  int64 `json:"peer_window_us"` // of that: kept back by the peer's window
	SendBufferUs  int64 `json:"send_buffer_us"` // and by our send buffer
	RTTUs         int64 `json:"rtt_us"`
	MinRTTUs      int64 `json:"min_rtt_us"`
	ReceiverRTTUs int64 `json:"receiver_rtt_us"` // estimated from bytes that came
	DeliveryRate  int64 `json:"delivery_rate"`   // bytes a second
	AppLimited    bool  `json:"app_limited"`
	Sent          int64 `json:"sent"`
	Received      int64 `json:"received"`
	NotSent       int64 `json:"not_sent"`
	PacketsOut    int64 `json:"packets_out"`
	PacketsIn     int64 `json:"packets_in"`
	Retransmitted int64 `json:"retransmitted"`
	OutOfOrder    int64 `json:"out_of_order"`
}

// why handles GET /why.
func (s *Server) why(ctx context.Context, a *arguments) (any, error) {
	q := WhyQuery{Session: a.session, Endpoint: a.endpoint, Upstream: a.upstream, Listener: a.listener, For: a.window}
	if a.source != "" {
		q.Source, _ = ParseSource(a.source)
	}
	return s.cfg.Balancer.Why(ctx, q)
}

func whyTime(a *arguments, values []string) error {
	v, err := once(values)
	if err != nil {
		return err
	}
	if a.window, err = time.ParseDuration(v); err != nil || a.window < 0 || a.window > MaxWhy {
		return fmt.Errorf("%q: write a time up to %v, such as 1s; 0s is since the beginning of each session", v, MaxWhy)
	}
	return nil
}

func whySource(a *arguments, values []string) error {
	if err := text(&a.source, values); err != nil {
		return err
	}
	_, err := ParseSource(a.source)
	return err
}

// ParseSource reads an address or a prefix.
func ParseSource(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p, nil
	}
	at, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a prefix: write 10.0.0.7 or 10.0.0.0/8", text)
	}
	return netip.PrefixFrom(at, at.BitLen()), nil
}

// Why returns what limits sessions. It takes as long as q.For and a little more.
func (c *Client) Why(ctx context.Context, q WhyQuery) (w Why, err error) {
	values := url.Values{"for": {q.For.String()}}
	for name, v := range map[string]string{"session": q.Session, "endpoint": q.Endpoint, "upstream": q.Upstream, "listener": q.Listener} {
		if v != "" {
			values.Set(name, v)
		}
	}
	if q.Source.IsValid() {
		values.Set("source", q.Source.String())
	}
	return w, c.do(ctx, http.MethodGet, "/why", values, &w)
}
