package discovery

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A digest identifies a content for comparison.
type digest [sha256.Size]byte

// look returns the digest of everything that is watched.
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

// files returns the paths, and the files that match the patterns.
func (w *Watch) files() []string {
	files := append([]string(nil), w.cfg.Paths...)
	for _, g := range w.cfg.Globs {
		matches, _ := filepath.Glob(g)
		files = append(files, matches...)
	}
	return files
}

// content adds the bytes of a regular file. If it is too large for its readers, content adds
// its size and time instead. For another type of file it adds nothing. It does not block: it
// opens a FIFO without a writer (fifo(7)), and then checks the type of the open file.
func content(h hash.Hash, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if info.Size() > maxFile {
		fmt.Fprintf(h, " %d %v ", info.Size(), info.ModTime())
		return nil
	}
	n, err := io.Copy(h, io.LimitReader(f, maxFile))
	fmt.Fprintf(h, " %d ", n)
	return err
}

// events receives the inotify events of one watch.
type events struct {
	from *Inotify      // nil: there are no events
	poke chan struct{} // has one element if something has happened
	deaf bool          // at least one of its directories has no events

	names map[string]map[string]struct{} // watched names in each directory; guarded by from.mu
}

func (w *Watch) listen() *events {
	e := &events{poke: make(chan struct{}, 1), deaf: true}
	if w.cfg.NoEvents {
		return e
	}
	if e.from = w.cfg.Share; e.from == nil {
		e.from = &Inotify{}
	}
	e.from.join(e)
	e.aim(w.cfg)
	return e
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
	e.deaf = false
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
		e.deaf = true
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
	if e.deaf {
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
