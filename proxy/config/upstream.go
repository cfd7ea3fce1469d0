package config

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock/proxy/sockopt"
	"go.yaml.in/yaml/v4"
)

// An Upstream is a set of endpoints that provide the same service, and the policy that chooses among them.
type Upstream struct {
	Pos              Pos
	Name             string            `key:"name" type:"name" required:"yes" eg:"tenants" doc:"Name in routes, logs and metrics. It is unique."`
	Balance          string            `key:"balance" default:"round_robin" enum:"round_robin least_conn random_two maglev source_ip first" doc:"Policy that picks an endpoint, see balancing.md."`
	BalanceOn        string            `key:"balance_on" type:"clientkey" default:"source" eg:"sni" doc:"Property that maglev hashes: source, sni (of the ClientHello), user or database (of PostgreSQL) or tlv:0xe0 (that TLV of the PROXY header). Clients without it are hashed by source, and counted."`
	Endpoints        []Endpoint        `key:"endpoints" doc:"The endpoints. Write either endpoints or discover."`
	Discover         *Discover         `key:"discover" doc:"Service discovery, in place of endpoints."`
	ZoneAware        *ZoneAware        `key:"zone_aware" doc:"Prefers endpoints of this process's zone."`
	HealthCheck      *HealthCheck      `key:"health_check" on:"yes" doc:"Active health checks of the endpoints. off: none."`
	OutlierDetection *OutlierDetection `key:"outlier_detection" on:"yes" doc:"Stops sending clients for some time to endpoints that fail clients' connections (ejection). off: never."`
	CircuitBreaker   *CircuitBreaker   `key:"circuit_breaker" on:"yes" doc:"Makes no new connections for some time to an upstream or endpoint with too many failures. off: never."`
	Retry            Retry             `key:"retry" without:"{attempts: 0}" doc:"Tries other endpoints if the connect to an endpoint fails, before any byte of the client was forwarded."`
	Queue            Queue             `key:"queue" without:"{size: 0}" doc:"Queue for clients while every endpoint is full, or none is usable."`
	BackupWhen       string            `key:"backup_when" default:"down" enum:"down full" doc:"When backups get clients. down: if no other endpoint is usable. full: also if every other endpoint is at its limit of connections."`
	SlowStart        time.Duration     `key:"slow_start" default:"0s" range:"0..24h" eg:"30s" doc:"Time until a new or recovered endpoint has its full weight. 0: no slow start."`
	PanicBelow       float64           `key:"panic_below" default:"0.0" range:"0..1" eg:"0.3" doc:"If a smaller fraction of the endpoints is usable, all endpoints are used. 0: never."`
	Fallback         *Fallback         `key:"fallback" doc:"Destination of clients if no endpoint is usable. Absent: they are refused."`
	OnUnhealthy      string            `key:"on_unhealthy" default:"keep" enum:"keep drain reset" doc:"What happens to the connections of an endpoint that becomes unhealthy. keep: they stay. drain: they must end within drain_timeout. reset: they are reset."`
	OnRemoved        string            `key:"on_removed" default:"drain" enum:"keep drain reset" doc:"What happens to the connections of an endpoint that was removed, as in on_unhealthy."`
	DrainTimeout     time.Duration     `key:"drain_timeout" default:"5m" range:"0..8760h" doc:"Longest drain. Remaining connections are reset over its last tenth. 0: they are reset at once."`
	SendProxy        int               `key:"send_proxy" default:"0" range:"0..2" doc:"Version of the PROXY header that is sent to endpoints. 2 also forwards the TLVs of the client's own header. Checks of the endpoint's own port send one without a client (LOCAL, UNKNOWN). 0: no header."`
	SourceAddress    netip.Addr        `key:"source_address" default:"" eg:"10.0.0.1" doc:"Local address of connections to endpoints. Empty: the kernel chooses."`
	Socket           UpstreamSocket    `key:"socket" doc:"Options of the sockets to endpoints, in addition to the listener's."`
	StartTLS         string            `key:"starttls" default:"none" enum:"none postgres" doc:"Protocol in which endpoints are asked for TLS, by connections with tls and by checks over TLS. none: TLS begins at once."`
	TLS              *UpstreamTLS      `key:"tls" doc:"TLS to the endpoints. Absent: plain TCP."`
}

// UpstreamSocket are options of the sockets to an upstream's endpoints.
type UpstreamSocket struct {
	Pos        Pos
	Congestion string `key:"congestion" type:"congestion" default:"" eg:"bbr" doc:"Congestion control of connections to endpoints, not of checks. Empty: the system's default."`
}

