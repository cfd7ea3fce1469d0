package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/relay"
)

// engineFlags configure the relay engine and the event loops.
type engineFlags struct {
	Engine string `enum:"auto,splice,copy" default:"auto" placeholder:"auto|splice|copy" help:"Move bytes in this way. (default: ${default})"`

	TailDelay   cli.Millis `default:"1ms" placeholder:"TIME" help:"Wait this long for more bytes of a large transfer (SO_RCVLOWAT), 100us to 1s. With 0, bytes are forwarded as they arrive. (default: ${default})"`
	Gather      cli.Micros `default:"400us" placeholder:"TIME" help:"A loop with only bulk sessions may wait this long for more bytes. The maximum is 1ms. (default: ${default})"`
	MaxPipeSize cli.Size   `default:"1MiB" placeholder:"SIZE" help:"Let the pipe of a session with a bulk transfer grow to this size, within fs.pipe-max-size. With 64KiB no pipe grows. (default: ${default})"`

	Loops    *int       `placeholder:"N" help:"Run this many event loops, each on its own thread. (default: limits.loops.count of the configuration, or one for each CPU)"`
	BusyPoll cli.Micros `default:"0" placeholder:"TIME" help:"Poll for this time after each event, at most 1s, before sleeping. Polling saves a wake-up, and uses up to one CPU per loop. (default: ${default})"`

	TurnCPU bool `hidden:"" help:"Measure the CPU time of loops' turns, for the summary's overruns."`

	SchedBatch bool `default:"true" negatable:"" help:"Give the thread of a busy loop the policy SCHED_BATCH (sched(7)). When all CPUs are busy, the thread then waits up to a time slice for a CPU instead of preempting another thread. This saves much CPU. --no-sched-batch leaves the policy alone. (default: on)"`
}

func (f *engineFlags) config(cfg *server.Options) (err error) {
	if cfg.Engine, err = relay.ParseEngine(f.Engine); err != nil {
		return err
	}
	if err = f.configLoops(cfg); err != nil {
		return err
	}
	return f.configBulk(cfg)
}

// maxLoops is more than most machines have CPUs.
const maxLoops = 1024

func (f *engineFlags) configLoops(cfg *server.Options) error {
	cfg.BusyPoll, cfg.KeepPolicy, cfg.TurnCPU = time.Duration(f.BusyPoll), !f.SchedBatch, f.TurnCPU
	if err := f.checkLoops(); err != nil {
		return err
	}
	if f.Loops != nil {
		cfg.Loops = *f.Loops
	}
	if cfg.BusyPoll > time.Second {
		return fmt.Errorf("--busy-poll %v: write 1s or less, such as 50us", cfg.BusyPoll)
	}
	return nil
}

func (f *engineFlags) checkLoops() error {
	if f.Loops != nil && (*f.Loops < 1 || *f.Loops > maxLoops) {
		return fmt.Errorf("--loops %d: write 1 to %d, or leave the flag out: then each CPU has a loop", *f.Loops, maxLoops)
	}
	return nil
}

// Limits of these flags.
const (
	minTailDelay   = 100 * time.Microsecond // the guard's timer fires twice in this time
	maxTailDelay   = time.Second
	maxGather      = time.Millisecond
	minMaxPipeSize = 64 << 10
	maxMaxPipeSize = 64 << 20
)

func (f *engineFlags) configBulk(cfg *server.Options) error {
	tail, gather := time.Duration(f.TailDelay), time.Duration(f.Gather)
	switch {
	case tail != 0 && tail < minTailDelay || tail > maxTailDelay:
		return fmt.Errorf("--tail-delay %v: write %v to %v, or 0 for none", tail, minTailDelay, maxTailDelay)
	case gather > maxGather:
		return fmt.Errorf("--gather %v: write %v or less, or 0 for none", gather, maxGather)
	case f.MaxPipeSize < minMaxPipeSize || f.MaxPipeSize > maxMaxPipeSize:
		return errors.New("--max-pipe-size: write 64KiB to 64MiB. 64KiB: pipes do not grow")
	}
	cfg.TailDelay, cfg.Gather, cfg.MaxPipeSize = cli.Timeout(f.TailDelay).OrOff(), cli.Timeout(f.Gather).OrOff(), int(f.MaxPipeSize)
	return nil
}

// spareProcs is how many Ps there are beyond one per loop, unless the environment sets GOMAXPROCS. Without an idle P,
// the runtime's monitor checks every 20 µs for a loop that sleeps in the kernel. It retakes the loop's P, and a thread
// spins on it. The loop then wakes without a P, and moves to that thread. A spare P also lets other goroutines run at
// once.
const spareProcs = 1

// addProcs raises GOMAXPROCS to loops+spareProcs, and returns a function that restores it. If it is high enough
// already, addProcs does not set it: once it has been set, the runtime no longer follows the limits of a container.
// If the process is confined to a number of CPUs (cpus is not 0), addProcs always sets it: the runtime would follow
// this number, and leave no spare P.
func addProcs(loops, cpus int) (undo func()) {
	had := runtime.GOMAXPROCS(0)
	want := max(loops, min(cpus, had)) + spareProcs
	if cpus == 0 && had >= want {
		return func() {}
	}
	runtime.GOMAXPROCS(want)
	return func() { runtime.GOMAXPROCS(had) }
}

// reloadProcs is how many more Ps there are while a configuration is read and applied. This work keeps one P busy, and
// the collector takes all that are idle. A loop that returns from a system call in the middle of a turn would have to
// wait for a P.
const reloadProcs = 4

// widen adds reloadProcs, unless the environment sets GOMAXPROCS, and returns a function that removes them.
func widen(env func(string) (string, bool)) (undo func()) {
	if _, set := env("GOMAXPROCS"); set {
		return func() {}
	}
	had := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(had + reloadProcs)
	return func() { runtime.GOMAXPROCS(had) }
}

// gcPercent is GOGC, unless the environment sets it. On loops a session takes 370 B and leaves no garbage, so there
// is almost nothing to collect. The collector runs at least every two minutes anyway.
const gcPercent = 200

// tune applies gcPercent, unless the environment sets GOGC, and returns a function that restores it.
func tune(e *cli.Env) (undo func()) {
	if e.Getenv("GOGC") != "" {
		return func() {}
	}
	had := debug.SetGCPercent(gcPercent)
	return func() { debug.SetGCPercent(had) }
}

// fit sets the options that depend on the number of loops, and the number of Ps, unless the environment does. It
// returns a function that restores them.
func fit(env config.Env, limits *config.ProcessLimits, o *server.Options) (undo func()) {
	count := limits.Loops.Count
	if o.Loops > 0 && count > 0 && o.Loops != count {
		o.Log.Warn("limits.loops.count is not used: --loops takes precedence", "count", count, "loops", o.Loops)
	}
	if o.Loops == 0 {
		o.Loops = limits.Loops.Number(cli.DefaultLoops())
	}
	o.MaxConnections = cli.Affordable(cli.Descriptors(), o.Loops)
	if procs, set := env("GOMAXPROCS"); set && procs != "" {
		return func() {}
	}
	return addProcs(o.Loops, len(limits.Loops.CPUs()))
}
