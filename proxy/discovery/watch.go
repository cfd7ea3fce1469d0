package discovery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/penstock/penstock/proxy/internal/file"
)

// WatchConfig configures a [Watch].
type WatchConfig struct {
	// Paths are files. They need not exist yet.
	Paths []string
	// Globs are patterns of filepath.Match. The set of matching files is watched too.
	Globs []string
	// Quiet is how long no event may come before the files are read, so that several writes are one change; 0:
	// 100 ms. During continuous writing the files are read after ten times as long.
	Quiet time.Duration
	// Poll is how often the files are read without an event: a network file system gives no events. 0: 10 s, or
	// 1 s if inotify(7) is not available.
	Poll time.Duration
	// NoEvents disables inotify, so that the files are only polled.
	NoEvents bool
	// Share is an inotify instance shared with other watches; nil: one of its own.
	Share *Inotify
	// Clock is used for the waits; nil: the real clock.
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

// Changed reports whether the content differs from the content at the previous call, or at NewWatch. It must
// not be called concurrently with Run.
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
	defer events.bounded("leave", events.close)
	for {
		if w.Changed() {
			changed()
		}
		if !events.wait(ctx, w.cfg) {
			return
		}
		w.aim(events) // before looking, so that later changes give an event
	}
}

// Inotify is an inotify(7) instance shared by any number of watches: a user has only 128 by
// default, for all programs together. The zero value is ready. It is open while there are
// watches, and safe for concurrent use.
type Inotify struct {
	// asking is held while a directory is added to or removed from the instance. It is locked
	// before mu. Passing events on needs mu alone: fsnotify may have to deliver an error
	// before it can add or remove a directory.
	asking sync.Mutex
	uses   map[string]int // number of users of each directory; guarded by asking

	mu      sync.Mutex
	from    *fsnotify.Watcher // owns the descriptor; nil: there are no users, or it could not be opened
	passing chan struct{}     // closed when the goroutine that reads from has ended
	users   map[*events]struct{}
}

func (n *Inotify) join(e *events) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.users == nil {
		n.users = map[*events]struct{}{}
	}
	n.users[e] = struct{}{}
}

// leave removes a user. With the last one it closes the descriptor.
func (n *Inotify) leave(e *events) {
	for dir := range n.anew(e) {
		n.release(dir)
	}
	n.mu.Lock()
	delete(n.users, e)
	from, passing := n.from, n.passing
	if len(n.users) > 0 || from == nil {
		n.mu.Unlock()
		return
	}
	n.from = nil
	n.mu.Unlock()
	from.Close()
	<-passing
}

func (n *Inotify) anew(e *events) (before map[string]map[string]struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, e.names = e.names, map[string]map[string]struct{}{}
	if n.from == nil {
		n.open()
	}
	return before
}

// open opens the instance. The caller holds n.mu. If it fails, a later call tries again.
func (n *Inotify) open() {
	from, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	n.from, n.passing = from, make(chan struct{})
	go n.pass(from, n.passing)
}

// heed makes e receive events for name in dir, and reports whether that worked. It asks the kernel each time,
// because another directory may have this name now.
func (n *Inotify) heed(e *events, dir, name string) bool {
	n.asking.Lock()
	defer n.asking.Unlock()
	n.mu.Lock()
	from, another := n.from, e.names[dir] == nil
	if another {
		e.names[dir] = map[string]struct{}{}
	}
	e.names[dir][name] = struct{}{}
	n.mu.Unlock()
	if another {
		if n.uses == nil {
			n.uses = map[string]int{}
		}
		n.uses[dir]++
	}
	return from != nil && from.Add(dir) == nil
}

func (n *Inotify) release(dir string) {
	n.asking.Lock()
	defer n.asking.Unlock()
	if n.uses[dir]--; n.uses[dir] > 0 {
		return
	}
	delete(n.uses, dir)
	n.mu.Lock()
	from := n.from
	n.mu.Unlock()
	if from != nil {
		_ = from.Remove(dir) // an error means that the directory has gone
	}
}

// pass passes the events of from to the users, until from is closed.
func (n *Inotify) pass(from *fsnotify.Watcher, ended chan<- struct{}) {
	defer close(ended)
	for {
		select {
		case event, ok := <-from.Events:
			if !ok {
				return
			}
			n.notify(func(e *events) bool { return e.matters(event) })
		case _, ok := <-from.Errors: // such as an overflow: anything may have happened
			if !ok {
				return
			}
			n.notify(func(*events) bool { return true })
		}
	}
}

func (n *Inotify) notify(whom func(*events) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := range n.users {
		if !whom(e) {
			continue
		}
		select {
		case e.poke <- struct{}{}:
		default: // the previous one is still unread
		}
	}
}

// matters reports whether the event is about something on the way to a file of e.
func (e *events) matters(event fsnotify.Event) bool {
	if e.names[event.Name] != nil {
		return true // the directory itself
	}
	names := e.names[filepath.Dir(event.Name)]
	_, named := names[filepath.Base(event.Name)]
	_, all := names[anything]
	return named || all
}

type digest [sha256.Size]byte

