package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/file"
)

// maxFile is the largest size of a file, in bytes.
const maxFile = 16 << 20

// patience is how long Open waits for a draining process to leave the file.
const patience = time.Second

// lockFiles is how many lock files are tried if each is removed while it is being locked.
const lockFiles = 10

// errUnnamed: no lock file has kept its name until it was locked.
var errUnnamed = errors.New("its lock file is removed again and again")

// Errors of a store.
var (
	// ErrTaken: another process keeps its changes in the file.
	ErrTaken = errors.New("another process writes its changes to it")
	// ErrClosed: the process drains, and has left the file to a successor, if there is one.
	ErrClosed = errors.New("the process drains, and keeps no more changes: a successor may use the file now")
	// ErrCorrupt: the file has changes that could not be read, and was moved away.
	ErrCorrupt = errors.New("the file was corrupt")
	// ErrForeign: the file cannot be read, or is no file of changes. It is left as it is.
	ErrForeign = errors.New("this is not a file of changes by hand: it is left unchanged, and changes are not kept")
)

// A Store is a file of changes and its content. One process at a time owns the file. A Store is safe for concurrent use.
type Store struct {
	path string

	mu      sync.Mutex // guards the content; never held while the file is written
	content content
	marked  bool  // the content is not in the file yet
	failed  error // why nothing is kept
	corrupt error // fault of the file found at the start; not under mu

	writing sync.Mutex // held while the file is written
	lock    *os.File   // owned, under writing; nil: the file is not ours
	replace func(path string, data []byte) error
	opened  func() // called when the lock file is open but not locked yet
}

// Open reads a file, which need not exist, and takes it: no other process has it until Close. If this is not possible, or
// the file system does not answer, the store is empty and keeps nothing, see Err. A corrupt file is moved aside, see
// Corrupt. A file that cannot be read, or does not begin like a store's file, is not the store's: it is neither moved nor
// replaced, and Err wraps [ErrForeign].
func Open(path string) *Store { return openWith(path, func() {}) }

func openWith(path string, opened func()) *Store {
	s, err := file.Change(path, func() (*Store, error) {
		s := &Store{path: path, replace: replace, opened: opened}
		s.open()
		return s, nil
	}, func(s *Store) { _ = s.close() })
	if err != nil {
		return &Store{path: path, failed: err}
	}
	return s
}

func (s *Store) open() {
	if s.failed = s.take(patience); s.failed != nil {
		return
	}
	path := s.path
	data, err := file.ReadOwn(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		var c *content
		if c, err = decode(data); err == nil {
			s.content = *c
			return
		}
		if recognised(data) {
			s.corrupt = s.setAside(err)
			return
		}
	}
	s.giveUp(fmt.Errorf("%s: %w: %w", path, ErrForeign, err))
}

// giveUp leaves the file to others: nothing is kept. Only Open calls it.
func (s *Store) giveUp(cause error) {
	s.failed = cause
	s.lock.Close()
	s.lock = nil
}

// take locks the file, by a lock file beside it that no store ever replaces. But someone may remove the lock file,
// and then other processes find and lock a new one. So take opens the lock file again until it has locked the file
// that other processes find. The next write notices a later removal.
func (s *Store) take(wait time.Duration) error {
	p, err := file.Beside(s.path + ".lock")
	if err != nil {
		return err
	}
	defer p.Close()
	until := time.Now().Add(wait)
	for range lockFiles {
		f, err := s.lockFile(p, until)
		if err != nil {
			return err
		}
		named, err := p.Names(int(f.Fd()))
		if named {
			s.lock = f
			return nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", s.path, errUnnamed)
}

func (s *Store) lockFile(p *file.Place, until time.Time) (*os.File, error) {
	fd, err := p.Open(os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s.opened()
	f := os.NewFile(uintptr(fd), s.path+".lock")
	for ; ; time.Sleep(patience / 100) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(until) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrTaken
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, errors.Join(err, f.Close()))
	}
	return f, nil
}

// hold makes sure that the file is still ours. If the lock file was removed, it takes the file again, and returns an
// error if another process has taken it.
func (s *Store) hold() error {
	p, err := file.Beside(s.path + ".lock")
	if err != nil {
		return err
	}
	named, err := p.Names(int(s.lock.Fd()))
	if err = errors.Join(err, p.Close()); named || err != nil {
		return err
	}
	before := s.lock
	if err := s.take(0); err != nil {
		return err // the old lock stays for the next attempt
	}
	return before.Close()
}

// setAside moves a corrupt file away, so that the next change does not replace it.
func (s *Store) setAside(cause error) error {
	aside, err := filepath.EvalSymlinks(s.path) // it stays in the directory of the file, not of a link
	aside += ".corrupt-" + time.Now().UTC().Format("20060102T150405.000Z")
	var p *file.Place
	if err == nil {
		p, err = place(s.path)
	}
	if err == nil {
		err = errors.Join(p.Rename(filepath.Base(aside)), p.Close())
	}
	if err != nil {
		s.giveUp(fmt.Errorf("%s: %w: %w, and it could not be renamed: %w", s.path, ErrCorrupt, cause, err))
		return s.failed
	}
	return fmt.Errorf("%s: %w, and was renamed to %s: its changes by hand are not in force: %w", s.path, ErrCorrupt, aside, cause)
}

// Path returns the path of the file.
func (s *Store) Path() string { return s.path }

// Err returns why changes are not kept; nil: they are kept.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Corrupt returns the fault of the file at the start; nil: it had none. It wraps [ErrCorrupt].
func (s *Store) Corrupt() error { return s.corrupt }

// Changes returns the changes.
func (s *Store) Changes() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.content.changes)
}

