package sessionlog

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/relay"
)

// Settings say which sessions have lines, the lines' format, and their destination. They do not change once they are
// opened.
type Settings struct {
	Destination      Destination
	Format, Template string
	// Start and End ask for a line at the beginning and at the end of a session. Every is the interval of progress
	// lines, or 0.
	Start, End bool
	Every      time.Duration
	// OnlyFailed leaves out sessions that both sides ended by their end of file. SlowerThan leaves out shorter
	// sessions, except failed ones; 0 leaves out none. Share is the fraction of all sessions that have lines, 0 to 1.
	OnlyFailed bool
	SlowerThan time.Duration
	Share      float64
	// PerSecond limits the lines written in a second. 0 is no limit.
	PerSecond int64
	// Without holds the listeners that get no lines.
	Without map[string]bool

	format formatter
	sink   sink // owned by the writer once it has the settings
	least  uint64
}

// Open opens the destination. The caller then passes the settings to [Log.Set], or calls [Settings.Discard].
func (s *Settings) Open() (err error) {
	if s.format, err = formatterOf(s.Format, s.Template); err != nil {
		return fmt.Errorf("session log: %w", err)
	}
	if to := s.Destination.kind; s.Format == FormatHAProxy && (to == toSyslogUDP || to == toSyslogUnix) {
		s.format = appendTCPLog // the syslog server adds the header
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

// Discard closes settings that will not be put into force.
func (s *Settings) Discard() { s.sink.close() }

func (s *Settings) has(k Kind) bool {
	switch k {
	case Start:
		return s.Start
	case Progress:
		return s.Every > 0
	}
	return s.End
}

// sampled reports whether a session is in the share. All lines of a session are written, or none.
func (s *Settings) sampled(id record.ID) bool {
	return s.Share >= 1 || binary.BigEndian.Uint64(id[8:]) < s.least
}

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