// An Endpoint is a server of an upstream. It may be written as an address alone.
type Endpoint struct {
	Pos         Pos
	Address     Address `key:"address" required:"yes" eg:"10.0.0.12:443" doc:"host:port or unix:/path."`
	Name        string  `key:"name" type:"endpoint" default:"" eg:"b" doc:"Name in logs, metrics and the admin API, unique in the upstream. Empty: the address."`
	Weight      int     `key:"weight" default:"1" range:"0..256" doc:"Share of the clients, relative to the other weights. 0: no new clients."`
	Backup      bool    `key:"backup" default:"false" doc:"Used only if no other endpoint is usable, see backup_when."`
	Zone        string  `key:"zone" type:"zone" default:"" eg:"a" doc:"Zone of the endpoint, for zone_aware."`
	Connections int64   `key:"connections" default:"0" range:"0..100000000" doc:"Limit of concurrent connections. 0: no limit."`
	State       string  `key:"state" default:"ready" enum:"ready drain maint" doc:"drain: no new clients, sessions must end within drain_timeout, checks continue. maint: no new clients and no checks, sessions continue."`
}

// The states of an endpoint.
const (
	Ready = "ready"
	Drain = "drain"
	Maint = "maint"
)

// Discover says where endpoints are discovered. One of its members is set.
type Discover struct {
	Pos  Pos
	DNS  *DiscoverDNS  `key:"dns" doc:"DNS records, each used for its TTL."`
	File *DiscoverFile `key:"file" doc:"A watched file."`
}

// DiscoverDNS discovers endpoints by the records of a name.
type DiscoverDNS struct {
	Pos     Pos
	Name    string        `key:"name" type:"domain" required:"yes" eg:"_pg._tcp.db.example" doc:"Name to look up."`
	Type    string        `key:"type" default:"SRV" enum:"A AAAA A+AAAA SRV" doc:"Type of the records."`
	Port    int           `key:"port" default:"0" range:"0..65535" eg:"5432" doc:"Port of the endpoints, except with SRV."`
	Servers []Address     `key:"servers" eg:"10.0.0.2:53" doc:"Name servers. Empty: the name servers in /etc/resolv.conf."`
	MinTTL  time.Duration `key:"min_ttl" default:"1s" range:"100ms..24h" doc:"Shortest time between two lookups."`
	MaxTTL  time.Duration `key:"max_ttl" default:"5m" range:"1s..24h" doc:"Longest use of an answer."`
}

// DiscoverFile discovers endpoints in a file.
type DiscoverFile struct {
	Pos  Pos
	Path Path `key:"path" required:"yes" eg:"eps.yaml" doc:"YAML or JSON file with a list of endpoints. It can be created later. Replace it by rename(2)."`
}

// ZoneAware prefers the endpoints of a zone.
type ZoneAware struct {
	Pos        Pos
	Local      string  `key:"local" type:"zone" default:"" eg:"${ZONE}" doc:"Zone of this process. Empty: zones do not matter."`
	SpillBelow float64 `key:"spill_below" default:"0.7" range:"0..1" doc:"If a smaller fraction of the zone's endpoints is usable, other zones get clients too, in proportion."`
}

// Retry describes how often a client tries again if its endpoint cannot be reached.
type Retry struct {
	Pos        Pos
	Attempts   int           `key:"attempts" default:"2" range:"0..100" doc:"Retries of a client, first at endpoints that it has not tried. Further retries go only to endpoints that are expected to serve."`
	Backoff    time.Duration `key:"backoff" default:"25ms" range:"0..1m" doc:"Pause before a client tries the same endpoint again. The pause doubles each time. Other endpoints are tried at once."`
	MaxBackoff time.Duration `key:"max_backoff" default:"250ms" range:"0..1m" doc:"Longest pause."`
	Budget     float64       `key:"budget" default:"0.2" range:"0..1" doc:"Unsuccessful retries that are allowed in 10s, as a fraction of the number of clients, but at least 30. 0: no retries."`
}

// A Queue holds clients when no endpoint has room for them, or can serve them.
type Queue struct {
	Pos     Pos
	Size    int           `key:"size" default:"1024" range:"0..1000000" doc:"Longest queue. 0: none. With a fallback the default is 0."`
	Timeout time.Duration `key:"timeout" default:"5s" range:"1ms..1h" doc:"Longest wait if every endpoint is full. After it the client is refused."`
	Hold    time.Duration `key:"hold" default:"3s" range:"0..1m" doc:"Longest wait of a client if there is neither a usable endpoint nor a fallback. After it the client is refused. 0: no wait."`
}

