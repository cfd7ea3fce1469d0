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
	Balance          string            `key:"balance" default:"round_robin" enum:"round_robin least_conn random_two maglev source_ip first" doc:"How an endpoint is chosen."`
	Endpoints        []Endpoint        `key:"endpoints" doc:"The endpoints: an address, or an object. Either these or discover."`
	Discover         *Discover         `key:"discover" doc:"Where the endpoints are learned from, and go on being. Either this or endpoints."`
	ZoneAware        *ZoneAware        `key:"zone_aware" doc:"Endpoints of the own zone come first. Absent: zones do not matter."`
	HealthCheck      *HealthCheck      `key:"health_check" on:"yes" doc:"Endpoints are asked whether they are well. off: they are not asked."`
	OutlierDetection *OutlierDetection `key:"outlier_detection" on:"yes" doc:"Endpoints that fail real connections are left out for a while. off: they are not."`
	CircuitBreaker   *CircuitBreaker   `key:"circuit_breaker" on:"yes" doc:"An upstream, or endpoint, of which too many connections fail is not tried for a while. off: it always is."`
	Retry            Retry             `key:"retry" without:"{attempts: 0}" doc:"Other endpoints are tried when one cannot be reached, before any byte was sent on."`
	Queue            Queue             `key:"queue" without:"{size: 0}" doc:"Clients wait when every endpoint is full, or when none can serve them."`
	BackupWhen       string            `key:"backup_when" default:"down" enum:"down full" doc:"When backups get clients: when no other endpoint can be used, or also when every other one has as many connections as it may."`
	SlowStart        time.Duration     `key:"slow_start" default:"0s" range:"0..24h" eg:"30s" doc:"How long an endpoint that comes (back) takes to its full weight. 0: it has it at once."`
	PanicBelow       float64           `key:"panic_below" default:"0.0" range:"0..1" eg:"0.3" doc:"If a smaller part of the endpoints is healthy, health is ignored and all are used. 0: never."`
	Fallback         *Fallback         `key:"fallback" doc:"Where clients go when no endpoint can be used. Absent: they are refused."`
	OnUnhealthy      string            `key:"on_unhealthy" default:"keep" enum:"keep drain reset" doc:"Treatment of the connections of an endpoint that failed: they are kept, may last for drain_timeout, or are reset."`
	OnRemoved        string            `key:"on_removed" default:"drain" enum:"keep drain reset" doc:"The same, for an endpoint that is gone from the configuration or from discovery."`
	DrainTimeout     time.Duration     `key:"drain_timeout" default:"5m" range:"0..8760h" doc:"How long connections last when they are drained; those that are left are reset over the last tenth of it. 0: they are reset at once."`
	SendProxy        int               `key:"send_proxy" default:"0" range:"0..2" doc:"Version of the PROXY header that endpoints get; the content of a client's own header is passed on with version 2. 0: none."`
	SourceAddress    netip.Addr        `key:"source_address" default:"" eg:"10.0.0.1" doc:"Local address from which endpoints are connected to. Empty: the kernel chooses."`
	TLS              *UpstreamTLS      `key:"tls" doc:"Endpoints are spoken to in TLS. Absent: bytes are sent as they are."`
}

// An Endpoint is a server of an upstream. It may be written as an address alone.
type Endpoint struct {
	Pos         Pos
	Address     Address `key:"address" required:"yes" eg:"10.0.0.12:443" doc:"Where it is: host:port or unix:/path."`
	Name        string  `key:"name" type:"endpoint" default:"" eg:"b" doc:"Its name in logs, metrics and the admin API, of which each endpoint of an upstream has its own. Empty: its address."`
	Weight      int     `key:"weight" default:"1" range:"0..256" doc:"How much it gets, in proportion to the others. 0: nothing new."`
	Backup      bool    `key:"backup" default:"false" doc:"It is used only when no other endpoint can be; see backup_when."`
	Zone        string  `key:"zone" type:"zone" default:"" eg:"a" doc:"Where it is, for zone_aware."`
	Connections int64   `key:"connections" default:"0" range:"0..100000000" doc:"Connections it is given at once. 0: no limit."`
}

// Discover is the source of discovered endpoints. One of its members is set.
type Discover struct {
	Pos  Pos
	DNS  *DiscoverDNS  `key:"dns" doc:"From the records of a name, as long as they live."`
	File *DiscoverFile `key:"file" doc:"From a file that is watched."`
}

