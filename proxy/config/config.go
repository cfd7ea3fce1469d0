// Package config reads the configuration of the load balancer. It is YAML or JSON, checked as
// a whole, with every default filled in.
//
// Each key is described once, in the tags of its struct field: key, doc (one sentence),
// default, range, unit, enum, eg (an example), required. Further tags are type (the kind of
// text of a string), single (one value may stand for a list of it) and on (a section that is
// present unless it is off). The loader, the JSON Schema, the reference and the printed
// configuration all follow these tags.
package config

import (
	"reflect"
	"strconv"
	"time"

	"github.com/penstock/penstock/internal/topology"
)

// Config is the content of a configuration file and the files that it includes, with all
// defaults filled in. It does not change after loading and is safe for concurrent use.
type Config struct {
	// Files are the absolute names of all files that were read: the file passed to [Load], the files that it
	// includes, then the files with secrets or a response. Certificates are not among them. Globs are the patterns of
	// include. Watch Files and Globs to notice changes of the configuration.
	Files []string
	Globs []string

	// Warnings are the suspicious but valid settings of these files, in their order.
	Warnings []Problem

	reading *reading // made by Load; nil for any other Config

	Limits     ProcessLimits `key:"limits" doc:"Limits of the whole process."`
	Admin      *Admin        `key:"admin" on:"yes" doc:"The admin API. off: no admin API."`
	StateFile  Path          `key:"state_file" default:"" eg:"/var/lib/penstock/state" restart:"yes" doc:"File that keeps changes by hand over a restart. A new name takes effect at a restart. Empty: penstock.state in $STATE_DIRECTORY, which systemd sets. Without that variable no file is kept."`
	SessionLog *SessionLog   `key:"session_log" doc:"Logs a line for each client."`
	Include    []string      `key:"include" type:"glob" eg:"conf.d/*.yaml" once:"yes" doc:"More files to read. Their paths are relative to this file, and they are read in the order of their names."`
	Listeners  []*Listener   `key:"listeners" doc:"Addresses that accept clients, and their rules."`
	Upstreams  []*Upstream   `key:"upstreams" doc:"Groups of equal endpoints."`
	Lane       Lane          `key:"lane" doc:"Sessions in the kernel, see lane.md. Once the lane is open, all changes but default take effect at a restart."`
	Metrics    *Metrics      `key:"metrics" doc:"An address that serves only /metrics, for scrapers over the network."`
	Traces     *Traces       `key:"traces" doc:"Sends sampled sessions as OpenTelemetry spans."`
}

// ProcessLimits are the limits of the whole process.
type ProcessLimits struct {
	Pos         Pos
	Connections int64 `key:"connections" default:"0" range:"0..100000000" doc:"Limit of concurrent connections. At the limit, accepting pauses. 0: as many as RLIMIT_NOFILE allows."`
	PerSecond   int64 `key:"per_second" default:"0" range:"0..100000000" unit:"1/s" doc:"Limit of new connections per second; after a pause as many come at once. At the limit, accepting pauses. 0: no limit."`

	Memory MemoryLimits `key:"memory" doc:"Memory for bytes that wait for slow destinations. A change takes effect at a restart."`
	Loops  LoopLimits   `key:"loops" doc:"Event loops and their CPUs. A change takes effect at a restart."`
}

// Admin is the address of the admin API, and the conditions of its clients.
type Admin struct {
	Pos         Pos
	Bind        Bind      `key:"bind" default:"auto" eg:"unix:/run/penstock/admin.sock" doc:"Address of the HTTP API. auto: a private unix socket, see api.md. Other unix sockets have mode 0660, with a group 0666, or the mode in ?mode=. TCP needs a token or client_ca. An address that other machines can reach also needs TLS."`
	Group       string    `key:"group" default:"" eg:"ops" doc:"Group that may read over the unix socket, by name or number. Empty: none."`
	ReadToken   Secret    `key:"read_token" default:"" eg:"file:/etc/penstock/read.token" doc:"Token that lets a TCP client read (Authorization: Bearer). Empty: no such token."`
	ChangeToken Secret    `key:"change_token" default:"" eg:"file:/etc/penstock/change.token" doc:"Token that lets a TCP client read and change. Empty: no such token."`
	TLS         *AdminTLS `key:"tls" doc:"TLS for a TCP address."`
}

// AdminTLS describes the TLS of the admin API.
type AdminTLS struct {
	Pos      Pos
	Cert     Path `key:"cert" required:"yes" eg:"a.pem" doc:"PEM file of the certificate and its intermediates. A changed file is read again."`
	Key      Path `key:"key" required:"yes" eg:"a.key" doc:"PEM file of its private key."`
	ClientCA Path `key:"client_ca" default:"" eg:"ca.pem" doc:"PEM file of certificate authorities. Clients with a certificate of these authorities may read and change. Empty: clients are not asked for a certificate."`
}

