package config

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/clientkey"
)

// A Listener accepts clients from allowed sources and routes them to upstreams.
type Listener struct {
	Pos         Pos
	Name        string         `key:"name" type:"name" required:"yes" eg:"web" doc:"Name in logs, metrics and the admin API. It is unique."`
	Bind        []Bind         `key:"bind" required:"yes" single:"yes" eg:":443" doc:"Addresses. :443 means every address of this machine, 0.0.0.0:443 every IPv4 address, [::]:443 every IPv6 address, and localhost 127.0.0.1. Other names are refused."`
	Allow       []Rule         `key:"allow" eg:"10.0.0.0/8" doc:"Accepted sources, except those in deny. Clients of unix sockets must be listed too. Empty: all."`
	Deny        []Rule         `key:"deny" eg:"10.6.6.0/24" doc:"Refused sources, even if allow lists them."`
	AcceptProxy *AcceptProxy   `key:"accept_proxy" doc:"Reads a PROXY header with the client's address. Absent: no PROXY header is read."`
	Transparent bool           `key:"transparent" default:"false" doc:"Accepts clients that a TPROXY or REDIRECT rule sends here. They go to the upstream of a route or listener that matches, or else to their original destination."`
	Routes      []Route        `key:"routes" doc:"Routes to upstreams. The first route that matches is taken. No match: the key upstream."`
	Upstream    string         `key:"upstream" type:"upstream" default:"" eg:"fallback-web" doc:"Upstream of clients that no route matches. Empty: they are refused and counted."`
	Limits      ListenerLimits `key:"limits" doc:"Limits of this listener."`
	Timeouts    Timeouts       `key:"timeouts" doc:"Longest duration of each phase of a connection."`
	Connect     string         `key:"connect" default:"immediately" enum:"immediately on_data" doc:"When to connect to the endpoint. immediately: when the upstream is chosen. on_data: after the client's first byte, with tls the first decrypted byte."`
	TLS         *ListenerTLS   `key:"tls" doc:"Terminates TLS. Absent: TLS is passed through."`
	Silence     time.Duration  `key:"preread_silence" default:"0s" range:"0..1h" eg:"200ms" doc:"For routes that need the client's first bytes. A client that sends nothing for this long goes to the route with protocol: [silence], or else to a route that needs no bytes, or else to upstream. If the server speaks first, each client waits this long. 0: silent clients are refused after timeouts.preread."`
	RequireTLS  bool           `key:"require_tls" default:"false" doc:"Refuses clients that do not begin with a TLS ClientHello. false: if there are routes by sni or alpn, these clients go to another route, or to upstream."`
	Postgres    string         `key:"postgres" default:"none" enum:"none passthrough terminate" doc:"Clients speak PostgreSQL, and Penstock answers their requests for encryption. passthrough: TLS ends at the endpoint, and routes by sni apply. terminate: TLS ends here (tls), and routes by user and database apply too. Clients without TLS have no sni. require_tls refuses them."`
	Mirror      *Mirror        `key:"mirror" doc:"Copies the bytes of some clients to a second upstream. A route can have its own mirror."`
	Rewrite     *Rewrite       `key:"rewrite" doc:"A module rewrites the bytes of one direction. A route can have its own rewrite."`
	Filter      *Filter        `key:"filter" doc:"A WebAssembly module accepts, refuses or routes clients: see filters.md. A route can have its own filter."`
	Lane        string         `key:"lane" default:"off" enum:"off auto require" doc:"Moves eligible sessions into the kernel, see lane.md. The other sessions stay in user space and are counted. auto: if possible. require: without the lane the process does not start. off: sessions that have left user space come back. Absent: lane.default."`
	SessionLog  bool           `key:"session_log" default:"true" doc:"Writes lines to the session log. false: none."`
	MetricsBy   *MetricsBy     `key:"metrics_by" doc:"Also counts sessions and bytes by a property of the clients."`
	Socket      Socket         `key:"socket" doc:"Options of the sockets."`
}

