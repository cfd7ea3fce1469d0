package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/relay"
)

// engineFlags are those of how bytes are moved, and by whom.
type engineFlags struct {
	Engine string `enum:"auto,splice,copy" default:"auto" placeholder:"auto|splice|copy" help:"How bytes are moved. (default: ${default})"`

	TailDelay   millis `default:"1ms" placeholder:"TIME" help:"How long the last bytes of a bulk transfer may wait while more of them are waited for (SO_RCVLOWAT), 100us to 1s; 0 has a socket told of for every byte. (default: ${default})"`
	Gather      micros `default:"400us" placeholder:"TIME" help:"How long a loop lets bytes gather, at most, while many sessions carry bulk and nothing else goes on; at most 1ms. (default: ${default})"`
	MaxPipeSize size   `default:"1MiB" placeholder:"SIZE" help:"How large the pipe of a session that carries bulk may grow, within fs.pipe-max-size; 64KiB has none grow. (default: ${default})"`

	Loops    *int   `placeholder:"N" help:"Event loops that serve, each on a goroutine of its own. 0 has goroutines serve instead, two for each session. (default: GOMAXPROCS, one for each CPU)"`
	BusyPoll micros `default:"0" placeholder:"TIME" help:"How long a loop goes on asking for events before it sleeps, at most 1s: spares what waking a thread takes, and costs up to a whole CPU for each loop, for so long after each event. (default: ${default})"`

	TurnCPU bool `hidden:"" help:"Measure the CPU time of loops' turns, for the summary's overruns."`

	SchedBatch bool `default:"true" negatable:"" help:"While a loop has much to do its thread has SCHED_BATCH, see sched(7): it waits for a CPU that is busy, for as long as a time slice, instead of taking it, which saves much CPU where none is idle. --no-sched-batch leaves the policy alone. (default: on)"`
}

// config sets what the flags say.
func (f *engineFlags) config(cfg *proxy.Config) (err error) {
	if cfg.Engine, err = relay.ParseEngine(f.Engine); err != nil {
		return err
	}
	if err = f.configLoops(cfg); err != nil {
		return err
	}
	return f.configBulk(cfg)
}

// maxLoops is more than there are CPUs, as a rule.
const maxLoops = 1024

// configLoops sets how many loops there are, none (-1) being goroutines.
func (f *engineFlags) configLoops(cfg *proxy.Config) error {
	cfg.BusyPoll, cfg.KeepPolicy, cfg.TurnCPU = time.Duration(f.BusyPoll), !f.SchedBatch, f.TurnCPU
	switch {
	case f.Loops == nil:
		cfg.Loops = defaultLoops()
	case *f.Loops == 0:
		cfg.Loops = -1
	case *f.Loops < 0 || *f.Loops > maxLoops:
		return fmt.Errorf("--loops %d: write 1 to %d, 0 for goroutines, or leave it away for one for each CPU", *f.Loops, maxLoops)
	default:
		cfg.Loops = *f.Loops
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
func (f *engineFlags) configBulk(cfg *proxy.Config) error {
	tail, gather := time.Duration(f.TailDelay), time.Duration(f.Gather)
	switch {
	case tail != 0 && tail < minTailDelay || tail > maxTailDelay:
		return fmt.Errorf("--tail-delay %v: write %v to %v, or 0 for none", tail, minTailDelay, maxTailDelay)
	case gather > maxGather:
		return fmt.Errorf("--gather %v: write %v or less, or 0 for none", gather, maxGather)
	case f.MaxPipeSize < minMaxPipeSize || f.MaxPipeSize > maxMaxPipeSize:
		return errors.New("--max-pipe-size: write 64KiB, for pipes that do not grow, to 64MiB")
	}
	cfg.TailDelay, cfg.Gather, cfg.MaxPipeSize = timeout(f.TailDelay).orOff(), timeout(f.Gather).orOff(), int(f.MaxPipeSize)
	return nil
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

// reloadProcs is how many more Ps there are while a configuration is read and brought into
// force. It keeps one busy, and the collector up to all that are idle; a loop that comes
// back from a system call in the middle of a turn would wait for one of them.
const reloadProcs = 4

// widen adds them, unless the environment says how many there are, and returns what takes
// them away.
func widen(env func(string) (string, bool)) (undo func()) {
	if _, set := env("GOMAXPROCS"); set {
		return func() {}
	}
	had := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(had + reloadProcs)
	return func() { runtime.GOMAXPROCS(had) }
}

// tune sets up the runtime for so many loops, unless the environment does, and returns
// what undoes it.
func tune(e *env, loops int) (undo func()) {
	collect, procs := func() {}, func() {}
	if e.getenv("GOGC") == "" {
		had := debug.SetGCPercent(gcPercent(loops))
		collect = func() { debug.SetGCPercent(had) }
	}
	if e.getenv("GOMAXPROCS") == "" {
		procs = addProcs(loops)
	}
	return func() {
		procs()
		collect()
	}
}