// The floor of the retry budget: how many retries are allowed within RetryWindow, however few clients there are. They
// are enough to find out that two endpoints are dead.
const (
	RetryFloor  = 30
	RetryWindow = 10 * time.Second
)

// A Fallback is used when no endpoint is available. One of its members is set.
type Fallback struct {
	Pos      Pos
	Upstream string  `key:"upstream" type:"upstream" default:"" eg:"other" doc:"Upstream that serves these clients."`
	Respond  Content `key:"respond" default:"" eg:"sorry.txt" doc:"File, at most 64KiB, that is sent to these clients before the connection is closed."`
}

// UpstreamTLS describes TLS to endpoints.
type UpstreamTLS struct {
	Pos  Pos
	CA   Path   `key:"ca" default:"" eg:"ca.pem" doc:"PEM file of authorities for endpoint certificates. Empty: the system's."`
	SNI  string `key:"sni" type:"domain" default:"" eg:"db.example" doc:"Server name to send and to verify. Empty: the host of the endpoint's address."`
	Cert Path   `key:"cert" default:"" eg:"client.pem" doc:"PEM file of the client certificate. Empty: none."`
	Key  Path   `key:"key" default:"" eg:"client.key" doc:"PEM file of its private key."`
}

// EndpointKeys are the values of an endpoint's keys, as in a file. Empty texts and zeros mean the defaults, except
// that a Weight of 0 is 0.
type EndpointKeys struct {
	Address     string
	Name        string
	Zone        string
	Weight      int
	Backup      bool
	Connections int64
}

// NewEndpoint returns an endpoint with these values, and with the defaults of a file for the others. If the name is
// empty, it is the address. The error is one line, and says what to write instead.
func NewEndpoint(k *EndpointKeys) (Endpoint, error) {
	var e Endpoint
	v, o := reflect.ValueOf(&e).Elem(), root().byKey["upstreams"].obj.byKey["endpoints"].obj
	o.fill(v)
	var errs []error
	for key, text := range map[string]string{
		"address": k.Address, "name": k.Name, "zone": k.Zone, "weight": strconv.Itoa(k.Weight),
		"backup": strconv.FormatBool(k.Backup), "connections": strconv.FormatInt(k.Connections, 10),
	} {
		f := o.byKey[key]
		if text == "" && !f.required {
			continue
		}
		at := v.Field(f.index)
		c := f.form.set(nil, f, at, text)
		if c == nil {
			c = f.within(at)
		}
		if c != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %s", key, c.message, c.fix))
		}
	}
	if e.Name == "" {
		e.Name = e.Address.String()
	}
	return e, errors.Join(errs...)
}

// Admit returns why an endpoint cannot be added to the endpoints of an upstream in the configuration, or nil. It
// makes the same checks as for a file. The error is one line, and says what to write instead.
func (c *Config) Admit(upstream string, e *Endpoint) error {
	l := newLoader(nil)
	whole := *c
	whole.Upstreams = slices.Clone(c.Upstreams)
	k := newChecker(&l.decoder, &whole)
	if at := slices.IndexFunc(c.Upstreams, func(u *Upstream) bool { return u.Name == upstream }); at >= 0 {
		with := *c.Upstreams[at]
		k.endpoint(&with, e)
		for j := range with.Endpoints {
			if SameDestination(with.Endpoints[j].Address, e.Address) {
				k.complainAt(place{}, "write another address, or change the weight of that endpoint", "%s is the address of the endpoint %s", e.Address, with.Endpoints[j].Name)
			}
		}
		with.Endpoints = append(slices.Clip(with.Endpoints), *e)
		k.misnamed(with.Endpoints)
		whole.Upstreams[at], k.byName[upstream] = &with, &with
	}
	k.loops(&whole)
	if len(l.problems) == 0 {
		return nil
	}
	p := &l.problems[0]
	if p.Fix == "" {
		return errors.New(p.Message)
	}
	return fmt.Errorf("%s: %s", p.Message, p.Fix)
}

// SameDestination reports whether two addresses lead to the same destination. It does not resolve names.
func SameDestination(a, b sockopt.Address) bool { return destination(a) == destination(b) }