// AcceptProxy describes the sources from which a PROXY header is read.
type AcceptProxy struct {
	Pos      Pos
	Versions []int         `key:"versions" default:"1 2" range:"1..2" doc:"Accepted versions of the header."`
	From     []Rule        `key:"from" eg:"10.0.0.0/8" doc:"Sources that must send a header and are trusted. Other clients, on unix sockets too, are served without a header. Empty: every client must send a header."`
	Timeout  time.Duration `key:"timeout" default:"3s" range:"1ms..1h" doc:"Longest wait for the header."`
}

// A Route sends the clients that it matches to one upstream, or shares them among several.
type Route struct {
	Pos      Pos
	Match    Match    `key:"match" doc:"Conditions. A client must meet all of them. Absent: every client matches."`
	Upstream string   `key:"upstream" type:"upstream" default:"" eg:"tenants" doc:"Upstream of this route's clients."`
	Split    []Share  `key:"split" doc:"In place of upstream: several upstreams with a percentage each, for a canary."`
	Filter   *Filter  `key:"filter" doc:"In place of the listener's filter."`
	Mirror   *Mirror  `key:"mirror" doc:"In place of the listener's mirror."`
	Rewrite  *Rewrite `key:"rewrite" doc:"In place of the listener's rewrite."`
}

// A Match holds the conditions of a route. A client must meet all given conditions; it meets a list if it meets one
// of its elements.
type Match struct {
	Pos    Pos
	SNI    []string `key:"sni" type:"servername" eg:"*.example.com" doc:"Server names of the TLS ClientHello: an exact name, *.example.com for all names below example.com, or * for any name."`
	ALPN   []string `key:"alpn" type:"protocol" eg:"h2" doc:"Application protocols. A TLS client that offers one of them matches."`
	Source []Rule   `key:"source" eg:"10.1.0.0/16" doc:"Sources of clients."`
	Port   int      `key:"port" default:"0" range:"0..65535" eg:"443" doc:"Destination port of the connection, or of its PROXY header. 0: any."`

	Protocol []string    `key:"protocol" enum:"tls http1 http2 ssh postgres redis silence tls_malformed" eg:"ssh" doc:"Protocols, recognised by the client's first bytes: see first-bytes.md. silence: the client sent nothing for preread_silence. tls_malformed: TLS without a readable ClientHello. Without a route for tls_malformed, such a client is refused if a route by sni or alpn could be meant for it."`
	Host     []string    `key:"host" type:"servername" eg:"*.example.com" doc:"Hosts of the first HTTP/1 request in clear text, written as in sni. A request with an ambiguous host is refused."`
	Path     []string    `key:"path" type:"requestpath" eg:"/api/*" doc:"Paths of the first HTTP/1 request: an exact path, or /api/* for all paths below /api. Escapes are decoded once. Upper and lower case differ. Ambiguous paths (.., //, %2F, ;) are refused."`
	User     []string    `key:"user" eg:"app" doc:"Users of PostgreSQL, as the client names them."`
	Database []string    `key:"database" eg:"shop" doc:"Databases of PostgreSQL, as the client names them. If the client names no database, the user's name counts."`
	Bytes    []ByteMatch `key:"bytes" doc:"Patterns. The client's first bytes must match one of them."`
	TLV      []TLVMatch  `key:"tlv" doc:"TLVs. The client's PROXY header of version 2 must have one of them."`
}

// A ByteMatch is bytes at a place in what a client sends first.
type ByteMatch struct {
	Pos    Pos
	Offset int    `key:"offset" default:"0" range:"0..4095" unit:"B" eg:"4" doc:"Offset of the first byte."`
	Text   string `key:"text" default:"" eg:"RFB " doc:"The bytes, as text."`
	Hex    string `key:"hex" type:"hex" default:"" eg:"0300" doc:"In place of text: the bytes in hexadecimal."`
	Mask   string `key:"mask" type:"hex" default:"" eg:"ff00" doc:"Bits to compare, in hexadecimal, as long as text or hex. Empty: all bits."`
}

