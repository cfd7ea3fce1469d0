package config

import "time"

// A Listener accepts clients from allowed sources and routes them to upstreams.
type Listener struct {
	Pos         Pos
	Name        string         `key:"name" type:"name" required:"yes" eg:"web" doc:"Its name in logs, metrics and the admin API. No other listener has it."`
	Bind        []Bind         `key:"bind" required:"yes" single:"yes" eg:":443" doc:"Where to listen: one address or a list. :443 is every address of this machine, 0.0.0.0:443 every one of IPv4, [::]:443 every one of IPv6, localhost is 127.0.0.1, and other names are not taken."`
	Allow       []Rule         `key:"allow" eg:"10.0.0.0/8" doc:"Sources that are let in, unless deny says otherwise; clients of unix sockets only if they are in it. Empty: all."`
	Deny        []Rule         `key:"deny" eg:"10.6.6.0/24" doc:"Sources that are refused, also when allow has them; all is every source."`
	AcceptProxy *AcceptProxy   `key:"accept_proxy" doc:"The PROXY header with the client's own address. Absent: none is read."`
	Transparent bool           `key:"transparent" default:"false" doc:"Clients are taken whose packets a TPROXY or REDIRECT rule brings here, and go to their original destination unless a route or upstream says otherwise."`
	Routes      []Route        `key:"routes" doc:"Where clients go; the first one that matches wins."`
	Upstream    string         `key:"upstream" type:"upstream" default:"" eg:"fallback-web" doc:"Where clients go that no route matches. Empty: they are refused and counted."`
	Limits      ListenerLimits `key:"limits" doc:"Limits of this listener."`
	Timeouts    Timeouts       `key:"timeouts" doc:"How long each phase of a connection may take. 0: as long as it likes."`
	Connect     string         `key:"connect" default:"immediately" enum:"immediately on_data" doc:"When the endpoint is connected to: at once, or when the client has sent its first byte."`
	TLS         *ListenerTLS   `key:"tls" doc:"TLS is terminated here. Absent: it is passed through."`
	RequireTLS  bool           `key:"require_tls" default:"false" doc:"Clients that do not begin with a TLS hello are refused. false: where a route has sni or alpn, they go to a route that has neither, or to upstream; those that send nothing do so after timeouts.preread."`
	Socket      Socket         `key:"socket" doc:"Options of the sockets."`
}

// AcceptProxy describes the sources from which a PROXY header is read.
type AcceptProxy struct {
	Pos      Pos
	Versions []int         `key:"versions" default:"1 2" range:"1..2" doc:"Versions of the header that are understood."`
	From     []Rule        `key:"from" eg:"10.0.0.0/8" doc:"Sources that must send a header, and are believed; others are served as they are, those of unix sockets too. Empty: every client must send one. One whose header is awaited counts under the listener's connections alone, and not by its source, which is not known yet."`
	Timeout  time.Duration `key:"timeout" default:"3s" range:"1ms..1h" doc:"How long the header may take."`
}

// A Route sends the clients that it matches to one upstream, or shares them among several.
type Route struct {
	Pos      Pos
	Match    Match   `key:"match" doc:"Clients of this route: those that meet every condition that is given. Absent: all."`
	Upstream string  `key:"upstream" type:"upstream" default:"" eg:"tenants" doc:"Where they go."`
	Split    []Share `key:"split" doc:"Instead of upstream: they are shared among several, in percent. A canary."`
}

// A Match holds the conditions of a route. All given conditions must hold, each for one
// element of its list.
type Match struct {
	Pos    Pos
	SNI    []string `key:"sni" type:"servername" eg:"*.example.com" doc:"Names that a TLS client asks for: exact, *.example.com for all names that end so, or * for any name."`
	ALPN   []string `key:"alpn" type:"protocol" eg:"h2" doc:"Application protocols of which a TLS client offers at least one."`
	Source []Rule   `key:"source" eg:"10.1.0.0/16" doc:"Where clients come from."`
	Port   int      `key:"port" default:"0" range:"0..65535" eg:"443" doc:"Port that was connected to, by the PROXY header of clients that have sent one. 0: any."`
}

// A Share is one upstream of a split.
type Share struct {
	Pos      Pos
	Upstream string  `key:"upstream" type:"upstream" required:"yes" eg:"shop-next" doc:"Where this share goes."`
	Percent  float64 `key:"percent" required:"yes" range:"0..100" unit:"%" eg:"5" doc:"How large it is, to a hundredth of a percent. The shares of a split add up to 100."`
}

// ListenerLimits are the limits of a listener. 0 is no limit.
type ListenerLimits struct {
	Pos                    Pos
	Connections            int64     `key:"connections" default:"0" range:"0..100000000" doc:"Connections served at once; at the limit accepting pauses. 0: no limit."`
	PerSecond              int64     `key:"per_second" default:"0" range:"0..100000000" unit:"1/s" doc:"New connections per second; beyond it accepting pauses. 0: no limit."`
	PerSource              int64     `key:"per_source" default:"0" range:"0..100000000" doc:"Connections of one source at once, of a unix socket those of one user; more are refused. 0: no limit."`
	PerSourcePerSecond     int64     `key:"per_source_per_second" default:"0" range:"0..100000000" unit:"1/s" doc:"New connections of one source per second; more are refused. 0: no limit."`
	SourcePrefix           [2]int    `key:"source_prefix" default:"32 64" range:"1..32 1..128" unit:"bits" doc:"How much of an IPv4 and of an IPv6 address makes a source."`
	Bandwidth              Bandwidth `key:"bandwidth" doc:"Rate of all connections together: one of both directions, or an object."`
	BandwidthPerConnection Bandwidth `key:"bandwidth_per_connection" doc:"Rate of one connection: one of both directions, or an object."`
}