// A HealthCheck describes the health checks of an upstream's endpoints.
type HealthCheck struct {
	Pos          Pos
	Type         string        `key:"type" default:"tcp" enum:"tcp http" doc:"tcp: the check connects, and uses send and expect if they are set. http: the check sends a request."`
	Port         int           `key:"port" default:"0" range:"0..65535" eg:"8008" doc:"Port to check. 0: the endpoint's own."`
	Interval     time.Duration `key:"interval" default:"5s" range:"10ms..24h" doc:"Time between two checks of an endpoint."`
	FastInterval time.Duration `key:"fast_interval" default:"1s" range:"10ms..24h" doc:"Time between two checks while the endpoint is unhealthy, or about to change its state. A failure of a client causes a check, but never sooner after the last check than this. Default: 1s, or interval if that is less."`
	Timeout      time.Duration `key:"timeout" default:"2s" range:"1ms..1h" doc:"Longest duration of a check. Default: 2s, or interval if that is less."`
	Jitter       float64       `key:"jitter" default:"0.2" range:"0..1" doc:"Fraction of interval by which the interval varies at random."`
	Rise         int           `key:"rise" default:"2" range:"1..1000" doc:"Successful checks in a row that make an endpoint healthy."`
	Fall         int           `key:"fall" default:"3" range:"1..1000" doc:"Failed checks in a row that make an endpoint unhealthy."`
	HTTP         HTTPCheck     `key:"http" doc:"Request of an http check, and the expected answer."`
	Send         Secret        `key:"send" default:"" eg:"PING\r\n" doc:"Bytes that a tcp check sends."`
	Expect       Secret        `key:"expect" default:"" eg:"+PONG" doc:"Bytes that the answer must contain."`
	Standby      Secret        `key:"standby" default:"" eg:"role:slave" doc:"If the answer is not as expected, but it or its HTTP status line contains these bytes, the endpoint is a healthy standby: it gets no clients, and no problem is reported. Empty: no standby."`
	TLS          bool          `key:"tls" default:"false" doc:"Checks over TLS, without verifying the certificate. Default: true if the upstream has tls, and the check of type http or with send or expect goes to the endpoint's own port. Otherwise false."`
	SNI          string        `key:"sni" type:"domain" default:"" eg:"db.example" doc:"Server name of a check over TLS. Empty: as for clients at the endpoint's own port, otherwise none."`
}

// asks reports whether a check expects an answer, not just a connection.
func (h *HealthCheck) asks() bool {
	return h.Type == "http" || h.Send.Value != "" || h.Expect.Value != ""
}

// An HTTPCheck describes a request and its good answers.
type HTTPCheck struct {
	Pos    Pos
	Path   string `key:"path" type:"urlpath" default:"/" eg:"/primary" doc:"Path and query."`
	Host   string `key:"host" default:"" eg:"db.example" doc:"Host header. Empty: the endpoint's address."`
	Status []int  `key:"status" default:"200" range:"100..599" doc:"Expected status codes."`
	Body   Secret `key:"body" default:"" eg:"ok" doc:"Bytes that the body must contain. Empty: any body."`
}

// OutlierDetection ejects endpoints that fail real connections.
type OutlierDetection struct {
	Pos                 Pos
	ConsecutiveFailures int           `key:"consecutive_failures" default:"5" range:"0..1000000" doc:"Failures in a row that eject an endpoint. 0: this rule is off."`
	FailurePercentage   float64       `key:"failure_percentage" default:"0" range:"0..100" unit:"%" doc:"Percentage of failed connections that ejects an endpoint. 0: this rule is off."`
	Unanswered          time.Duration `key:"unanswered" default:"3s" range:"0..1h" doc:"Ejects an endpoint that has answered no client for this long while its peers answer, until it answers again. An endpoint that usually answers few clients is not ejected. 0: never."`
	AnswerWithin        time.Duration `key:"answer_within" default:"0s" range:"0..1h" eg:"200ms" doc:"Ejects an endpoint if half of its answers take longer than this to begin, although it was faster before and its peers are faster. Its connections stay. 0: this rule is off."`
	Window              time.Duration `key:"window" default:"30s" range:"100ms..24h" doc:"Time over which the percentage is measured."`
	MinVolume           int           `key:"min_volume" default:"20" range:"1..1000000000" doc:"With fewer connections in window, failure_percentage has no effect."`
	BaseEjectionTime    time.Duration `key:"base_ejection_time" default:"30s" range:"1ms..24h" doc:"Duration of an endpoint's first ejection. Each further ejection is longer."`
	MaxEjectionTime     time.Duration `key:"max_ejection_time" default:"5m" range:"1ms..24h" doc:"Longest ejection."`
	MaxEjected          float64       `key:"max_ejected" default:"0.5" range:"0..1" doc:"Fraction of the endpoints that may be ejected at once. Endpoints that are down, drained or of weight 0 do not count as ejected."`
}

