package config

// Config is the content of a configuration file and the files that it includes, with all
// defaults filled in. It does not change after loading and is safe for concurrent use.
type Config struct {
	// Files are the absolute names of all files that were read: the file passed to [Load],
	// those that it includes, then those that hold secrets or a response. Certificates are not
	// among them. Globs are the patterns of include. Files and Globs are the things to watch
	// for changes of the configuration.
	Files []string
	Globs []string

	// Warnings are the suspicious but valid settings of these files, in their order.
	Warnings []Problem

	reading *reading // of Load; nil: it is not from there

	Limits     ProcessLimits `key:"limits" doc:"Limits of the whole process."`
	Admin      *Admin        `key:"admin" on:"yes" doc:"The admin API of the running process. off: none."`
	StateFile  Path          `key:"state_file" default:"" eg:"/var/lib/penstock/state" restart:"yes" doc:"File in which changes by hand are kept over a restart. A change of it takes effect at a restart. Empty: penstock.state in $STATE_DIRECTORY, which systemd sets, or none."`
	SessionLog *SessionLog   `key:"session_log" doc:"A line for each client. Absent: none."`
	Include    []string      `key:"include" type:"glob" eg:"conf.d/*.yaml" once:"yes" doc:"More files to read, relative to this one, in the order of their names. Their content is added."`
	Listeners  []*Listener   `key:"listeners" doc:"Addresses that accept clients, and the rules for them."`
	Upstreams  []*Upstream   `key:"upstreams" doc:"Groups of equal endpoints, and the policy that picks one of them."`
	Lane       Lane          `key:"lane" doc:"Where and when sessions of listeners with lane leave user space: see lane.md. A change takes effect at a restart once the lane is open; one of default at once."`
	Metrics    *Metrics      `key:"metrics" doc:"Metrics for scrapers over the network, at /metrics of an address of their own. Absent: the admin API alone has them."`
	Traces     *Traces       `key:"traces" doc:"Sampled clients' sessions as spans of OpenTelemetry. Absent: none."`
}

// ProcessLimits are the limits of the whole process.
type ProcessLimits struct {
	Pos         Pos
	Connections int64 `key:"connections" default:"0" range:"0..100000000" doc:"Concurrent connections; at the limit accepting pauses. 0: as many as RLIMIT_NOFILE allows."`
	PerSecond   int64 `key:"per_second" default:"0" range:"0..100000000" unit:"1/s" doc:"New connections per second; beyond it accepting pauses. 0: no limit."`

	Memory MemoryLimits `key:"memory" doc:"The memory in which loops keep the bytes that slow destinations have not taken. A change takes effect at a restart."`
	Loops  LoopLimits   `key:"loops" doc:"Event loops that serve clients, and their CPUs. A change takes effect at a restart."`
}

// Admin is the address of the admin API, and the conditions of its clients.
type Admin struct {
	Pos         Pos
	Bind        Bind      `key:"bind" default:"auto" eg:"unix:/run/penstock/admin.sock" doc:"Address of the HTTP API. auto: a unix socket of mode 0600 in $RUNTIME_DIRECTORY, or else in $XDG_RUNTIME_DIR/penstock, or else in /run/penstock if the user has or can make that, or else none. Over a unix socket root and the user of the process may change everything. It has the mode 0660, or with a group 0666, unless ?mode= says otherwise. TCP needs a token or client_ca, and beyond this machine TLS."`
	Group       string    `key:"group" default:"" eg:"ops" doc:"Group of users, by its name or number, whose processes may read over the unix socket. Empty: none."`
	ReadToken   Secret    `key:"read_token" default:"" eg:"file:/etc/penstock/read.token" doc:"Token with which a client of TCP may read (Authorization: Bearer), in a file or a variable. Empty: none."`
	ChangeToken Secret    `key:"change_token" default:"" eg:"file:/etc/penstock/change.token" doc:"Token with which a client of TCP may read and change. Empty: none."`
	TLS         *AdminTLS `key:"tls" doc:"TLS of TCP. Absent: none."`
}

// AdminTLS describes the TLS of the admin API.
type AdminTLS struct {
	Pos      Pos
	Cert     Path `key:"cert" required:"yes" eg:"a.pem" doc:"PEM file of the certificate and its intermediates. It is read again when it has changed."`
	Key      Path `key:"key" required:"yes" eg:"a.key" doc:"PEM file of its private key."`
	ClientCA Path `key:"client_ca" default:"" eg:"ca.pem" doc:"PEM file of authorities. A client with a certificate of theirs may read and change. Empty: no certificate is asked for."`
}

// Metrics is the address of the metrics.
type Metrics struct {
	Pos   Pos
	Bind  Bind        `key:"bind" required:"yes" eg:":9464" doc:"Address of TCP."`
	Allow []Rule      `key:"allow" required:"yes" eg:"10.0.0.0/8" doc:"Sources that may scrape; connections of others are closed. all is every source."`
	TLS   *MetricsTLS `key:"tls" doc:"TLS. Absent: none."`
	Token Secret      `key:"token" default:"" eg:"file:/etc/penstock/token" doc:"Token that a scraper sends (Authorization: Bearer), in a file or a variable. Empty: none is needed."`
}

// MetricsTLS describes the TLS of the metrics' address.
type MetricsTLS struct {
	Pos  Pos
	Cert Path `key:"cert" required:"yes" eg:"a.pem" doc:"PEM file of the certificate and its intermediates. It is read again when it has changed."`
	Key  Path `key:"key" required:"yes" eg:"a.key" doc:"PEM file of its private key."`
}

// Off is written instead of a section that is on by default. Auto is written instead of the address of the
// admin API where the process chooses it; its Bind is zero.
const (
	Off  = "off"
	Auto = "auto"
)
