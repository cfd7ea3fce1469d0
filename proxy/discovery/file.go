package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/file"
)

// FileConfig sets up a [File] source.
type FileConfig struct {
	// Path is a YAML or JSON list of endpoints, each "host:port" or an object of
	// address, name, weight, backup, zone and connections.
	Path string
	// Poll is how often the file is looked at where the kernel tells of no
	// changes; 0: the default of [WatchConfig].
	Poll time.Duration
	// Share is the inotify instance to use, with other sources; nil: one of its own.
	Share *Notifications
	// Log is told once of each bad content of the file, and when it is good
	// again; nil: nobody is.
	Log *slog.Logger
	// Clock is for the status and the waits; nil: the real one.
	Clock Clock
}

// File is a [Source] that reads a file, again each time that its content has
// changed: written, renamed over, or because a symbolic link on the way to it
// points elsewhere. Content that is bad changes nothing.
type File struct {
	board
	cfg FileConfig
	log *slog.Logger
}

// NewFile returns a source that has read nothing yet.
func NewFile(cfg FileConfig) *File {
	f := &File{cfg: cfg, log: cfg.Log}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.cfg.Clock = clockOr(cfg.Clock)
	f.status.Kind, f.status.From = "file", cfg.Path
	return f
}

// Watch implements [Source].
func (f *File) Watch(ctx context.Context, update func([]Endpoint)) {
	w := NewWatch(WatchConfig{Paths: []string{f.cfg.Path}, Poll: f.cfg.Poll, Share: f.cfg.Share, Clock: f.cfg.Clock})
	var current []Endpoint
	first := true
	look := func() {
		found, err := ReadFile(f.cfg.Path)
		if err != nil {
			f.failed(err)
			return
		}
		changed := first || !slices.Equal(found, current)
		f.worked(len(found), changed)
		if changed {
			first, current = false, found
			update(slices.Clone(found))
		}
	}
	look()
	w.Run(ctx, look)
}

// failed notes that the file is bad; the log gets each reason once.
func (f *File) failed(err error) {
	if before := f.Status().Err; before == nil || before.Error() != err.Error() {
		f.log.Error(f.failure(err), "file", f.cfg.Path, "err", err)
	}
	f.note(func(s *Status) {
		s.Err, s.Stale = err, !s.Changed.IsZero()
		s.Failures++
	})
}

// failure says what is wrong with the file, and what follows from it.
func (f *File) failure(err error) string {
	text := "the file of endpoints is bad"
	if errors.Is(err, os.ErrNotExist) {
		text = "the file of endpoints is missing"
	}
	if f.Status().Changed.IsZero() {
		return text + ": none are known from it yet"
	}
	return text + ": those that are known from it stay"
}

func (f *File) worked(endpoints int, changed bool) {
	if f.Status().Err != nil {
		f.log.Info("the file of endpoints is good again", "file", f.cfg.Path, "endpoints", endpoints)
	}
	f.confirmed(f.cfg.Clock.Now(), endpoints, changed)
}

// maxFile bounds what is read: with everything that they may say, 10,000 endpoints are less
// than a quarter of it, and the rest is comments, and the space between.
const maxFile = 8 << 20

// ReadFile reads the endpoints of a file, as [FileConfig] describes it. What is
// wrong with its content is told all at once, as an error with a line
// FILE:LINE:COL: message for each problem.
func ReadFile(path string) ([]Endpoint, error) {
	data, err := file.Read(path, maxFile)
	switch {
	case errors.Is(err, file.ErrIrregular):
		return nil, fmt.Errorf("discovery: file %s: not a regular file", path)
	case errors.Is(err, file.ErrTooLarge):
		return nil, fmt.Errorf("discovery: file %s: more than the %d bytes that a list of endpoints may have", path, maxFile)
	case err != nil:
		return nil, fmt.Errorf("discovery: file: %w", err)
	}
	return Parse(path, data)
}
