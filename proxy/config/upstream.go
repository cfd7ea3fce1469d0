package config

import (
	"net/netip"
	"time"
)

// An Upstream is a set of endpoints that provide the same service, and the policy that selects
// one.
type Upstream struct {
	Pos              Pos
	Name             string            `key:"name" type:"name" required:"yes" eg:"tenants" doc:"Its name in routes. No other upstream has it."`
	Balance          string            `key:"balance" default:"round_robin" enum:"round_robin least_conn random_two maglev source_ip first" doc:"Policy that picks an endpoint."`
	BalanceOn        string            `key:"balance_on" type:"clientkey" default:"source" eg:"sni" doc:"Property of a client that maglev hashes: source, sni (the server name of its ClientHello), user or database (of the startup message of PostgreSQL, see listeners[].postgres) or tlv:0xe0 (the value of that TLV of its PROXY header). Clients without it are hashed by their source, and counted."`
	Endpoints        []Endpoint        `key:"endpoints" doc:"The endpoints: an address, or an object. Either these or discover."`
	Discover         *Discover         `key:"discover" doc:"Service discovery of the endpoints. Either this or endpoints."`
	ZoneAware        *ZoneAware        `key:"zone_aware" doc:"Prefers endpoints of this process's zone. Absent: zones do not matter."`
	HealthCheck      *HealthCheck      `key:"health_check" on:"yes" doc:"Active health checks of the endpoints. off: none."`
	OutlierDetection *OutlierDetection `key:"outlier_detection" on:"yes" doc:"Ejects endpoints that fail clients' connections, for some time. off: none is ejected."`
	CircuitBreaker   *CircuitBreaker   `key:"circuit_breaker" on:"yes" doc:"Stops connections to an upstream or endpoint of which too many fail, for some time. off: never."`
	Retry            Retry             `key:"retry" without:"{attempts: 0}" doc:"Tries other endpoints if one cannot be connected to, before any byte of the client was forwarded."`
	Queue            Queue             `key:"queue" without:"{size: 0}" doc:"Queue of clients that wait while every endpoint is full, or none is usable."`
	BackupWhen       string            `key:"backup_when" default:"down" enum:"down full" doc:"When backups get clients: if no other endpoint is usable, or also if every other one is at its limit of connections."`
	SlowStart        time.Duration     `key:"slow_start" default:"0s" range:"0..24h" eg:"30s" doc:"Time until a new or recovered endpoint has its full weight. 0: no slow start."`
	PanicBelow       float64           `key:"panic_below" default:"0.0" range:"0..1" eg:"0.3" doc:"If a smaller part of the endpoints is healthy, all are used, whatever their health. 0: never."`
	Fallback         *Fallback         `key:"fallback" doc:"Destination of clients if no endpoint is usable. Absent: they are refused."`
	OnUnhealthy      string            `key:"on_unhealthy" default:"keep" enum:"keep drain reset" doc:"Connections of an endpoint that fails are kept, drained within drain_timeout, or reset."`
	OnRemoved        string            `key:"on_removed" default:"drain" enum:"keep drain reset" doc:"The same, for an endpoint that was removed from the configuration or by discovery."`
	DrainTimeout     time.Duration     `key:"drain_timeout" default:"5m" range:"0..8760h" doc:"Longest duration of a drain; the remaining connections are reset over its last tenth. 0: at once."`
	SendProxy        int               `key:"send_proxy" default:"0" range:"0..2" doc:"Version of the PROXY header that is sent to endpoints; with version 2 the TLVs of a client's own header are forwarded. 0: none."`
	SourceAddress    netip.Addr        `key:"source_address" default:"" eg:"10.0.0.1" doc:"Local address of the connections to endpoints. Empty: the kernel chooses."`
	Socket           UpstreamSocket    `key:"socket" doc:"Options of the sockets to endpoints, beside those of the listener."`
	StartTLS         string            `key:"starttls" default:"none" enum:"none postgres" doc:"Protocol by which endpoints are asked for TLS before it begins, for tls and for checks over TLS of their own port. none: TLS begins at once."`
	TLS              *UpstreamTLS      `key:"tls" doc:"TLS to the endpoints. Absent: plain TCP."`
}

// UpstreamSocket are options of the sockets to an upstream's endpoints.
type UpstreamSocket struct {
	Pos        Pos
	Congestion string `key:"congestion" type:"congestion" default:"" eg:"bbr" doc:"Congestion control of the connections to endpoints, as in listeners[].socket. Checks of their health have that of the system. Empty: that of the system."`
}

// An Endpoint is a server of an upstream. It may be written as an address alone.
type Endpoint struct {
	Pos         Pos
	Address     Address `key:"address" required:"yes" eg:"10.0.0.12:443" doc:"host:port or unix:/path."`
	Name        string  `key:"name" type:"endpoint" default:"" eg:"b" doc:"Its name in logs, metrics and the admin API, unique within the upstream. Empty: its address."`
	Weight      int     `key:"weight" default:"1" range:"0..256" doc:"Its share of the clients, in proportion to the others. 0: no new clients."`
	Backup      bool    `key:"backup" default:"false" doc:"Used only if no other endpoint is usable; see backup_when."`
	Zone        string  `key:"zone" type:"zone" default:"" eg:"a" doc:"Its zone, for zone_aware."`
	Connections int64   `key:"connections" default:"0" range:"0..100000000" doc:"Its concurrent connections. 0: no limit."`
	State       string  `key:"state" default:"ready" enum:"ready drain maint" doc:"ready: it gets clients. drain: no new clients, and its sessions end within drain_timeout; it is checked. maint: no new clients, its sessions go on, and it is not checked."`
}

