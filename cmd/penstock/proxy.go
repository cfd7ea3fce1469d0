package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/relay"
)

type proxyCmd struct {
	Listen []string `sep:"none" placeholder:"ADDR" help:"Where to listen: host:port, :port, [ipv6]:port, unix:/path or unix:/path?mode=0660; port 0 lets the kernel choose; of a name the first address is taken. Repeat it for more."`
	To     []string `sep:"none" placeholder:"ADDR" help:"Target: host:port or unix:/path. Repeat it for more, which take turns; when one refuses, the next is tried."`
	Engine string   `enum:"auto,splice,copy" default:"auto" placeholder:"auto|splice|copy" help:"How bytes are moved. (default: ${default})"`

	TailDelay   millis `default:"1ms" placeholder:"TIME" help:"How long the last bytes of a bulk transfer may wait while more of them are waited for (SO_RCVLOWAT), 100us to 1s; 0 has a socket told of for every byte. (default: ${default})"`
	Gather      micros `default:"400us" placeholder:"TIME" help:"How long a loop lets bytes gather, at most, while many sessions carry bulk and nothing else goes on; at most 1ms. (default: ${default})"`
	MaxPipeSize size   `default:"1MiB" placeholder:"SIZE" help:"How large the pipe of a session that carries bulk may grow, within fs.pipe-max-size; 64KiB has none grow. (default: ${default})"`

	SourceAddress string `placeholder:"IP" help:"Local address to connect to targets from. (default: the kernel chooses)"`

	Loops    *int   `placeholder:"N" help:"Event loops that serve, each on a goroutine of its own. 0 has goroutines serve instead, two for each session. (default: GOMAXPROCS, one for each CPU)"`
	BusyPoll micros `default:"0" placeholder:"TIME" help:"How long a loop goes on asking for events before it sleeps, at most 1s: spares what waking a thread takes, and costs up to a whole CPU for each loop, for so long after each event. (default: ${default})"`

	SchedBatch bool `default:"true" negatable:"" help:"While a loop has much to do its thread has SCHED_BATCH, see sched(7): it waits for a CPU that is busy, for as long as a time slice, instead of taking it, which saves much CPU where none is idle. --no-sched-batch leaves the policy alone. (default: on)"`

	ConnectTimeout   timeout `default:"5s" placeholder:"TIME" help:"For the attempt to reach one target, all its addresses together. 0 is off, for this and all timeouts. (default: ${default})"`
	IdleTimeout      timeout `default:"1h" placeholder:"TIME" help:"Ends a session in which no byte moved for so long. (default: ${default})"`
	HalfCloseTimeout timeout `default:"1m" placeholder:"TIME" help:"The same, once one side has sent its end of file. (default: ${default})"`
	DrainTimeout     timeout `default:"30s" placeholder:"TIME" help:"How long sessions may go on after SIGTERM, SIGINT or SIGHUP; a second signal cuts them at once. (default: ${default})"`
	UserTimeout      timeout `default:"15m" placeholder:"TIME" help:"TCP_USER_TIMEOUT: how long a peer may leave bytes unacknowledged, or its window shut. (default: ${default})"`

	MaxConnections *int `placeholder:"N" help:"Connections served at once; at the limit accepting pauses. (default, and most: what RLIMIT_NOFILE allows)"`

	Log      string `enum:"text,json" default:"text" placeholder:"text|json" help:"Form of the log on standard error, and of the summary on standard output. (default: ${default})"`
	LogLevel string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Least level to log: debug (a line for each session), info, warn or error. (default: ${default})"`
}

// gcPercent is GOGC unless the environment sets it. With goroutines the heap holds
// idle sessions of 10 kB each, and connections that come and go leave as much behind:
// collecting twice as often costs a busy proxy nothing that can be measured, and
// bounds that by half of what lives. On loops a session is 370 B and leaves nothing
// behind, so there is next to nothing to collect; the collector comes by every two
// minutes whatever this says.
func gcPercent(loops int) int {
	if loops < 0 {
		return 50
	}
	return 200
}

// spareProcs is how many Ps there are beside those of the loops, unless the environment
// says how many in all. While no P is idle the runtime's monitor looks every 20 µs for one
// whose loop sleeps in the kernel, takes it away, and has a thread spin on it; the loop
// then wakes without a P, and moves to that thread. A spare one also lets other
// goroutines run at once.
const spareProcs = 1

// addProcs sees to it that there are so many, and returns what undoes it. It leaves
// GOMAXPROCS alone where it can: once it has been set the runtime does not follow the
// limits of a container any more.
func addProcs(loops int) (undo func()) {
	had := runtime.GOMAXPROCS(0)
	if loops < 0 || had >= loops+spareProcs {
		return func() {}
	}
	runtime.GOMAXPROCS(loops + spareProcs)
	return func() { runtime.GOMAXPROCS(had) }
}

// Run serves until a signal stops it.
func (c *proxyCmd) Run(e *env) error {
	last, cancel := context.WithCancel(context.Background())
	defer cancel()
	direct := newLogger(e.stderr, c.Log, c.LogLevel)
	out := newSpool(e.stderr, func(n int64) {
		direct.Warn("lines of the log dropped, its reader is slow", "lines", n)
	})
	log := newLogger(out, c.Log, c.LogLevel)
	cfg, err := c.config()
	if err != nil {
		err = usagef("proxy: %w (see: penstock proxy --help)", err)
	} else {
		if e.getenv("GOGC") == "" {
			defer debug.SetGCPercent(debug.SetGCPercent(gcPercent(cfg.Loops)))
		}
		if e.getenv("GOMAXPROCS") == "" {
			defer addProcs(cfg.Loops)()
		}
		cfg.Log = log
		err = c.run(e, cfg, newLogger(patient{out}, c.Log, c.LogLevel))
	}
	err = c.fail(out, log, err)
	time.AfterFunc(lastWords, cancel)
	out.close(last)
	return err
}

