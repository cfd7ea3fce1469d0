package discovery

import (
	"context"
	"time"
)

// WatchConfig configures a [Watch].
type WatchConfig struct {
	// Paths are files. They need not exist yet.
	Paths []string
	// Globs are patterns of filepath.Match. The set of matching files is watched too.
	Globs []string
	// Quiet is the time without an event before the files are read, so that several writes are
	// one change; 0: 100 ms. During continuous writing they are read after ten times as long.
	Quiet time.Duration
	// Poll is the interval of reading them without an event, as a network file system has
	// none. 0: 10 s, and 1 s if inotify(7) is not available.
	Poll time.Duration
	// NoEvents disables inotify; the files are polled.
	NoEvents bool
	// Share is an inotify instance shared with other watches; nil: one of its own.
	Share *Inotify
	// Clock is for the waits; nil: the real one.
	Clock Clock
}

// A Watch reports when the content of files has changed. A file may be written, created,
// removed or renamed over. A symbolic link on the way to it may be replaced, as Kubernetes
// does with a mounted ConfigMap. Equal content is no change, whatever happened to the file.
// Changes are relative to the content at [NewWatch]. So a program makes the watch first and
// then reads its files, and misses no change.
type Watch struct {
	cfg  WatchConfig
	seen digest
}

// Changed reports whether the content differs from that at the previous call, or at NewWatch.
// It must not be called concurrently with Run.
func (w *Watch) Changed() bool {
	now := w.look()
	changed := now != w.seen
	w.seen = now
	return changed
}

// NewWatch returns a watch for changes from the current content.
func NewWatch(cfg WatchConfig) *Watch {
	if cfg.Quiet == 0 {
		cfg.Quiet = 100 * time.Millisecond
	}
	cfg.Clock = clockOr(cfg.Clock)
	w := &Watch{cfg: cfg}
	w.seen = w.look()
	return w
}

// Run calls changed after each change, until ctx is done. It must be called only once.
func (w *Watch) Run(ctx context.Context, changed func()) {
	events := w.listen()
	defer events.close()
	for {
		if w.Changed() {
			changed()
		}
		if !events.wait(ctx, w.cfg) {
			return
		}
		events.aim(w.cfg) // before looking, so that later changes give an event
	}
}