// A TLVMatch is a TLV of a PROXY header.
type TLVMatch struct {
	Pos  Pos
	Type int    `key:"type" required:"yes" range:"0..255" eg:"0xE0" doc:"Type of the TLV."`
	Text string `key:"text" default:"" eg:"vpc-1" doc:"Value of the TLV, as text. If text and hex are empty, any value matches."`
	Hex  string `key:"hex" type:"hex" default:"" eg:"01" doc:"In place of text: the value in hexadecimal."`
}

// A Share is one upstream of a split.
type Share struct {
	Pos      Pos
	Upstream string  `key:"upstream" type:"upstream" required:"yes" eg:"shop-next" doc:"Upstream of this share."`
	Percent  float64 `key:"percent" required:"yes" range:"0..100" unit:"%" eg:"5" doc:"Size of the share, with up to two decimals. All shares together are 100."`
}

// ListenerLimits are the limits of a listener. 0 is no limit.
type ListenerLimits struct {
	Pos                    Pos
	Connections            int64     `key:"connections" default:"0" range:"0..100000000" doc:"Limit of concurrent connections. At the limit, accepting pauses. 0: no limit."`
	PerSecond              int64     `key:"per_second" default:"0" range:"0..100000000" unit:"1/s" doc:"Limit of new connections per second; after a pause as many come at once. At the limit, accepting pauses. 0: no limit."`
	PerSource              int64     `key:"per_source" default:"0" range:"0..100000000" doc:"Limit of concurrent connections of one source (on a unix socket, of one user). Further connections are refused. 0: no limit."`
	PerSourcePerSecond     int64     `key:"per_source_per_second" default:"0" range:"0..100000000" unit:"1/s" doc:"Limit of new connections of one source per second; after a pause as many come at once. Further connections are refused. 0: no limit."`
	SourcePrefix           [2]int    `key:"source_prefix" default:"32 64" range:"1..32 1..128" unit:"bits" doc:"Addresses that share a prefix of this length (IPv4, IPv6) count as one source."`
	Bandwidth              Bandwidth `key:"bandwidth" doc:"Limit of the rate of all connections together: one number for both directions, or a section. Busy directions take turns, so many connections of one source delay the others."`
	BandwidthPerConnection Bandwidth `key:"bandwidth_per_connection" doc:"Limit of the rate of one connection."`
}

// A Bandwidth is a limit in bytes per second. A rate without keys limits both directions together.
type Bandwidth struct {
	Pos   Pos
	Both  int64 `key:"both" type:"rate" default:"0" range:"0..1PiB" unit:"B/s" eg:"64MiB" doc:"Both directions together. 0: no limit."`
	Up    int64 `key:"up" type:"rate" default:"0" range:"0..1PiB" unit:"B/s" eg:"10MiB" doc:"From clients to endpoints. 0: no limit."`
	Down  int64 `key:"down" type:"rate" default:"0" range:"0..1PiB" unit:"B/s" eg:"50MiB" doc:"From endpoints to clients. 0: no limit."`
	Burst int64 `key:"burst" type:"size" default:"0" range:"0..1PiB" unit:"B" eg:"1MiB" doc:"Bytes that may move at once after an idle time. The least is what the rate allows in 2ms. 0: what the rate allows in 100ms, at least 16KiB."`
}

// Timeouts bound each phase of a connection. 0 is no bound.
type Timeouts struct {
	Pos            Pos
	Preread        time.Duration `key:"preread" default:"5s" range:"1ms..1h" doc:"Longest wait for the client's first bytes (if a route or connect: on_data needs them), and for its TLS handshake. After it the client is refused."`
	Connect        time.Duration `key:"connect" default:"5s" range:"0..1h" doc:"Longest time to connect to one endpoint, over all its addresses, with the TLS handshake. 0: as long as the kernel tries, and 10s for a handshake."`
	FirstByte      time.Duration `key:"first_byte" default:"0s" range:"0..8760h" eg:"3s" doc:"Longest wait for the endpoint's first byte. After it the connection is reset and counts as a failure of the endpoint. If clients speak first, also set connect: on_data: otherwise silent clients count as failures of endpoints. 0: no bound."`
	Idle           time.Duration `key:"idle" default:"1h" range:"0..8760h" doc:"Longest time without a byte in either direction. A byte is under way until it is acknowledged. If a receiver stops acknowledging, the end may come up to this time later. 0: no bound."`
	HalfClose      time.Duration `key:"half_close" default:"1m" range:"0..8760h" doc:"Longest time without a byte after one side has sent its end of file, counted as for idle. 0: no bound."`
	Lifetime       time.Duration `key:"lifetime" default:"0s" range:"0..8760h" eg:"12h" doc:"Longest duration of a connection. 0: no bound."`
	LifetimeJitter float64       `key:"lifetime_jitter" default:"0.1" range:"0..1" doc:"The lifetime of each connection is shortened by a random part, at most this fraction, so that clients do not all reconnect at once."`
}