// A CircuitBreaker pauses connections to an upstream or endpoint that fails too many of them.
type CircuitBreaker struct {
	Pos               Pos
	FailurePercentage float64       `key:"failure_percentage" default:"60" range:"0..100" unit:"%" doc:"Percentage of failed connections that opens the breaker. 0: this rule is off."`
	Window            time.Duration `key:"window" default:"30s" range:"100ms..24h" doc:"Time over which the percentage is measured."`
	MinVolume         int           `key:"min_volume" default:"20" range:"1..1000000000" doc:"With fewer connections in window, failure_percentage has no effect."`
	Open              time.Duration `key:"open" default:"60s" range:"1ms..24h" doc:"Longest time that the breaker stays open. After it the breaker is half-open. A successful check or a returning endpoint ends this time earlier."`
	TrialConnections  int           `key:"trial_connections" default:"5" range:"1..1000000" doc:"Trial connections of a half-open breaker. If they succeed, the breaker closes."`
	Connections       int64         `key:"connections" default:"0" range:"0..100000000" doc:"Limit of concurrent connections of the upstream. Further clients wait in the queue or are refused. 0: no limit."`
	Pending           int64         `key:"pending" default:"0" range:"0..100000000" doc:"Limit of concurrent connects to the upstream's endpoints. 0: no limit."`
}

// Limits of an endpoints file: its values, and the problems that are reported.
const (
	maxListed         = 200_000
	maxListedProblems = 20
)

// ParseEndpoints reads the text of an endpoints file, which lists endpoints as an upstream does. most limits their
// number. name is the name of the file in errors. An error joins a [Problem] for each error of the list.
func ParseEndpoints(name string, text []byte, most int) ([]Endpoint, error) {
	l := newLoader(nil)
	l.literal, l.names, l.src = true, []string{name}, newSource(name, text)
	l.src.most = maxListed
	var list []Endpoint
	n, problem := l.src.parse()
	whole := place{src: l.src, line: 1, col: 1, width: 1}
	switch {
	case problem != nil:
		l.problems = append(l.problems, *problem)
	case n == nil:
		l.complainAt(whole, "write [] for no endpoints", "the file is empty")
	case n.Kind != yaml.SequenceNode:
		l.complainAt(l.src.at(n), `write a list of endpoints, such as ["10.0.0.11:5432", {address: "10.0.0.12:5432", weight: 2}]`, "a file of endpoints must be a list, not %s", kindOf(n))
	case len(n.Content) > most:
		l.complainAt(l.src.at(n.Content[most]), "write fewer endpoints", "there are more than %d endpoints", most)
	default:
		l.field(described(reflect.TypeFor[Upstream]()).byKey["endpoints"], reflect.ValueOf(&list).Elem(), n)
		(&checker{decoder: &l.decoder}).listed(list)
	}
	if len(l.problems) == 0 {
		return list, nil
	}
	var all []error
	for i, p := range l.found() {
		if i == maxListedProblems {
			all = append(all, whole.problem("", "and more"))
			break
		}
		all = append(all, p)
	}
	return nil, errors.Join(all...)
}

// listed checks the endpoints of a file. They have no state, and each is at one host.
func (k *checker) listed(list []Endpoint) {
	k.misnamed(list)
	names := newNames(k.decoder, "endpoint")
	for i := range list {
		e := &list[i]
		at := k.at(&e.Address, e)
		identity := e.Name
		if identity == "" && e.Address.Network != "" {
			identity = e.Address.String()
		}
		names.define(&identity, k.at(&e.Name, e).or(at), "leave one out, or give it another name")
		if k.given(&e.State) {
			k.complainAt(k.at(&e.State, e), "leave it out", "a file of endpoints has no state")
		}
		if addr, err := netip.ParseAddrPort(e.Address.Name); e.Address.Network == "tcp" && err == nil && sockopt.NoHost(addr.Addr()) != "" {
			k.complainAt(at, "write the address of one server", "%s", sockopt.NoHost(addr.Addr()))
		}
	}
}