// SetChanges replaces the changes. [Store.Flush] writes them to the file.
func (s *Store) SetChanges(list []Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content.changes, s.marked = slices.Clone(list), true
}

// Denials returns the denials.
func (s *Store) Denials() []Denial {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.content.denials)
}

// SetDenials replaces the denials. [Store.Flush] writes them to the file.
func (s *Store) SetDenials(list []Denial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content.denials, s.marked = slices.Clone(list), true
}

// Flush writes the content to the file, if it has changed, or if the file was removed. Concurrent calls share a write:
// each waits for a write that began after its own change. When Flush returns nil, everything that was set before the call survives a crash of the
// machine. After an error the next call tries again. The error is [ErrTaken] if another process has the file: it had the
// file at Open, or has taken it since, because the lock file was removed. Once that process has left the file, the next
// call takes it; its content stays there while this store is empty. A file system that does not answer is given up, see
// [file.Change].
func (s *Store) Flush() error {
	return s.bounded(s.path, func() error {
		if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
			s.mu.Lock()
			s.marked = s.marked || s.failed == nil && len(s.content.changes)+len(s.content.denials) > 0
			s.mu.Unlock()
		}
		return s.flush()
	})
}

// bounded calls f, which writes the content. If it gives f up, f goes on beside it and may write old content.
func (s *Store) bounded(name string, f func() error) error {
	err, gaveUp := file.Change(name, func() (error, error) { return f(), nil }, nil)
	if gaveUp == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.marked = gaveUp, true
	return gaveUp
}

func (s *Store) flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	taken := s.lock == nil && errors.Is(s.Err(), ErrTaken) && s.take(0) == nil
	s.mu.Lock()
	if taken {
		s.failed, s.marked = nil, len(s.content.changes)+len(s.content.denials) > 0
	}
	if !s.marked || s.lock == nil {
		defer s.mu.Unlock()
		if !s.marked {
			return nil
		}
		return s.failed
	}
	data, err := s.content.encode()
	s.marked = false
	s.mu.Unlock()
	if err == nil {
		err = s.hold()
	}
	if err == nil {
		err = s.replace(s.path, data)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marked = s.marked || err != nil; err != nil || !s.marked {
		s.failed = err
	}
	return err
}

// Close is Flush, and then leaves the file to another process. Later changes are not kept. If an earlier write is stuck,
// the file is left when it ends.
func (s *Store) Close() error { return s.bounded(s.path+".lock", s.close) }

func (s *Store) close() error {
	err := s.flush()
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.lock == nil && !errors.Is(s.Err(), ErrTaken) {
		return nil
	}
	s.mu.Lock()
	s.failed = fmt.Errorf("%s: %w", s.path, ErrClosed)
	s.mu.Unlock()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
		s.lock = nil
	}
	return err
}

// replace replaces a file in one step by a file that is complete on the disk.
func replace(path string, data []byte) error {
	p, err := place(path)
	if err != nil {
		return err
	}
	return errors.Join(p.Replace(data, nil), p.Close())
}

// place returns the place of a file, where no other user may put another file.
func place(path string) (*file.Place, error) {
	p, err := file.At(path)
	if err == nil {
		if err = p.Safe(); err != nil {
			err = errors.Join(err, p.Close())
		}
	}
	return p, err
}