// DiscoverDNS learns endpoints from the records of a name.
type DiscoverDNS struct {
	Pos     Pos
	Name    string        `key:"name" type:"domain" required:"yes" eg:"_pg._tcp.db.example" doc:"The name that is asked for."`
	Type    string        `key:"type" default:"SRV" enum:"A AAAA A+AAAA SRV" doc:"Type of the records; A+AAAA is both."`
	Port    int           `key:"port" default:"0" range:"0..65535" eg:"5432" doc:"Port of the endpoints; SRV records bring their own."`
	Servers []Address     `key:"servers" eg:"10.0.0.2:53" doc:"Name servers, host:port. Empty: those of /etc/resolv.conf."`
	MinTTL  time.Duration `key:"min_ttl" default:"1s" range:"100ms..24h" doc:"How soon a name is asked for again, at the earliest."`
	MaxTTL  time.Duration `key:"max_ttl" default:"5m" range:"1s..24h" doc:"How long an answer is good, at most."`
}

// DiscoverFile learns endpoints from a file.
type DiscoverFile struct {
	Pos  Pos
	Path Path `key:"path" required:"yes" eg:"eps.yaml" doc:"YAML or JSON file with a list of endpoints, to be replaced by rename(2). It may come later."`
}

// ZoneAware prefers the endpoints of a zone.
type ZoneAware struct {
	Pos        Pos
	Local      string  `key:"local" type:"zone" default:"" eg:"${ZONE}" doc:"The zone that this process is in. Empty: zones do not matter."`
	SpillBelow float64 `key:"spill_below" default:"0.7" range:"0..1" doc:"If a smaller part of the zone's endpoints is healthy, other zones get clients too, in proportion."`
}

// Retry describes how often a client tries again if its endpoint cannot be reached.
type Retry struct {
	Pos        Pos
	Attempts   int           `key:"attempts" default:"2" range:"0..100" doc:"How often a client tries again, after a pause: another endpoint as long as there is one that it has not tried. Beyond that it is sent to endpoints that are thought to serve, and has no pauses."`
	Backoff    time.Duration `key:"backoff" default:"25ms" range:"0..1m" doc:"How long to wait before endpoints that a client has tried are tried again; it doubles each time. One that it has not tried is tried at once."`
	MaxBackoff time.Duration `key:"max_backoff" default:"250ms" range:"0..1m" doc:"The longest such wait."`
	Budget     float64       `key:"budget" default:"0.2" range:"0..1" doc:"Retries in vain there may be within 10s, as a part of the clients, or 30 if that is more; beyond it a client has no attempts. 0: none ever has."`
}

// A Queue holds clients that no endpoint has room for, or that none can serve.
type Queue struct {
	Pos     Pos
	Size    int           `key:"size" default:"1024" range:"0..1000000" doc:"How many clients wait, at most. 0: none. With a fallback the default is 0."`
	Timeout time.Duration `key:"timeout" default:"5s" range:"1ms..1h" doc:"How long a client waits for room, when every endpoint is full, before it is refused."`
	Hold    time.Duration `key:"hold" default:"3s" range:"0..1m" doc:"How long a client waits for an endpoint, when none can serve it and there is no fallback, before it is refused. 0: not at all."`
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
	Upstream string  `key:"upstream" type:"upstream" default:"" eg:"other" doc:"Clients go to this upstream."`
	Respond  Content `key:"respond" default:"" eg:"sorry.txt" doc:"Clients get the bytes of this file, at most 64KiB, then the connection is closed."`
}

// UpstreamTLS describes TLS to endpoints.
type UpstreamTLS struct {
	Pos  Pos
	CA   Path   `key:"ca" default:"" eg:"ca.pem" doc:"PEM file of the authorities by which endpoints must be certified. Empty: those of the system."`
	SNI  string `key:"sni" type:"domain" default:"" eg:"db.example" doc:"Name that is asked for and that the certificate must have. Empty: the host of the endpoint's address."`
	Cert Path   `key:"cert" default:"" eg:"client.pem" doc:"PEM file of the client's certificate. Empty: none."`
	Key  Path   `key:"key" default:"" eg:"client.key" doc:"PEM file of its private key."`
}