func (w *Watch) look() (p digest) {
	h := sha256.New()
	for _, path := range w.files() {
		fmt.Fprintf(h, "%q ", path)
		if err := content(h, path); err != nil {
			fmt.Fprintf(h, "%q", err)
		}
	}
	h.Sum(p[:0])
	return p
}

func (w *Watch) files() []string {
	files := append([]string(nil), w.cfg.Paths...)
	for _, g := range w.cfg.Globs {
		matches, _ := file.Glob(g)
		files = append(files, matches...)
	}
	return files
}

// content adds the bytes of a regular file. If it is too large for its readers, content adds
// its size and time instead. For another type of file it adds nothing.
func content(h hash.Hash, path string) error {
	data, err := file.Read(path, maxFile)
	switch {
	case errors.Is(err, file.ErrIrregular):
		return nil
	case errors.Is(err, file.ErrTooLarge):
		info, err := file.Stat(path)
		if err == nil {
			fmt.Fprintf(h, " %d %v ", info.Size(), info.ModTime())
		}
		return err
	case err != nil:
		return err
	}
	fmt.Fprintf(h, "%s %d ", data, len(data))
	return nil
}

// events receives the inotify events of one watch.
type events struct {
	from *Inotify      // nil: there are no events
	poke chan struct{} // has one element if something has happened
	turn sync.Mutex    // held while directories are watched anew or left
	deaf atomic.Bool   // at least one of its directories has no events

	names map[string]map[string]struct{} // watched names in each directory; guarded by from.mu
}

func (w *Watch) listen() *events {
	e := &events{poke: make(chan struct{}, 1)}
	e.deaf.Store(true)
	if w.cfg.NoEvents {
		return e
	}
	if e.from = w.cfg.Share; e.from == nil {
		e.from = &Inotify{}
	}
	e.from.join(e)
	w.aim(e)
	return e
}

// aim is [events.aim]. While a file system does not answer the files are polled.
func (w *Watch) aim(e *events) {
	if e.bounded("watch", func() { e.aim(w.cfg) }) != nil {
		e.deaf.Store(true)
	}
}

// bounded calls f while it holds e.turn. If f takes too long it gives f up, as [file.Within] does: f goes on beside it.
func (e *events) bounded(what string, f func()) error {
	_, err := file.Within(fmt.Sprintf("%s %p", what, e), func() struct{} { // not by path: another watch may have it, too
		e.turn.Lock()
		defer e.turn.Unlock()
		f()
		return struct{}{}
	})
	return err
}

func (e *events) close() {
	if e.from != nil {
		e.from.leave(e)
	}
}

// aim watches the directories that now lead to the files. A directory that cannot be watched
// is left to polling. Events in directories watched before may be missed meanwhile, so the
// caller must look at the files afterwards.
func (e *events) aim(cfg WatchConfig) {
	if e.from == nil {
		return
	}
	before := e.from.anew(e)
	e.deaf.Store(false)
	for _, path := range cfg.Paths {
		e.walk(path)
	}
	for _, g := range cfg.Globs {
		e.walk(filepath.Join(filepath.Dir(g), anything))
		matches, _ := filepath.Glob(g)
		for _, path := range matches {
			e.walk(path)
		}
	}
	for dir := range before {
		e.from.release(dir)
	}
}

// anything stands for all names of a directory.
const anything = "*"

// heed watches dir for changes of name. A directory is watched before its content is read, so
// that no change is missed in between.
func (e *events) heed(dir, name string) {
	if !e.from.heed(e, dir, name) {
		e.deaf.Store(true)
	}
}

// maxLinks is the largest number of symbolic links that the kernel follows on the way to a
// file (path_resolution(7)).
const maxLinks = 40

// walk calls heed for every directory on the way to path, with the next name of the way. It
// resolves the path as the kernel would.
func (e *events) walk(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	at, rest := begin(path)
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		e.heed(at, name)
		next := filepath.Join(at, name)
		if target, err := os.Readlink(next); err == nil {
			links++
			from, way := begin(target)
			if filepath.IsAbs(target) {
				at = from
			}
			rest = append(way, rest...)
			continue
		}
		if info, err := os.Stat(next); err != nil || !info.IsDir() {
			return
		}
		at = next
	}
}

// begin returns the root of a path, if it is absolute, and the names on the way from there.
func begin(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	names = strings.FieldsFunc(path[len(volume):], func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
	names = slices.DeleteFunc(names, func(name string) bool { return name == "." })
	return volume + string(filepath.Separator), names
}

// wait returns true when it is time to look at the files. That is when the kernel has reported
// a change and Quiet has passed without another one, or after Poll.
func (e *events) wait(ctx context.Context, cfg WatchConfig) bool {
	poll := 10 * time.Second
	if e.deaf.Load() {
		poll = time.Second
	}
	if cfg.Poll > 0 {
		poll = cfg.Poll
	}
	due, stop := cfg.Clock.After(poll)
	defer func() { stop() }()
	var last <-chan time.Time // set by the first event
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due:
			return true
		case <-last:
			return true
		case <-e.poke:
		}
		if last == nil {
			var stopLast func() bool
			last, stopLast = cfg.Clock.After(10 * cfg.Quiet)
			defer stopLast()
		}
		stop()
		due, stop = cfg.Clock.After(cfg.Quiet)
	}
}
