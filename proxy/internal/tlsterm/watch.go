package tlsterm

import (
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A notifier is the part of an fsnotify.Watcher that Files need.
type notifier interface {
	Add(dir string) error
	Remove(dir string) error
	Close() error
	events() <-chan fsnotify.Event
	errors() <-chan error
}

type inotify struct{ *fsnotify.Watcher }

func (w inotify) events() <-chan fsnotify.Event { return w.Events }
func (w inotify) errors() <-chan error          { return w.Errors }

// notify returns nil if the kernel cannot be asked (no more inotify instances for this
// user, as a rule): then files are only looked at from time to time.
func notify() notifier {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	return inotify{w}
}

// follow looks at the files when the kernel reports changes and these have settled, and from
// time to time.
func (f *Files) follow() {
	defer close(f.done)
	var events <-chan fsnotify.Event
	var errors <-chan error
	if f.notice != nil {
		defer f.notice.Close()
		events, errors = f.notice.events(), f.notice.errors()
	}
	poll := time.NewTicker(f.cfg.Poll)
	defer poll.Stop()
	settled := time.NewTimer(time.Hour)
	settled.Stop()
	dirs := map[string]bool{}
	for {
		select {
		case <-f.stop:
			return
		case e := <-events:
			if e.Op != fsnotify.Chmod {
				dirs[filepath.Dir(e.Name)] = true
				settled.Reset(f.cfg.Settle)
			}
			continue
		case <-errors: // events were lost
			settled.Reset(f.cfg.Settle)
			continue
		case <-f.now:
		case <-poll.C:
			f.rewatch()
		case <-settled.C:
		}
		if again := f.look(dirs); again > 0 {
			settled.Reset(again)
		}
		clear(dirs)
	}
}

// rewatch asks the kernel again to report changes: a directory that was removed and made anew
// is another one to it.
func (f *Files) rewatch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for dir := range f.dirs {
		if f.notice != nil {
			_ = f.notice.Add(dir)
		}
	}
}

// fileIdentity identifies the contents of files without reading them: nil for one that is not
// there.
type fileIdentity [2]os.FileInfo

// identity looks at the files of a recipe.
func (r *pairSpec) identity() (p fileIdentity) {
	for i, path := range r.paths {
		if info, err := os.Stat(path); path != "" && err == nil {
			p[i] = info
		}
	}
	return p
}

func (p *fileIdentity) equal(q *fileIdentity) bool {
	for i := range p {
		a, b := p[i], q[i]
		if a == nil || b == nil {
			if a != b {
				return false
			}
			continue
		}
		if !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}
