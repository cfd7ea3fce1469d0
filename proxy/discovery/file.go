package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/internal/file"
)

// FileConfig sets up a [File] source.
type FileConfig struct {
	// Path is the file. Parse reads the file's text; name is the path, for errors.
	Path  string
	Parse func(name string, text []byte) ([]Endpoint, error)
	// Poll is the interval of polling the file if the kernel reports no changes; 0: the
	// default of [WatchConfig].
	Poll time.Duration
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
}

// NewFile returns a source that has not read anything yet.
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
		found, err := f.read()
		if err != nil {
			f.failed(err)
			return
		}
		changed := first || !slices.Equal(found, current)
		if f.Status().Err != nil {
			f.log.Info("the file of endpoints can be used again", "file", f.cfg.Path, "endpoints", len(found))
		}
		f.confirmed(f.cfg.Clock.Now(), len(found), changed)
		if changed {
			first, current = false, found
			update(slices.Clone(found))
		}
	}
	look()
	w.Run(ctx, look)
}

// failed records that the file is invalid; each reason is logged once.
func (f *File) failed(err error) {
	if before := f.Status().Err; before == nil || before.Error() != err.Error() {
		f.log.Error(f.failure(err), "file", f.cfg.Path, "error", err)
	}
	f.note(func(s *Status) {
		s.Err, s.Stale = err, !s.Changed.IsZero()
		s.Failures++
	})
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
	return f.cfg.Parse(f.cfg.Path, data)
}