// Metrics is the address of the metrics.
type Metrics struct {
	Pos   Pos
	Bind  Bind        `key:"bind" required:"yes" eg:":9464" doc:"TCP address."`
	Allow []Rule      `key:"allow" required:"yes" eg:"10.0.0.0/8" doc:"Sources that may scrape. Other connections are closed."`
	TLS   *MetricsTLS `key:"tls" doc:"TLS. Absent: none."`
	Token Secret      `key:"token" default:"" eg:"file:/etc/penstock/token" doc:"Token that a scraper must send (Authorization: Bearer). Empty: none."`
}

// MetricsTLS describes the TLS of the metrics' address.
type MetricsTLS struct {
	Pos  Pos
	Cert Path `key:"cert" required:"yes" eg:"a.pem" doc:"PEM file of the certificate and its intermediates. A changed file is read again."`
	Key  Path `key:"key" required:"yes" eg:"a.key" doc:"PEM file of its private key."`
}

// Off is written instead of a section that is on by default. Auto is written as the address of the admin API if the
// process chooses it; the Bind is then zero.
const (
	Off  = "off"
	Auto = "auto"
)

// MemoryLimits describe the memory of the loops.
type MemoryLimits struct {
	Pos       Pos
	HugePages string `key:"huge_pages" enum:"auto off require" default:"auto" restart:"yes" doc:"Pages of 2 MiB. auto: reserved huge pages (vm.nr_hugepages), else transparent huge pages, else ordinary pages. off: ordinary pages. require: without huge pages the process does not start."`
	Mlock     bool   `key:"mlock" default:"false" restart:"yes" doc:"Locks this memory, 4 MiB for each loop. The process does not start if the memory cannot be locked: this needs RLIMIT_MEMLOCK or CAP_IPC_LOCK."`
	NUMA      Node   `key:"numa" default:"auto" restart:"yes" doc:"NUMA node of this memory. auto: the loops are spread over the nodes. off: the kernel chooses. A number: this node. If the machine does not have it, the process does not start."`
}

// The words for MemoryLimits.HugePages.
const (
	HugePagesAuto    = "auto"
	HugePagesOff     = Off
	HugePagesRequire = "require"
)

// LoopLimits are the number of event loops, and their CPUs.
type LoopLimits struct {
	Pos      Pos
	Count    int    `key:"count" default:"0" range:"0..1024" restart:"yes" doc:"Number of event loops. Each uses at most one CPU. 0: GOMAXPROCS, or the number of CPUs in affinity if that is less. --loops takes precedence."`
	Affinity []CPUs `key:"affinity" eg:"0-3" single:"yes" off:"yes" restart:"yes" doc:"CPUs of the process and all its threads: 0-3, or [0, 2]. off: the CPUs that the process started with."`
}

// CPUs returns the CPUs of Affinity, or nil if it is off.
func (l *LoopLimits) CPUs() topology.Set {
	var all []int
	for _, c := range l.Affinity {
		all = append(all, c.set()...)
	}
	return topology.NewSet(all...)
}

// Number returns the configured number of loops. If none is configured it returns the argument, but at most one loop
// for each CPU of Affinity.
func (l *LoopLimits) Number(otherwise int) int {
	switch cpus := len(l.CPUs()); {
	case l.Count > 0:
		return l.Count
	case cpus > 0:
		return max(min(cpus, otherwise), 1)
	}
	return otherwise
}

// Lasting returns the keys that differ in next, and that a running process cannot change. They take effect at a
// restart.
func (l *ProcessLimits) Lasting(next *ProcessLimits) (keys []KeyChange) {
	for _, k := range new(differ).keys(l, next) {
		if k.Restart {
			keys = append(keys, k)
		}
	}
	return keys
}

// CPUs are one or more CPUs in the form of topology.ParseSet.
type CPUs string

func (c CPUs) set() topology.Set {
	s, _ := topology.ParseSet(string(c)) // setCPUs has checked it
	return s
}

// A Node is the number of a NUMA node, or a word.
type Node string

// The words for a Node.
const (
	NodeAuto Node = "auto"
	NodeOff  Node = Off
)

// Number returns the number of the node, or false for a word.
func (n Node) Number() (int, bool) {
	number, err := strconv.Atoi(string(n))
	return number, err == nil
}

const (
	cpusPattern = `^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`
	nodePattern = `^(auto|off|[0-9]+)$`
)

// setCPUs reads 3, 0-3, or a list of both with commas.
func setCPUs(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	s, err := topology.ParseSet(text)
	switch {
	case text == Off:
		return complain("write affinity: "+Off+" without a list", "off stands for the whole list")
	case err != nil || len(s) == 0:
		return complain("write a CPU such as 0, a range such as 0-3, or a list of them", "%q is not a CPU", text)
	}
	v.SetString(s.String())
	return nil
}

// maxNode is the largest number of a NUMA node that a kernel is built for (CONFIG_NODES_SHIFT
// is at most 10).
const maxNode = 1023

