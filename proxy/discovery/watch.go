package discovery

import (
	"context"
	"time"
)

// WatchConfig says what a [Watch] looks at.
type WatchConfig struct {
	// Paths are files. One that does not exist may come.
	Paths []string
	// Globs are patterns of filepath.Match; the set of files that match one is
	// part of what is watched.
	Globs []string
	// Quiet is how long nothing must have happened before the files are looked
	// at, so that several writes are one change; 0: 100 ms. Under ceaseless
	// writing they are looked at after ten times as long.
	Quiet time.Duration
	// Poll is how often they are looked at without being told by the kernel, as a
	// network file system does not; 0: 10 s, and 1 s where inotify(7) is not to be had.
	Poll time.Duration
	// NoEvents: the kernel is not asked to tell; they are polled.
	NoEvents bool
	// Share is the inotify instance to use, with other watches; nil: one of its own.
	Share *Notifications
	// Clock is for the waits; nil: the real one.
	Clock Clock
}

// A Watch tells when the content behind paths has changed: one was written,
// created, removed or renamed over, or a symbolic link on the way to it was
// replaced, as Kubernetes does with a mounted ConfigMap. Equal content is no
// change, whatever happened to the file. What is behind a path is looked at from
// [NewWatch] on; so a program makes the watch first and reads its files then, and
// no change is lost.
type Watch struct {
	cfg  WatchConfig
	seen print
}

// Changed reports whether there is another content than at the previous call, or
// than when the watch was made. It is not safe to call beside Run.
func (w *Watch) Changed() bool {
	now := w.look()
	changed := now != w.seen
	w.seen = now
	return changed
}

// NewWatch returns a watch of what is there now.
func NewWatch(cfg WatchConfig) *Watch {
	if cfg.Quiet == 0 {
		cfg.Quiet = 100 * time.Millisecond
	}
	cfg.Clock = clockOr(cfg.Clock)
	w := &Watch{cfg: cfg}
	w.seen = w.look()
	return w
}

// Run calls changed after each change, until ctx is done. It is called once.
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
		events.aim(w.cfg) // before looking: what changes afterwards is told
	}
}
