package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/pipe"
)

// ErrConfig is wrapped by the error of [New] when a field of [Config] is invalid.
var ErrConfig = errors.New("invalid relay configuration")

// Config sets up a [Relay]. The zero value, and a nil *Config, mean the defaults.
type Config struct {
	// Engine says how bytes may be moved; EngineAuto is the default.
	Engine Engine

	// Pipes is the pool from which pipes are leased. If it is nil, New makes a pool with the defaults of
	// package pipe, and Close closes that pool. Close leaves a given pool open.
	Pipes *pipe.Pool

	// IdleTimeout ends a session when for this time no byte has moved, and no sent byte was acknowledged, in either
	// direction; see [Limits.IdleTimeout]. 0 means never.
	IdleTimeout time.Duration
	// HalfCloseTimeout replaces IdleTimeout once one direction has ended; see [Limits.HalfCloseTimeout].
	HalfCloseTimeout time.Duration
	// MaxLifetime ends a session at that age; 0 means never.
	MaxLifetime time.Duration
	// CloseOnEOF ends a session at the first end of file, from either side, and closes both connections. All bytes
	// before the end of file are delivered. Bytes of the other side that have already arrived here are delivered if
	// their destination takes them at once; if they are lost, the error wraps [ErrTruncated], and the side that
	// lacks them is reset. Bytes that the other side has sent and that have not arrived are lost without an error:
	// if its end has not come, its direction's [Flow] has ReasonCanceled. A side that still sends, or still lacks
	// bytes, stays open until it has acknowledged all bytes that were sent to it. If it acknowledges none for five
	// seconds it is closed. If a wrapper hides its socket, bytes may be lost without an error: bytes that its peer
	// has not acknowledged, and bytes that have arrived at it and were not read before the other side's end. Use
	// CloseOnEOF for peers that do not know half-closes. New refuses it together with HalfCloseTimeout.
	CloseOnEOF bool

	// Hooks are called at events of sessions that run on goroutines.
	Hooks Hooks

	// MaxPipeSize is the size in bytes up to which the pipe of a direction may grow
	// while the direction keeps filling it. Default 1 MiB; less than pipe.DefaultSize
	// means that pipes do not grow.
	MaxPipeSize int

	// TailDelay bounds how long the last bytes of a bulk transfer wait below the low-water mark of their source
	// (SO_RCVLOWAT), which is raised during bulk transfers. Default 1 ms, at least 100 µs and at most one
	// second; negative means that no mark is raised.
	TailDelay time.Duration

	// LegsAfter adds [Result.Legs], the kernel's account of the TCP connections, to the result of sessions
	// that lasted at least this time. It costs a system call for each connection at the end, or up to three
	// if packets came out of order. Sessions on goroutines also count their [Waits] then. 0 means none.
	LegsAfter time.Duration

	// Gather is how long, at most, a loop waits for more bytes before it looks for events. It waits only while
	// many sessions of a [Driver] carry bulk and nothing else happens. Default 400 µs, at most 1 ms; negative
	// means not at all.
	Gather time.Duration

	promote, demote threshold // for tests
}

// A threshold is the number and size of consecutive reads that switch a direction to the
// other engine. docs/library.md has the measurements behind both.
type threshold struct{ bytes, reads int }

const (
	defaultMaxPipeSize = 1 << 20
	defaultTailDelay   = time.Millisecond
	defaultGather      = 400 * time.Microsecond

	minTailDelay   = 100 * time.Microsecond
	maxMaxPipeSize = 1 << 30

	// bufferSize is the size of one copied read.
	bufferSize = 64 << 10
)