// config makes a server's configuration of the flags.
func (c *proxyCmd) config() (*proxy.Config, error) {
	cfg := &proxy.Config{
		ConnectTimeout:   c.ConnectTimeout.duration(),
		IdleTimeout:      c.IdleTimeout.duration(),
		HalfCloseTimeout: c.HalfCloseTimeout.duration(),
		DrainTimeout:     c.DrainTimeout.duration(),
		Socket:           socket.Options{UserTimeout: c.UserTimeout.orOff()},
	}
	var err error
	if cfg.Listen, err = addresses("--listen", c.Listen); err != nil {
		return nil, err
	}
	if cfg.To, err = addresses("--to", c.To); err != nil {
		return nil, err
	}
	if cfg.Engine, err = relay.ParseEngine(c.Engine); err != nil {
		return nil, err
	}
	for _, configure := range []func(*proxy.Config) error{c.configLoops, c.configBulk, c.configSource} {
		if err := configure(cfg); err != nil {
			return nil, err
		}
	}
	cfg.MaxConnections = affordable(descriptors(), cfg.Loops)
	if asked := c.MaxConnections; asked != nil {
		if *asked < 1 {
			return nil, errors.New("--max-connections: write 1 or more, or leave it away for what RLIMIT_NOFILE allows")
		}
		cfg.MaxConnections = min(cfg.MaxConnections, *asked)
	}
	if c.UserTimeout.duration() > socket.MaxUserTimeout {
		return nil, fmt.Errorf("--user-timeout: the kernel takes at most %v, write less, or 0 for none", socket.MaxUserTimeout)
	}
	return cfg, nil
}

// maxLoops is more than there are CPUs, as a rule.
const maxLoops = 1024

// configLoops sets how many loops there are, none (-1) being goroutines.
func (c *proxyCmd) configLoops(cfg *proxy.Config) error {
	cfg.BusyPoll, cfg.KeepPolicy = time.Duration(c.BusyPoll), !c.SchedBatch
	switch {
	case c.Loops == nil:
		cfg.Loops = defaultLoops()
	case *c.Loops == 0:
		cfg.Loops = -1
	case *c.Loops < 0 || *c.Loops > maxLoops:
		return fmt.Errorf("--loops %d: write 1 to %d, 0 for goroutines, or leave it away for one for each CPU", *c.Loops, maxLoops)
	default:
		cfg.Loops = *c.Loops
	}
	switch {
	case cfg.BusyPoll > time.Second:
		return fmt.Errorf("--busy-poll %v: write 1s or less, such as 50us", cfg.BusyPoll)
	case cfg.BusyPoll > 0 && cfg.Loops < 0:
		return errors.New("--busy-poll is of loops: leave it away, or --loops 0")
	}
	return nil
}

// The least and the most that these flags may be.
const (
	minTailDelay   = 100 * time.Microsecond // the guard's timer comes twice in it
	maxTailDelay   = time.Second
	maxGather      = time.Millisecond
	minMaxPipeSize = 64 << 10
	maxMaxPipeSize = 64 << 20
)

// configBulk sets how bulk is moved.
func (c *proxyCmd) configBulk(cfg *proxy.Config) error {
	tail, gather := time.Duration(c.TailDelay), time.Duration(c.Gather)
	switch {
	case tail != 0 && tail < minTailDelay || tail > maxTailDelay:
		return fmt.Errorf("--tail-delay %v: write %v to %v, or 0 for none", tail, minTailDelay, maxTailDelay)
	case gather > maxGather:
		return fmt.Errorf("--gather %v: write %v or less, or 0 for none", gather, maxGather)
	case c.MaxPipeSize < minMaxPipeSize || c.MaxPipeSize > maxMaxPipeSize:
		return errors.New("--max-pipe-size: write 64KiB, for pipes that do not grow, to 64MiB")
	}
	cfg.TailDelay, cfg.Gather, cfg.MaxPipeSize = timeout(c.TailDelay).orOff(), timeout(c.Gather).orOff(), int(c.MaxPipeSize)
	return nil
}

// configSource sets from where to connect.
func (c *proxyCmd) configSource(cfg *proxy.Config) (err error) {
	if c.SourceAddress == "" {
		return nil
	}
	if cfg.Source, err = netip.ParseAddr(c.SourceAddress); err != nil {
		return fmt.Errorf("--source-address %q: write an IP address of this machine without a port, such as 10.0.0.7", c.SourceAddress)
	}
	return nil
}

// logStart says under which bounds the proxy runs.
func (c *proxyCmd) logStart(cfg *proxy.Config) {
	have := descriptors()
	cfg.Log.Info("starting", "version", version(), "engine", cfg.Engine.String(), "loops", max(cfg.Loops, 0), "to", c.To,
		"max_connections", cfg.MaxConnections, "rlimit_nofile", have)
	if c.MaxConnections != nil && *c.MaxConnections > cfg.MaxConnections {
		cfg.Log.Warn("max-connections lowered to what RLIMIT_NOFILE allows", "asked", *c.MaxConnections,
			"max_connections", cfg.MaxConnections, "rlimit_nofile", have)
	}
}

// fail reports why the program ends: as a line of the log where that is what
// others parse, otherwise as one for people.
func (c *proxyCmd) fail(out io.Writer, log *slog.Logger, err error) error {
	if err == nil {
		return nil
	}
	if c.Log == "json" {
		log.Error(err.Error())
	} else {
		(&env{stderr: out}).complain(err)
	}
	if errors.As(err, new(usageError)) {
		return exitCode(exitUsage)
	}
	return exitCode(exitError)
}