// The states of an endpoint.
const (
	Ready = "ready"
	Drain = "drain"
	Maint = "maint"
)

// Discover is the source of discovered endpoints. One of its members is set.
type Discover struct {
	Pos  Pos
	DNS  *DiscoverDNS  `key:"dns" doc:"From DNS records, for their TTL."`
	File *DiscoverFile `key:"file" doc:"From a file that is watched."`
}

// DiscoverDNS learns endpoints from the records of a name.
type DiscoverDNS struct {
	Pos     Pos
	Name    string        `key:"name" type:"domain" required:"yes" eg:"_pg._tcp.db.example" doc:"Name to look up."`
	Type    string        `key:"type" default:"SRV" enum:"A AAAA A+AAAA SRV" doc:"Type of the records; A+AAAA is both."`
	Port    int           `key:"port" default:"0" range:"0..65535" eg:"5432" doc:"Port of the endpoints; SRV records bring their own."`
	Servers []Address     `key:"servers" eg:"10.0.0.2:53" doc:"Name servers, host:port. Empty: those of /etc/resolv.conf."`
	MinTTL  time.Duration `key:"min_ttl" default:"1s" range:"100ms..24h" doc:"Least time between two lookups."`
	MaxTTL  time.Duration `key:"max_ttl" default:"5m" range:"1s..24h" doc:"Longest time for which an answer is used."`
}

// DiscoverFile learns endpoints from a file.
type DiscoverFile struct {
	Pos  Pos
	Path Path `key:"path" required:"yes" eg:"eps.yaml" doc:"YAML or JSON file with a list of endpoints; replace it by rename(2). It need not exist yet."`
}

// ZoneAware prefers the endpoints of a zone.
type ZoneAware struct {
	Pos        Pos
	Local      string  `key:"local" type:"zone" default:"" eg:"${ZONE}" doc:"Zone of this process. Empty: zones do not matter."`
	SpillBelow float64 `key:"spill_below" default:"0.7" range:"0..1" doc:"If a smaller part of the zone's endpoints is healthy, other zones get clients too, in proportion."`
}

// Retry describes how often a client tries again if its endpoint cannot be reached.
type Retry struct {
	Pos        Pos
	Attempts   int           `key:"attempts" default:"2" range:"0..100" doc:"Retries of a client, after a pause: at endpoints that it has not tried, as long as there are any. Further retries go only to endpoints that are expected to serve, without a pause."`
	Backoff    time.Duration `key:"backoff" default:"25ms" range:"0..1m" doc:"Wait before an endpoint is tried again by the same client; it doubles each time. Endpoints that it has not tried are tried at once."`
	MaxBackoff time.Duration `key:"max_backoff" default:"250ms" range:"0..1m" doc:"Longest such wait."`
	Budget     float64       `key:"budget" default:"0.2" range:"0..1" doc:"Unsuccessful retries allowed within 10s, as a part of the clients, at least 30; beyond it clients have no retries. 0: no retries."`
}

// A Queue holds clients that no endpoint has room for, or that none can serve.
type Queue struct {
	Pos     Pos
	Size    int           `key:"size" default:"1024" range:"0..1000000" doc:"Longest queue. 0: none. With a fallback the default is 0."`
	Timeout time.Duration `key:"timeout" default:"5s" range:"1ms..1h" doc:"Longest wait for room, if every endpoint is full; then the client is refused."`
	Hold    time.Duration `key:"hold" default:"3s" range:"0..1m" doc:"Longest wait for a usable endpoint, if there is none and no fallback; then the client is refused. 0: no wait."`
}

// The floor of the retry budget: the number of retries within RetryWindow for however few
// clients. They are enough to find out that two endpoints are dead.
const (
	RetryFloor  = 30
	RetryWindow = 10 * time.Second
)

// A Fallback is used when no endpoint is available. One of its members is set.
type Fallback struct {
	Pos      Pos
	Upstream string  `key:"upstream" type:"upstream" default:"" eg:"other" doc:"Upstream that serves them."`
	Respond  Content `key:"respond" default:"" eg:"sorry.txt" doc:"File of at most 64KiB that is sent to them before the connection is closed."`
}

// UpstreamTLS describes TLS to endpoints.
type UpstreamTLS struct {
	Pos  Pos
	CA   Path   `key:"ca" default:"" eg:"ca.pem" doc:"PEM file of the authorities that verify endpoint certificates. Empty: those of the system."`
	SNI  string `key:"sni" type:"domain" default:"" eg:"db.example" doc:"Server name to send and to verify. Empty: the host of the endpoint's address."`
	Cert Path   `key:"cert" default:"" eg:"client.pem" doc:"PEM file of the client's certificate. Empty: none."`
	Key  Path   `key:"key" default:"" eg:"client.key" doc:"PEM file of its private key."`
}
