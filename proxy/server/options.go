package server

import (
	"errors"
	"log/slog"
	"time"

	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/proxy/internal/state"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/systemd"
	"github.com/penstock/penstock/relay"
)

// ErrCut is wrapped by the error of [Server.Serve] if sessions were cut.
var ErrCut = errors.New("sessions were cut before their end")

// Options are the settings of a [Server] beside its configuration: those of the command line
// and of the environment.
type Options struct {
	// MaxConnections is the number of connections served at once, as descriptors allow. At
	// that number accepting pauses. It must be at least 1.
	MaxConnections int

	// Loops is the number of event loops that serve clients: 0 means that of the configuration
	// in which the server begins, or GOMAXPROCS.
	Loops int
	// BusyPoll is the time for which a loop goes on asking for events before it sleeps, as in
	// [loop.Config]: up to a whole CPU for each loop.
	BusyPoll time.Duration
	// KeepPolicy means that loops leave the scheduling policy of their threads alone, as in
	// [loop.Config].
	KeepPolicy bool
	// TurnCPU means that the overruns of loops are counted, as in [loop.Config].
	TurnCPU bool

	// Engine is the engine that moves bytes.
	Engine relay.Engine
	// TailDelay, Gather and MaxPipeSize are as in [relay.Config]: 0 means a default there, and
	// a negative time that there is none of that.
	TailDelay, Gather time.Duration
	MaxPipeSize       int

	// Version is that of the program, for traces; empty: unknown.
	Version string

	// DrainTimeout is the time that sessions may take once Serve's context has ended. Those
	// that have not ended by then are cut. 0 means no limit.
	DrainTimeout time.Duration

	// Log gets messages for operators, and at level debug a line for each session. Its handler
	// must not wait: event loops call it. Nil means no log.
	Log *slog.Logger

	// State keeps changes by hand over a restart; nil: they end with the process. The caller closes it,
	// when the process begins to drain or after the end.
	State *state.Store

	// Sockets are those that systemd has passed to the process; nil: none. The caller closes
	// them after the end.
	Sockets *systemd.Sockets
}

// openRelay makes the pool of pipes, unless nothing will be spliced, and the relay that
// leases from it. The caller owns both, and closes the pool after the relay; the pool is nil
// if there is none.
func (o *Options) openRelay() (*relay.Relay, *pipe.Pool, error) {
	cfg := &relay.Config{Engine: o.Engine, TailDelay: o.TailDelay, Gather: o.Gather, MaxPipeSize: o.MaxPipeSize, LegsAfter: verdict.Least}
	if o.Engine != relay.EngineCopy {
		var err error
		cfg.Pipes, err = pipe.NewPool(nil)
		if err != nil && !errors.Is(err, pipe.ErrNotSupported) {
			return nil, nil, err
		}
	}
	r, err := relay.New(cfg)
	if err != nil && cfg.Pipes != nil {
		err = errors.Join(err, cfg.Pipes.Close())
		cfg.Pipes = nil
	}
	return r, cfg.Pipes, err
}
