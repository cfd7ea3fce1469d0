package contestant

import (
	"cmp"
	"runtime"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// patience is the default of Setting.Patience.
const patience = 10 * time.Second

// PartRival is the name of the part (see Program) that runs package rival. Its arguments are the upstream address,
// and RivalSplice, RivalCopy or RivalRelay. Once it listens, it prints {"address":"127.0.0.1:41235"} on standard
// output.
const (
	PartRival   = "rival"
	RivalSplice = "splice"
	RivalCopy   = "copy"
	RivalRelay  = "relay"
)

// Program says how to run the program that contains the parts of a benchmark and the proxy.
type Program struct {
	Path string // path of the executable with the parts
	Name string // its first argument
	// Part are the arguments that come before the name and the arguments of a part.
	Part []string
	// PenstockPath is the path of the penstock program. If it is "", Path contains that program.
	PenstockPath string
	// Proxy and Run are the arguments of penstock that come before the flags of the proxy and of the load
	// balancer.
	Proxy, Run []string
	// Env is the environment of the children; nil means the environment of this process.
	Env []string
}

// Penstock returns how to run the penstock program. command is Proxy or Run, and args follow it.
func (p *Program) Penstock(name string, command []string, args ...string) process.Spec {
	spec := p.Spec(name, command, args...)
	if p.PenstockPath != "" {
		spec.Path, spec.Args[0] = p.PenstockPath, "penstock"
	}
	return spec
}

// Spec returns how to run the program with the parts. command is Part, and args follow it.
func (p *Program) Spec(name string, command []string, args ...string) process.Spec {
	all := append([]string{p.Name}, command...)
	return process.Spec{Name: name, Path: p.Path, Args: append(all, args...), Env: p.Env}
}

// Setting says where and how a contestant is started.
type Setting struct {
	Group    *process.Group // starts the contestant; may be isolated
	Program  Program        // the program for Penstock and the rival
	Upstream string         // IPv4 address and port to forward to
	// Endpoints are the addresses to which the kinds of Balancing forward, instead of to Upstream. For other kinds
	// it must be empty.
	Endpoints []string
	// Listen is the IPv4 address and port to listen at. If it is "" or the port is 0, the kernel chooses a port.
	Listen string
	// Dir is the directory for configurations and unix sockets. Each start makes a new directory in it. The caller
	// removes Dir.
	Dir string
	// Certificate is a PEM file with a certificate and its key, with which the kinds of Terminating terminate TLS.
	// For other kinds it must be empty.
	Certificate string
	// Binaries has the paths of the executables "haproxy", "nginx" and "envoy". Other executables are searched for
	// in PATH, and where servers are installed.
	Binaries map[string]string
	// Threads is the number of nginx's workers and of Envoy's threads; 0 means one for each processor. Other
	// contestants have the number in their name, or choose it.
	Threads int
	// Patience is how long a contestant may take to accept connections, and to forget ended connections; 0 means
	// 10 s.
	Patience time.Duration
}

// endpoints returns the addresses to forward to.
func (s *Setting) endpoints() []string {
	if len(s.Endpoints) > 0 {
		return s.Endpoints
	}
	return []string{s.Upstream}
}

func (s *Setting) listen() string          { return cmp.Or(s.Listen, "127.0.0.1:0") }
func (s *Setting) threads() int            { return cmp.Or(s.Threads, runtime.NumCPU()) }
func (s *Setting) patience() time.Duration { return cmp.Or(s.Patience, patience) }
