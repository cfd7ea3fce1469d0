// Package discovery finds the endpoints of an upstream and reports changes. The endpoints come from a list,
// from a file that other programs replace, or from DNS.
//
// A [Source] always returns the whole set. A failure removes nothing from it: as long as the file is unreadable
// or the name servers fail, the source keeps the last good set. [Status] reports the failure.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/file"
)

// An Endpoint is one destination for connections.
type Endpoint struct {
	// Address is host:port, [ipv6]:port, unix:/path or unix:@name. A host name is resolved at
	// connect time.
	Address string
	// Name identifies the endpoint in its upstream; empty: its address.
	Name string
	// Weight is the endpoint's share relative to the weights of the other endpoints, from 0, which is no share, to
	// [MaxWeight]. If no weight is given, sources fill in 1.
	Weight int
	// Backup says that the endpoint gets connections only if no other endpoint can.
	Backup bool
	// Zone is the endpoint's zone, for zone_aware in the configuration.
	Zone string
	// Connections is the limit of concurrent connections; 0: no limit.
	Connections int
	// Refused is why the endpoint is not to be used; "": it may be used. If a record of DNS is unusable, only Refused
	// is set.
	Refused string
}

// Identity identifies an endpoint in its upstream. It is the name, or else the address.
func (e Endpoint) Identity() string {
	if e.Name != "" {
		return e.Name
	}
	return e.Address
}

// MaxWeight is the largest weight of an endpoint, and MaxEndpoints the largest number of endpoints from a source.
const (
	MaxWeight    = 256
	MaxEndpoints = 10_000
)

// A Source finds the endpoints of an upstream. Its methods are safe for concurrent use, except
// that Watch is called once at a time.
type Source interface {
	// Watch calls update with all endpoints as soon as they are known, and again after each change. It returns
	// when ctx is done. The calls come from one goroutine, one after the other, and update owns its argument.
	// The set may be empty. It has the order of the list or file. From DNS it is ordered by priority and
	// address, so that equal answers give equal sets.
	Watch(ctx context.Context, update func([]Endpoint))
	// Status returns the current status of the source.
	Status() Status
}

// A Status describes how reliable the endpoints of a [Source] are.
type Status struct {
	// Kind is "static", "file" or "dns".
	Kind string
	// From is the origin of the endpoints, such as the file's path.
	From string
	// Endpoints is the number of endpoints.
	Endpoints int
	// Changed is the time of the last change, and Confirmed the time of the last good answer. Both are zero before the
	// first answer.
	Changed, Confirmed time.Time
	// Next is the time of the next look-up, or zero if the source waits for an event.
	Next time.Time
	// Err is the error of the latest attempt to find endpoints, or nil. If it is set, the endpoints are from an
	// earlier attempt. If some of the DNS look-ups failed, only their endpoints are.
	Err error
	// Failures counts the attempts that failed since there was no error.
	Failures int
	// Denied is why DNS has no endpoints, such as "NXDOMAIN". It is "" if there are some, or if Err is set.
	Denied string
	// Stale means that the endpoints are older than their origin allows.
	Stale bool
}

// A statusBox holds the status that a watching goroutine writes and other goroutines read.
type statusBox struct {
	mu     sync.Mutex
	status Status
}

func (b *statusBox) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

func (b *statusBox) note(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

func (b *statusBox) confirmed(now time.Time, endpoints int, changed bool) {
	b.note(func(s *Status) {
		s.Confirmed, s.Endpoints, s.Err, s.Failures, s.Stale = now, endpoints, nil, 0, false
		if changed {
			s.Changed = now
		}
	})
}

// A Clock returns the time and waits for it. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	// After sends the time on tick once d has passed, unless stop is called first. The caller
	// must call stop in any case.
	After(d time.Duration) (tick <-chan time.Time, stop func() bool)
}

// systemClock is the real clock.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) After(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func clockOr(c Clock) Clock {
	if c == nil {
		return systemClock{}
	}
	return c
}

// FileConfig sets up a [File] source.
type FileConfig struct {
	// Path is the file. Parse reads the file's text; name is the path, for errors.
	Path  string
	Parse func(name string, text []byte) ([]Endpoint, error)
	// Poll is the interval of polling the file if the kernel reports no changes; 0: the
	// default of [WatchConfig].
	Poll time.Duration
	// Known are the endpoints that an earlier source has found in the same file, and KnownSince is the time at which it
	// did. They are in use until the file is read.
	Known      []Endpoint
	KnownSince time.Time
	// Share is an inotify instance shared with other sources; nil: one of its own.
	Share *Inotify
	// Log receives one message for each invalid content of the file, and one when it is valid
	// again; nil: none are logged.
	Log *slog.Logger
	// Clock is used for the status and the waits; nil: the real clock.
	Clock Clock
}