// ListenerTLS describes how TLS is terminated.
type ListenerTLS struct {
	Pos          Pos
	Certificates []Certificate `key:"certificates" required:"yes" doc:"Certificates, chosen by the client's server name. If none matches, the first is used. The files are watched."`
	ClientCA     Path          `key:"client_ca" default:"" eg:"clients.pem" doc:"PEM file of authorities for client certificates. Empty: clients need none."`
	MinVersion   string        `key:"min_version" default:"1.2" enum:"1.2 1.3" doc:"Oldest accepted version of TLS."`
	ALPN         []string      `key:"alpn" type:"protocol" eg:"h2" doc:"Application protocols, the preferred protocol first. Empty: none is negotiated."`
}

// A Certificate is a pair of PEM files.
type Certificate struct {
	Pos  Pos
	Cert Path `key:"cert" required:"yes" eg:"a.pem" doc:"PEM file of the certificate and its intermediates."`
	Key  Path `key:"key" required:"yes" eg:"a.key" doc:"PEM file of its private key."`
}

// Socket holds the options of a listener's sockets and of the sockets to its endpoints.
type Socket struct {
	Pos         Pos
	Backlog     int           `key:"backlog" default:"4096" range:"1..65535" doc:"Length of the accept queue; net.core.somaxconn bounds it. A socket of systemd keeps its Backlog= until a reload changes this."`
	KeepAlive   time.Duration `key:"keepalive" default:"60s" range:"0..9h" doc:"Idle time before keepalive probes (TCP_KEEPIDLE). 0: never."`
	UserTimeout time.Duration `key:"user_timeout" default:"30s" range:"0..24h" doc:"Closes a connection if for this time the peer acknowledges no bytes, or answers no probe of a closed window or an idle connection (TCP_USER_TIMEOUT). 0: the kernel's default."`
	FastOpen    bool          `key:"fastopen" default:"false" doc:"Accepts data in the first packet (TCP_FASTOPEN)."`
	Congestion  string        `key:"congestion" type:"congestion" default:"" eg:"bbr" doc:"Congestion control of clients' connections. Without CAP_NET_ADMIN only those in net.ipv4.tcp_allowed_congestion_control are possible. Empty: the system's default."`
	MPTCP       bool          `key:"mptcp" default:"false" doc:"Accepts Multipath TCP. If the kernel cannot splice such connections, their bytes are copied."`
}

// Content returns the bytes of the pattern, and its mask. A nil mask means that every bit counts.
func (b *ByteMatch) Content() (content, mask []byte) {
	if b.Mask != "" {
		mask = decoded(b.Mask)
	}
	return textOrHex(b.Text, b.Hex), mask
}

// Value returns the value of the TLV, or nil for any value.
func (t *TLVMatch) Value() []byte {
	if t.Text == "" && t.Hex == "" {
		return nil
	}
	return textOrHex(t.Text, t.Hex)
}

func textOrHex(text, digits string) []byte {
	if digits != "" {
		return decoded(digits)
	}
	return []byte(text)
}

// decoded returns the bytes of hexadecimal digits. They were checked before.
func decoded(digits string) []byte {
	b, _ := hex.DecodeString(digits)
	return b
}

// FirstBytes reports whether the route depends on first bytes of a client other than its TLS hello.
func (m *Match) FirstBytes() bool {
	return len(m.Protocol)+len(m.Host)+len(m.Path)+len(m.User)+len(m.Database)+len(m.Bytes) > 0
}

