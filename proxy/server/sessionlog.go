package server

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/sessionlog"
)

// A sessionLog is the session log of a server, if there is one. The log is opened and changed under the server's mu.
type sessionLog struct {
	*core
	sessions atomic.Pointer[sessionlog.Log] // owned; nil until the first log
	progress chan struct{}                  // signals that the settings have changed
	stuck    bool                           // its lines wait, and this was logged; guarded by the server's mu
}

// A nextSessionLog is the session log of a configuration that is to be applied.
type nextSessionLog struct {
	settings *sessionlog.Settings // open; owned until used; nil: there is none
	used     bool                 // by the log
	err      error                // why it cannot be opened
}

// openNext opens the session log of a configuration, or returns nil if the log stays as it is. A file system that hangs may
// take its time: the caller does not hold the server's mu, and calls discard afterwards.
func openNext(cfg, before *config.Config) *nextSessionLog {
	n, without := new(nextSessionLog), unlogged(cfg)
	switch {
	case before != nil && sameSessionLog(before.SessionLog, cfg.SessionLog) && maps.Equal(unlogged(before), without):
		return nil
	case cfg.SessionLog == nil:
		return n
	}
	settings, err := settingsOf(cfg.SessionLog)
	if err == nil {
		settings.Without = without
		err = settings.Open()
	}
	if n.err = err; err == nil {
		n.settings = settings
	}
	return n
}

// discard closes the settings unless they are used.
func (n *nextSessionLog) discard() {
	if n != nil && n.settings != nil && !n.used {
		n.settings.Discard()
	}
}

// prepareSessionLog prepares a change of the session log.
func (s *sessionLog) prepareSessionLog(c *change, next *nextSessionLog) error {
	switch {
	case next == nil:
		return nil
	case next.err != nil:
		return next.err
	case next.settings == nil:
		if log := s.sessions.Load(); log != nil {
			c.commits = append(c.commits, func() { log.Set(nil) })
		}
		return nil
	}
	log := s.openSessionLog()
	c.commits = append(c.commits, func() {
		next.used = true
		log.Set(next.settings)
		select {
		case s.progress <- struct{}{}:
		default:
		}
	})
	return nil
}

// openSessionLog makes the log once, so that a process without a session log needs no
// memory for it.
func (s *sessionLog) openSessionLog() *sessionlog.Log {
	log := s.sessions.Load()
	if log == nil {
		log = sessionlog.New(&sessionlog.Config{Loops: s.group.Loops(), Now: s.now, Report: s.reportSessionLog})
		s.sessions.Store(log)
	}
	return log
}

// reportSessionLog logs that lines were lost, that their destination has failed, or that it takes lines again.
func (s *sessionLog) reportSessionLog(dropped int64, err error) {
	switch {
	case dropped == 0 && err == nil:
		s.log.Info("the session log is written again")
		return
	case dropped == 0:
		s.log.Warn("the session log has a problem: a line that cannot be written waits, and is dropped if too many wait", "error", err)
		return
	}
	attrs := []any{"lines", dropped}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.log.Warn("lines of the session log were dropped", attrs...)
}

// stuckAfter is how long lines wait before the status says that their destination takes none.
const stuckAfter = 10 * time.Second

// stuckSince returns when lines began to wait, if their destination has taken none for stuckAfter, or the zero time.
func (s *sessionLog) stuckSince() (since time.Time) {
	if log := s.sessions.Load(); log != nil {
		if at := log.Waits(); at != 0 && s.now()-at >= int64(stuckAfter) {
			since = s.wall(at)
		}
	}
	return since
}

// logStuck logs that lines wait, and that they no longer do, unless the log itself reports an error. The server's mu is held.
func (s *sessionLog) logStuck() {
	switch since := s.stuckSince(); {
	case since.IsZero() && s.stuck:
		s.stuck = false
		s.log.Info("the session log is written again")
	case !since.IsZero() && !s.stuck && s.sessions.Load().Failed() == nil:
		s.stuck = true
		s.log.Warn("the session log takes no lines: they wait, and are dropped if too many wait", "since", since)
	}
}

// recentSessionLog adds the losses and the error of the last minute to the counts of a status. The server's mu is
// held.
func (s *sessionLog) recentSessionLog(counts *admin.SessionLog, sums *monitor.Sums) {
	log := s.sessions.Load()
	if counts == nil || log == nil {
		return
	}
	counts.DroppedLastMinute = sums.Recent(s.now(), log, unwrittenLine)
	if failed := log.Failed(); failed != nil && s.now()-failed.At < int64(time.Minute) {
		counts.Error = failed.Err.Error()
	}
}

func unlogged(cfg *config.Config) map[string]bool {
	names := make(map[string]bool)
	for _, l := range cfg.Listeners {
		if !l.SessionLog {
			names[l.Name] = true
		}
	}
	return names
}

func sameSessionLog(a, b *config.SessionLog) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Same(b)
}

func settingsOf(cfg *config.SessionLog) (*sessionlog.Settings, error) {
	to, err := sessionlog.ParseDestination(cfg.To)
	return &sessionlog.Settings{
		Destination: to, Format: cfg.Format, Template: cfg.Template, Start: slices.Contains(cfg.At, "start"), End: slices.Contains(cfg.At, "end"), Every: cfg.Every,
		OnlyFailed: cfg.Only == "failed", SlowerThan: cfg.SlowerThan, Share: cfg.Share / 100, PerSecond: cfg.PerSecond,
	}, err
}

// ReopenLogs opens log files again, after they were moved away.
func (s *Server) ReopenLogs() {
	if log := s.sessionLog.sessions.Load(); log != nil {
		log.Reopen()
	}
}

func (s *sessionLog) closeSessionLog() error {
	if log := s.sessions.Load(); log != nil {
		return log.Close()
	}
	return nil
}

// logProgress looks at running sessions ten times in the interval of their lines, within these bounds.
const (
	progressLeast = 250 * time.Millisecond
	progressMost  = 10 * time.Second
)

// logProgress writes lines on running sessions, until ctx ends.
func (s *sessionLog) logProgress(ctx context.Context) {
	last := s.now()
	for {
		every := time.Duration(0)
		if log := s.sessions.Load(); log != nil {
			every = log.Every()
		}
		wait := progressMost
		if every > 0 {
			wait = min(max(every/10, progressLeast), progressMost)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.progress: // another interval may be in force
		case <-time.After(wait):
		}
		now := s.now()
		if every > 0 {
			s.group.Progress(last, now, every)
		}
		last = now
	}
}

func (s *sessionLog) sessionLogCounts() *admin.SessionLog {
	log := s.sessions.Load()
	if log == nil {
		return nil
	}
	c := log.Counts()
	counts := &admin.SessionLog{Lines: c.Lines, Dropped: make(map[string]int64), Filtered: c.Filtered, StuckSince: s.stuckSince()}
	for reason, n := range map[string]int64{"queue": c.Full, "destination": c.Dropped, "rate": c.Rated} {
		if n > 0 {
			counts.Dropped[reason] = n
		}
	}
	return counts
}