// withDefaults returns c with its zero fields filled in.
func (c Config) withDefaults() Config {
	c.promote, c.demote = threshold{32 << 10, 2}, threshold{16 << 10, 4} // bytes: at least 32 KiB promotes, less than 16 KiB demotes; the gap is the hysteresis
	setDefault(&c.MaxPipeSize, defaultMaxPipeSize)
	setDefault(&c.TailDelay, defaultTailDelay)
	setDefault(&c.Gather, defaultGather)
	return c
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func (c *Config) check() error {
	for _, field := range []struct {
		name string
		is   time.Duration
	}{{"IdleTimeout", c.IdleTimeout}, {"HalfCloseTimeout", c.HalfCloseTimeout}, {"MaxLifetime", c.MaxLifetime}, {"LegsAfter", c.LegsAfter}} {
		if field.is < 0 {
			return fmt.Errorf("%w: %s is %v; write 0 or more", ErrConfig, field.name, field.is)
		}
	}
	switch {
	case c.Engine > EngineCopy:
		return fmt.Errorf("%w: Engine is %v; use EngineAuto, EngineSplice or EngineCopy", ErrConfig, c.Engine)
	case c.CloseOnEOF && c.HalfCloseTimeout > 0:
		return fmt.Errorf("%w: CloseOnEOF leaves no session half closed, so HalfCloseTimeout %v has no effect; set only one of them", ErrConfig, c.HalfCloseTimeout)
	case c.TailDelay >= 0 && c.TailDelay < minTailDelay || c.TailDelay > time.Second:
		return fmt.Errorf("%w: TailDelay is %v; write %v to 1s, or a negative one for no marks", ErrConfig, c.TailDelay, minTailDelay)
	case c.MaxPipeSize < 0 || c.MaxPipeSize > maxMaxPipeSize:
		return fmt.Errorf("%w: MaxPipeSize is %d; write 1 to %d, or 0 for %d", ErrConfig, c.MaxPipeSize, maxMaxPipeSize, defaultMaxPipeSize)
	case c.Gather > time.Millisecond:
		return fmt.Errorf("%w: Gather is %v; write at most 1ms, or a negative one for none", ErrConfig, c.Gather)
	}
	return nil
}

// Engine says how a direction may move its bytes.
//
// The bytes of *net.TCPConn, stream *net.UnixConn and *os.File are moved by system calls on their descriptors.
// While reads are small they are copied, through a buffer that the relay lends for the moment. Once two reads in a
// row had 32 KiB or more, the bytes go through a kernel pipe that it lends, by splice(2), and do not enter the
// process. A regular file is sent by sendfile(2) or copy_file_range(2). Every other type is moved through its own
// Read and Write, and the result says so ([FallbackWrapped]). The buffers then have io.Copy's size, because one
// Read or Write may be a message; datagram sockets of package net get 64 KiB, the most that IP can carry. Systems
// other than Linux move everything this way ([FallbackUnsupported]). A type that embeds a *net.TCPConn is
// another type: relay goes beneath a wrapper only if that is an [Unwrapper].
//
// A direction that waits for its source holds neither pipe nor buffer, unless its source is one of
// the other types: their Read needs a buffer to wait with. Bytes that a slow destination has not
// taken stay in the pipe or buffer that they came in, and no more are read from the source. (A
// [Driver] moves the rest in its loop's shared buffer to a slot of package arena that is just large
// enough.)
type Engine uint8

const (
	// EngineAuto copies small reads and splices large ones, by the sizes of the direction's last reads.
	EngineAuto Engine = iota
	// EngineSplice splices every read, however small.
	EngineSplice
	// EngineCopy copies every read through a buffer.
	EngineCopy
)

// ErrUnknownEngine is wrapped by [ParseEngine]'s error.
var ErrUnknownEngine = errors.New("unknown engine")

var engineNames = [...]string{EngineAuto: "auto", EngineSplice: "splice", EngineCopy: "copy"}

// String returns "auto", "splice" or "copy".
func (e Engine) String() string {
	if int(e) < len(engineNames) {
		return engineNames[e]
	}
	return fmt.Sprintf("engine(%d)", uint8(e))
}

// ParseEngine returns the engine with that name. Its error wraps [ErrUnknownEngine] and names the engines.
func ParseEngine(name string) (Engine, error) {
	for e, n := range engineNames {
		if n == name {
			return Engine(e), nil
		}
	}
	return 0, fmt.Errorf("penstock: relay: %w %q: write auto, splice or copy", ErrUnknownEngine, name)
}