// spoken returns the protocols that clients of the route may speak, or nothing for any protocol.
func (m *Match) spoken() []string {
	switch {
	case len(m.Protocol) > 0:
		return m.Protocol
	case len(m.SNI)+len(m.ALPN) > 0:
		return []string{"tls"}
	case len(m.Host)+len(m.Path) > 0:
		return []string{"http1"}
	case len(m.User)+len(m.Database) > 0:
		return []string{"postgres"}
	}
	return nil
}

// silent reports whether the route takes silent clients.
func (m *Match) silent() bool { return slices.Contains(m.Protocol, "silence") }

func (b *ByteMatch) equal(o *ByteMatch) bool {
	one, oneMask := b.Content()
	other, otherMask := o.Content()
	return b.Offset == o.Offset && slices.Equal(one, other) && slices.Equal(oneMask, otherMask)
}

func (t *TLVMatch) equal(o *TLVMatch) bool {
	return t.Type == o.Type && slices.Equal(t.Value(), o.Value()) && (t.Value() == nil) == (o.Value() == nil)
}

// The ways in which a listener treats PostgreSQL clients, and the protocol that asks endpoints for TLS.
const (
	PostgresPassthrough = "passthrough"
	PostgresTerminate   = "terminate"
	StartTLSPostgres    = "postgres"
	none                = "none"
)

// SpeaksPostgres reports whether the clients of a listener speak PostgreSQL.
func (ln *Listener) SpeaksPostgres() bool { return ln.Postgres != none && ln.Postgres != "" }

// postgres checks that a listener has the keys that its treatment of PostgreSQL needs, and no others.
func (k *checker) postgres(ln *Listener) {
	if k.bad[&ln.Postgres] || k.bad[ln] {
		return
	}
	at := k.at(&ln.Postgres, ln)
	switch {
	case ln.Postgres == PostgresTerminate && ln.TLS == nil && !k.bad[&ln.TLS]:
		k.complainAt(at, "write tls: as well, or postgres: passthrough", "TLS cannot end here: tls is missing")
	case ln.Postgres == PostgresPassthrough && ln.TLS != nil:
		k.complainAt(at, "write postgres: terminate, or leave tls out", "tls has no effect: TLS is passed through")
	case ln.Postgres == PostgresTerminate && ln.TLS.ClientCA != "" && !ln.RequireTLS && !k.bad[&ln.RequireTLS]:
		k.complainAt(at, "write require_tls: true as well", "client_ca asks only clients with TLS for a certificate, and with postgres: terminate clients may connect without TLS")
	case ln.SpeaksPostgres() && ln.Connect == "on_data":
		k.complainAt(k.at(&ln.Connect, ln), "leave it out", "with postgres: %s, the first message is always read before the connect to an endpoint", ln.Postgres)
	}
	for i := range ln.Routes {
		m := &ln.Routes[i].Match
		switch {
		case k.bad[m] || !ln.SpeaksPostgres():
		case len(m.Protocol)+len(m.Host)+len(m.Path)+len(m.Bytes) > 0:
			k.complainAt(k.at(m, &ln.Routes[i]), "write sni, user or database", "the clients of this listener speak PostgreSQL: protocol, host, path and bytes do not apply")
		case len(m.User)+len(m.Database) == 0:
		case ln.Postgres == PostgresPassthrough && (ln.RequireTLS || len(m.SNI)+len(m.ALPN) > 0):
			k.warnAt(k.at(m, &ln.Routes[i]), "write postgres: terminate at the listener", "no client takes this route, and clients with TLS that reach it are refused: TLS is passed through, and hides user and database")
		}
	}
}

// passedThrough complains of an upstream that would wrap the clients' TLS in its own.
func (k *checker) passedThrough(c *Config) {
	for _, ln := range c.Listeners {
		if ln.Postgres != PostgresPassthrough {
			continue
		}
		for u := range ln.reaches(k.find) {
			if u.TLS != nil {
				k.complainAt(k.at(&ln.Postgres, ln), "write postgres: terminate, or an upstream without tls", "the upstream %s has tls, and TLS is passed through", u.Name)
			}
		}
	}
	for _, u := range c.Upstreams {
		if u.StartTLS == StartTLSPostgres && u.TLS == nil && (u.HealthCheck == nil || !u.HealthCheck.TLS) && !k.bad[&u.StartTLS] {
			k.warnAt(k.at(&u.StartTLS, u), "write tls: as well, or leave it out", "starttls: postgres has no effect: neither connections nor checks of the upstream %s use TLS", u.Name)
		}
	}
}

