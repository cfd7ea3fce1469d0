package config

// A Config is everything that a file, and what it includes, says, with all defaults
// filled in. It is not changed once it was loaded, and may be read by many.
type Config struct {
	// Files are all files that were read, absolute: the one that was asked for, those
	// that it includes, then those that hold secrets or an answer; certificates are not
	// among them. Globs are the patterns of include. Whoever watches a configuration
	// watches these.
	Files []string
	Globs []string

	// Warnings are what was hardly meant in these files, in their order.
	Warnings []Problem

	Limits    ProcessLimits `key:"limits" doc:"What the whole process serves at most."`
	Admin     *Admin        `key:"admin" doc:"Where the running process is asked and told. Absent: nowhere."`
	Include   []string      `key:"include" type:"glob" eg:"conf.d/*.yaml" once:"yes" doc:"Files that are read as well, relative to this one, in the order of their names. What they say is added."`
	Listeners []*Listener   `key:"listeners" doc:"Where clients come in."`
	Upstreams []*Upstream   `key:"upstreams" doc:"Where connections go: endpoints that do the same work, and how one of them is chosen."`
}

// ProcessLimits are what the whole process serves at most.
type ProcessLimits struct {
	Pos         Pos
	Connections int64 `key:"connections" default:"0" range:"0..100000000" doc:"Connections served at once; at the limit accepting pauses. 0: as many as RLIMIT_NOFILE allows."`
	PerSecond   int64 `key:"per_second" default:"0" range:"0..100000000" unit:"1/s" doc:"New connections per second; beyond it accepting pauses. 0: no limit."`
}

// Admin is the place where the running process is asked and told.
type Admin struct {
	Pos  Pos
	Bind Bind `key:"bind" required:"yes" eg:"unix:/run/penstock/admin.sock" doc:"Address of the HTTP API. A unix socket has the mode 0660 unless ?mode= says otherwise."`
}

// Off is what is written instead of a section that is on by default.
const Off = "off"