func setNode(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	if text != string(NodeAuto) && text != string(NodeOff) {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n > maxNode {
			return complain("write the number of a node such as 0, auto or off", "%q is not a NUMA node", text)
		}
		text = strconv.FormatUint(n, 10)
	}
	v.SetString(text)
	return nil
}

// AdminBind reads the admin section of a configuration file, and of the files that it includes as far as possible. It
// returns nil without a problem if the section is off. Unset variables and unreadable files matter only if they may
// hide the address: a token that cannot be read is empty. So the caller needs neither the variables nor the files of
// the process.
//
// The problems do not quote lines: another user may have written the first file, and may have made it include a file
// that only this reader may read.
func AdminBind(path string, env Env) (*Admin, []Problem) {
	l := newLoader(env)
	l.adminOnly = true
	l.file(path, place{})
	return l.adminBind()
}

// AdminPlace is [AdminBind] for a file that the user has not named. It returns only the address, and reads no secrets
// and no environment variables.
func AdminPlace(path string) (*Admin, []Problem) {
	l := newLoader(func(string) (string, bool) { return "", false })
	l.adminOnly, l.bindOnly = true, true
	l.file(path, place{})
	return l.adminBind()
}

func (l *loader) adminBind() (*Admin, []Problem) {
	a := l.cfg.Admin
	switch {
	case l.twice || l.bad[&l.cfg.Admin]:
		return nil, l.blind()
	case a == nil:
		return nil, nil
	case l.bad[&a.Bind]:
		return nil, l.blind()
	case a.Bind.Auto() && len(l.problems) > 0: // the address may be in a part that was not read
		return nil, l.blind()
	}
	l.problems = nil
	(&checker{decoder: &l.decoder}).adminPlace(a)
	if len(l.problems) > 0 {
		return nil, l.blind()
	}
	return a, nil
}

// blind returns the problems without the lines that they quote.
func (l *loader) blind() []Problem {
	problems := l.found()
	for i := range problems {
		problems[i].line, problems[i].secret = "", true
	}
	return problems
}

// conceal removes the file's text from a syntax problem, unless the caller named the file.
func (l *loader) conceal(p *Problem) {
	if p != nil && l.adminOnly && (l.bindOnly || len(l.within) > 1) {
		p.Message, p.Fix = "this is not YAML", ""
	}
}

// Values of [Listener].Lane.
const (
	LaneOff     = "off"
	LaneAuto    = "auto"
	LaneRequire = "require"
)

// Lane says where and when sessions leave user space.
type Lane struct {
	Pos      Pos
	Default  string        `key:"default" default:"off" enum:"off auto require" doc:"Lane of listeners without the key. A reload applies it."`
	Devices  []string      `key:"devices" eg:"eth0" restart:"yes" doc:"Network devices of clients and endpoints. The lane examines each TCP packet there. Empty: the loopback and every Ethernet device that has an address at the start."`
	Sessions int64         `key:"sessions" default:"16384" range:"16..4000000" restart:"yes" doc:"Most sessions in the lane. Each takes about 904 bytes of kernel memory from the start. Further sessions stay in user space. A table that was adopted from an earlier process (pins) keeps its size until a drain without leave. Removing the pins ends its sessions."`
	After    time.Duration `key:"after" default:"100ms" range:"1ms..1h" restart:"yes" doc:"Age at which a session with two answers may leave user space. Other sessions may leave at 20 times this age."`
	Pins     Path          `key:"pins" default:"" eg:"/sys/fs/bpf/penstock" restart:"yes" doc:"Directory on a BPF file system, only for this process. It is made if it is missing. Sessions in the lane survive the death of the process, and the next process adopts them. Empty: they are reset."`
	Leave    bool          `key:"leave" default:"false" restart:"yes" doc:"With pins: a drain leaves sessions in the lane to the next process. false: they drain like other sessions, and are reset at the end of the drain."`
}

// WantsLane reports whether sessions of any listener may leave user space.
func (c *Config) WantsLane() bool { return c.laneMode(LaneAuto) || c.laneMode(LaneRequire) }

// RequiresLane reports whether sessions of any listener must be able to leave user space.
func (c *Config) RequiresLane() bool { return c.laneMode(LaneRequire) }

func (c *Config) laneMode(mode string) bool {
	for _, l := range c.Listeners {
		if l.Lane == mode {
			return true
		}
	}
	return false
}

// UnlessLeft is added to a new value of lane.sessions if lane.leave is in force: the next process adopts the table of
// the sessions that stay in the lane, and the table keeps its size.
const UnlessLeft = ", unless sessions stay in the lane"

// Lasting returns the lane's keys that differ in next, and that a running process cannot change.
func (l *Lane) Lasting(next *Lane) []KeyChange {
	was := *l
	was.Default = next.Default // listeners have its value
	return new(differ).keys(&was, next)
}

// laneDefault sets the lane of listeners that have none to the default in the lane section.
func (l *loader) laneDefault() {
	for _, ln := range l.cfg.Listeners {
		if !l.given(&ln.Lane) {
			ln.Lane = l.cfg.Lane.Default
		}
	}
}