// MetricsBy counts the sessions of a listener by a property of their clients. Clients with other values are counted
// together, so there are two more series than values.
type MetricsBy struct {
	Pos    Pos
	Key    string   `key:"key" type:"clientkey" required:"yes" eg:"sni" doc:"Property: sni (of the ClientHello), user or database (of PostgreSQL) or tlv:0xe0 (that TLV of the PROXY header)."`
	Values []string `key:"values" required:"yes" eg:"a.example" doc:"Values that have their own series, at most 64. Other values count as other, clients without a value as unknown."`
}

// Labels for clients with a value that is not listed, and for clients without a value.
const (
	OtherValue   = "other"
	UnknownValue = "unknown"
)

const (
	maxKeyValues = 64
	maxKeyValue  = 255 // bytes
)

// Needs reports whether a property of the listener's clients matters apart from its routes: to the policy of an
// upstream that they may reach, or to the metrics. upstream looks up an upstream by name, and returns nil if there is
// none.
func (ln *Listener) Needs(kind clientkey.Kind, upstream func(name string) *Upstream) bool {
	is := func(text string) bool {
		key, err := clientkey.Parse(text)
		return err == nil && key.Kind == kind
	}
	if ln.MetricsBy != nil && is(ln.MetricsBy.Key) {
		return true
	}
	for u := range ln.reaches(upstream) {
		if is(u.BalanceOn) {
			return true
		}
	}
	return false
}

// reaches returns the upstreams that a listener's clients may reach, including fallbacks but not mirrors.
func (ln *Listener) reaches(upstream func(name string) *Upstream) map[*Upstream]bool {
	names := []string{ln.Upstream}
	for i := range ln.Routes {
		names = append(names, ln.Routes[i].leadsTo()...)
	}
	return withFallbacks(upstream, names...)
}

func withFallbacks(upstream func(name string) *Upstream, names ...string) map[*Upstream]bool {
	all := make(map[*Upstream]bool)
	for _, name := range names {
		for u := upstream(name); u != nil && !all[u]; u = upstream(u.Fallback.Upstream) {
			if all[u] = true; u.Fallback == nil {
				break
			}
		}
	}
	return all
}

// own returns the listener's value, which holds for routes without their own, and then the values of
// the routes.
func own[T any](ln *Listener, its *T, of func(r *Route) *T) (all []*T) {
	if its != nil {
		all = append(all, its)
	}
	for i := range ln.Routes {
		if t := of(&ln.Routes[i]); t != nil {
			all = append(all, t)
		}
	}
	return all
}

func checkClientKey(text string) *complaint {
	if _, err := clientkey.Parse(text); err != nil {
		fix := "write " + enumeration(clientkey.Words(), "or")
		if meant := closest(text, clientkey.Words()); meant != "" {
			fix = didYouMean(meant)
		}
		return complain(fix, "%q is not a property of a client", text)
	}
	return nil
}

// balanceOn complains of a property that the policy does not hash.
func (k *checker) balanceOn(u *Upstream) {
	if k.bad[&u.BalanceOn] || k.bad[&u.Balance] || u.Balance == "maglev" || u.BalanceOn == (clientkey.Key{}).String() {
		return
	}
	hashes := "nothing"
	if u.Balance == "source_ip" {
		hashes = "the source"
	}
	k.complainAt(k.at(&u.BalanceOn, u), "write balance: maglev, or leave balance_on out", "balance_on has no effect: balance: %s hashes %s", u.Balance, hashes)
}

