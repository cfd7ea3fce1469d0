package sessionlog

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/relay"
)

// Settings say which sessions have lines, the lines' format, and where they go. They are not
// changed once they are opened.
type Settings struct {
	Destination      Destination
	Format, Template string
	// Start and End write a line at the beginning and at the end of a session. Every is the
	// interval of further lines; 0: none.
	Start, End bool
	Every      time.Duration
	// OnlyFailed leaves out sessions that have ended by their ends of file. SlowerThan leaves out
	// shorter sessions, 0: none; Share is the part of all sessions, from 0 to 1, that have lines.
	// Failed sessions are not left out by SlowerThan.
	OnlyFailed bool
	SlowerThan time.Duration
	Share      float64
	// PerSecond is how many lines are written in a second at most; 0: any number.
	PerSecond int64
	// Without are listeners without lines for their sessions.
	Without map[string]bool

	format formatter
	sink   sink // the writer's, once it has the settings
	least  uint64
}

// Open opens the destination. The settings are passed to [Log.Set] or [Settings.Discard] then.
func (s *Settings) Open() (err error) {
	if s.format, err = formatterOf(s.Format, s.Template); err != nil {
		return fmt.Errorf("session log: %w", err)
	}
	c := newContext()
	c.wall = func(int64) time.Time { return time.Now() } // replaced by the log
	if s.sink, err = s.Destination.open(c); err != nil {
		return fmt.Errorf("session log: %w", err)
	}
	s.least = uint64(math.MaxUint64)
	if s.Share < 1 {
		s.least = uint64(s.Share * (1 << 63) * 2)
	}
	return nil
}

// Discard closes settings that are not brought into force.
func (s *Settings) Discard() { s.sink.close() }

// has reports whether there are lines of a kind.
func (s *Settings) has(k Kind) bool {
	switch k {
	case Start:
		return s.Start
	case Progress:
		return s.Every > 0
	}
	return s.End
}

// sampled reports whether a session belongs to the share: either all its lines are written, or
// none.
func (s *Settings) sampled(id record.ID) bool {
	return s.Share >= 1 || binary.BigEndian.Uint64(id[8:]) < s.least
}

// wants reports whether a session passes the filters.
func (s *Settings) wants(k Kind, now int64, r *record.Record) bool {
	if !s.sampled(r.ID) {
		return false
	}
	if k != End {
		return !s.OnlyFailed && s.SlowerThan == 0 || k == Progress && !s.OnlyFailed && time.Duration(now-r.Accepted) >= s.SlowerThan
	}
	failed := r.Outcome != record.CancelSent && (r.Outcome != record.Joined || r.Result.Reason != relay.ReasonEOF)
	if failed {
		return true
	}
	return !s.OnlyFailed && time.Duration(now-r.Accepted) >= s.SlowerThan
}