// File is a [Source] that reads a file, and reads it again after each change of its content. The file may be
// written or replaced by a rename, or a symbolic link on the way to it may change. Invalid content changes
// nothing.
type File struct {
	statusBox
	cfg FileConfig
	log *slog.Logger

	// Of the last valid content.
	foreign string // why another user may write the file; "": none may
	writer  int    // this user
}

// NewFile returns a source that has not read anything yet.
func NewFile(cfg FileConfig) *File {
	f := &File{cfg: cfg, log: cfg.Log}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.cfg.Clock = clockOr(cfg.Clock)
	f.status.Kind, f.status.From = "file", cfg.Path
	f.status.Endpoints, f.status.Changed, f.status.Confirmed = len(cfg.Known), cfg.KnownSince, cfg.KnownSince
	return f
}

// Watch implements [Source].
func (f *File) Watch(ctx context.Context, update func([]Endpoint)) {
	w := NewWatch(WatchConfig{Paths: []string{f.cfg.Path}, Poll: f.cfg.Poll, Share: f.cfg.Share, Clock: f.cfg.Clock})
	var current []Endpoint
	first := true
	look := func() {
		found, err := f.read()
		if err != nil {
			if f.failed(err) { // another program may have been writing it: it is read again, even if it has the same bytes
				w.seen = digest{}
			}
			found = slices.Clone(current)
		}
		if f.refuse(found, current) { // the sockets may be made or replaced later
			w.seen = digest{}
		}
		changed := first && err == nil || !slices.Equal(found, current)
		if err == nil {
			if f.Status().Err != nil {
				f.log.Info("the file of endpoints can be used again", "file", f.cfg.Path, "endpoints", len(found))
			}
			f.confirmed(f.cfg.Clock.Now(), len(found), changed)
		}
		if changed {
			first, current = false, found
			update(slices.Clone(found))
		}
	}
	look()
	w.Run(ctx, look)
}

// failed records that the file is invalid. It reports whether the reason differs from the reason before, and only then
// logs it.
func (f *File) failed(err error) (another bool) {
	before := f.Status().Err
	if another = before == nil || before.Error() != err.Error(); another {
		f.log.Error(f.failure(err), "file", f.cfg.Path, "error", err)
	}
	f.note(func(s *Status) {
		s.Err, s.Stale = err, !s.Changed.IsZero()
		s.Failures++
	})
	return another
}

func (f *File) failure(err error) string {
	text := "the file of endpoints cannot be used"
	if errors.Is(err, os.ErrNotExist) {
		text = "the file of endpoints is missing"
	}
	if f.Status().Changed.IsZero() {
		return text + ": no endpoints are known yet"
	}
	return text + ": the endpoints that are already known stay"
}

// maxFile is the largest size of a file. 10,000 endpoints with all their keys take less than a quarter of it.
// The rest is for comments and space.
const maxFile = 8 << 20

func (f *File) read() ([]Endpoint, error) {
	data, err := file.Read(f.cfg.Path, maxFile)
	switch {
	case errors.Is(err, file.ErrIrregular):
		return nil, fmt.Errorf("discovery: file %s is not a regular file", f.cfg.Path)
	case errors.Is(err, file.ErrTooLarge):
		return nil, fmt.Errorf("discovery: file %s is larger than %d bytes, the limit for a list of endpoints", f.cfg.Path, maxFile)
	case err != nil:
		return nil, fmt.Errorf("discovery: file: %w", err)
	}
	found, err := f.cfg.Parse(f.cfg.Path, data)
	if err != nil {
		return nil, err
	}
	writer, why := file.Foreign(f.cfg.Path)
	if f.writer, f.foreign = writer, ""; why != nil {
		f.foreign = why.Error()
		if writer != file.Several {
			f.foreign = fmt.Sprintf("uid %d may write %s, and the socket must belong to that user", writer, f.cfg.Path)
		}
	}
	return found, nil
}

// refuse refuses the unix sockets that do not belong to the user who may write the list: this process may be able to
// connect to sockets that this user may not use. A socket that is in use stays while it is missing: its server may be about
// to make it again. refuse reports whether there are sockets that may change.
func (f *File) refuse(found, current []Endpoint) (sockets bool) {
	for i := range found {
		path, ok := strings.CutPrefix(found[i].Address, "unix:")
		if !ok || f.foreign == "" {
			continue
		}
		sockets = true
		is, err := file.Stat(path)
		if errors.Is(err, os.ErrNotExist) && !strings.HasPrefix(path, "@") && slices.Contains(current, found[i]) {
			continue
		}
		if err != nil || int(is.Sys().(*syscall.Stat_t).Uid) != f.writer {
			found[i].Refused = found[i].Address + " is not used: " + f.foreign
		}
	}
	return sockets
}