func (k *checker) metricsBy(ln *Listener, m *MetricsBy) {
	if k.bad[m] || k.bad[&m.Key] {
		return
	}
	key, _ := clientkey.Parse(m.Key)
	if key.Kind == clientkey.Source {
		k.complainAt(k.at(&m.Key, m), "write key: sni", "metrics_by cannot count by source")
		return
	}
	k.knowsKey(k.at(&m.Key, m), []*Listener{ln}, key, "every session is counted as "+UnknownValue)
	switch {
	case len(m.Values) == 0 && k.given(&m.Values) && !k.bad[&m.Values]:
		k.complainAt(k.at(&m.Values, m), `write values: ["a.example"]`, "values is empty")
	case len(m.Values) > maxKeyValues:
		k.complainAt(k.at(&m.Values, m), "write 64 or fewer", "there are %d values", len(m.Values))
	}
	for i := range m.Values {
		v := &m.Values[i]
		if k.bad[v] {
			continue
		}
		named := key.Kind == clientkey.SNI
		if named {
			*v = strings.ToLower(*v)
		}
		switch {
		case *v == "" || len(*v) > maxKeyValue:
			k.complainAt(k.at(v, m), "write 1 to 255 bytes", "%.20q is not a value", *v)
		case *v == OtherValue || *v == UnknownValue:
			k.complainAt(k.at(v, m), "leave it out", "%s is the name for clients with any other value", *v)
		case named && (strings.Contains(*v, "*") || checkServerName(*v) != nil):
			k.complainAt(k.at(v, m), "write one exact name, such as a.example", "%.80q is not the server name of a client", *v)
		case slices.Index(m.Values, *v) < i:
			k.complainAt(k.at(v, m), "leave it out", "the value %q is listed twice", *v)
		}
	}
}

// knownKeys warns of upstreams that hash a property that no client of theirs can have.
func (k *checker) knownKeys(c *Config) {
	leading := make(map[*Upstream][]*Listener)
	for _, ln := range c.Listeners {
		for u := range ln.reaches(k.find) {
			leading[u] = append(leading[u], ln)
		}
	}
	for _, u := range c.Upstreams {
		key, err := clientkey.Parse(u.BalanceOn)
		if err == nil && u.Balance == "maglev" && len(leading[u]) > 0 && !k.bad[&u.BalanceOn] {
			k.knowsKey(k.at(&u.BalanceOn, u), leading[u], key, "every client is hashed by its source")
		}
	}
}

// knowsKey warns unless clients of one of the listeners may have a property.
func (k *checker) knowsKey(at place, of []*Listener, key clientkey.Key, otherwise string) {
	switch key.Kind {
	case clientkey.Source, clientkey.SNI: // a ClientHello is read if the name matters
		return
	case clientkey.User, clientkey.Database:
		if !slices.ContainsFunc(of, func(ln *Listener) bool {
			return k.bad[&ln.Postgres] || ln.Postgres == PostgresTerminate || ln.SpeaksPostgres() && !ln.RequireTLS ||
				slices.ContainsFunc(ln.Routes, func(r Route) bool { return len(r.Match.User)+len(r.Match.Database) > 0 })
		}) {
			k.warnAt(at, "write postgres: terminate at a listener", "no client has a %s, because no listener reads startup messages of PostgreSQL: %s", key, otherwise)
		}
		return
	}
	if !slices.ContainsFunc(of, func(ln *Listener) bool {
		return k.bad[&ln.AcceptProxy] || ln.AcceptProxy != nil && slices.Contains(ln.AcceptProxy.Versions, 2)
	}) {
		k.warnAt(at, "write accept_proxy: with version 2 at a listener", "no client has a TLV, because no listener accepts PROXY headers of version 2: %s", otherwise)
	}
}

// noDrainTime is the drain time of a listener if none of its upstreams is known.
const noDrainTime = 5 * time.Minute

// DrainTime returns how long the connections of a listener may last after it is removed: the longest drain timeout of
// its upstreams and their fallbacks, which find looks up. 0 means that they are reset at once. find returns nil for
// an unknown upstream.
func (ln *Listener) DrainTime(find func(name string) *Upstream) time.Duration {
	longest, known := time.Duration(0), false
	for u := range ln.reaches(find) {
		known, longest = true, max(longest, u.DrainTimeout)
	}
	if !known {
		return noDrainTime
	}
	return longest
}