// A Bandwidth is a limit of bytes per second. A rate without keys is that of both directions
// together.
type Bandwidth struct {
	Pos   Pos
	Both  int64 `key:"both" type:"rate" default:"0" range:"0..1PiB" unit:"B/s" eg:"64MiB" doc:"Bytes per second in both directions together. 0: no limit."`
	Up    int64 `key:"up" type:"rate" default:"0" range:"0..1PiB" unit:"B/s" eg:"10MiB" doc:"Bytes per second from clients to endpoints. 0: no limit."`
	Down  int64 `key:"down" type:"rate" default:"0" range:"0..1PiB" unit:"B/s" eg:"50MiB" doc:"Bytes per second from endpoints to clients. 0: no limit."`
	Burst int64 `key:"burst" type:"size" default:"0" range:"0..1PiB" unit:"B" eg:"1MiB" doc:"Bytes that each of these rates lets be moved at once after a time in which nothing was. 0: the bytes of 100ms, and at least 16KiB. It is at least the bytes of 2ms."`
}

// Timeouts bound each phase of a connection. 0 is no bound.
type Timeouts struct {
	Pos            Pos
	Preread        time.Duration `key:"preread" default:"5s" range:"1ms..1h" doc:"How long a client may take for the first bytes that a route, or connect: on_data, waits for, before it is refused or served without a hello (see require_tls); and then, where TLS ends here, for its handshake."`
	Connect        time.Duration `key:"connect" default:"5s" range:"0..1h" doc:"How long one endpoint may take to accept, all its addresses together, and for its handshake if it is spoken to in TLS. 0: as long as the kernel tries, and 10s for a handshake."`
	FirstByte      time.Duration `key:"first_byte" default:"0s" range:"0..8760h" eg:"3s" doc:"How long an endpoint may say nothing at first; then the connection is cut, and it is a failure of the endpoint. Where the client speaks first, one that says nothing makes its endpoint fail: use it with connect: on_data there. 0: no bound."`
	Idle           time.Duration `key:"idle" default:"1h" range:"0..8760h" doc:"How long no byte may move in either direction. 0: no bound."`
	HalfClose      time.Duration `key:"half_close" default:"1m" range:"0..8760h" doc:"The same, once one side has sent its end of file. 0: no bound."`
	Lifetime       time.Duration `key:"lifetime" default:"0s" range:"0..8760h" eg:"12h" doc:"How long a connection may last. 0: no bound."`
	LifetimeJitter float64       `key:"lifetime_jitter" default:"0.1" range:"0..1" doc:"Part of lifetime by which it is shortened at random, so that not all clients come back at once."`
}

// ListenerTLS describes how TLS is terminated.
type ListenerTLS struct {
	Pos          Pos
	Certificates []Certificate `key:"certificates" required:"yes" doc:"Certificates of which the one is chosen whose name a client asks for; the first if none has it. The files are watched."`
	ClientCA     Path          `key:"client_ca" default:"" eg:"clients.pem" doc:"PEM file of the authorities by which clients must be certified. Empty: clients need no certificate."`
	MinVersion   string        `key:"min_version" default:"1.2" enum:"1.2 1.3" doc:"Oldest version of TLS that is spoken."`
	ALPN         []string      `key:"alpn" type:"protocol" eg:"h2" doc:"Application protocols, the preferred one first. Empty: none is negotiated."`
}

// A Certificate is a pair of PEM files.
type Certificate struct {
	Pos  Pos
	Cert Path `key:"cert" required:"yes" eg:"a.pem" doc:"PEM file of the certificate and those between it and its authority."`
	Key  Path `key:"key" required:"yes" eg:"a.key" doc:"PEM file of its private key."`
}

// Socket are the options of a listener's sockets and of those to its endpoints.
type Socket struct {
	Pos         Pos
	Backlog     int           `key:"backlog" default:"4096" range:"1..65535" doc:"Connections that wait to be accepted, at most; net.core.somaxconn bounds it, see listen(2)."`
	KeepAlive   time.Duration `key:"keepalive" default:"60s" range:"0..9h" doc:"How long a connection is quiet before the kernel asks its peer for a sign of life (TCP_KEEPIDLE). 0: never."`
	UserTimeout time.Duration `key:"user_timeout" default:"30s" range:"0..24h" doc:"How long a peer may leave bytes unacknowledged, or its window shut (TCP_USER_TIMEOUT). 0: as the kernel likes."`
	FastOpen    bool          `key:"fastopen" default:"false" doc:"Data in the first packet is accepted (TCP_FASTOPEN)."`
	MPTCP       bool          `key:"mptcp" default:"false" doc:"Clients may use several paths (Multipath TCP). Their bytes are copied, not spliced, where the kernel cannot. A change makes another socket, which takes over from the old one; one that systemd has passed stays as it is."`
}
