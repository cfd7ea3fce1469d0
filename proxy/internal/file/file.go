// Package file reads files with names chosen by an operator, or by another user who may write
// next to them: configurations, certificates, lists of endpoints.
package file

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

var (
	// ErrIrregular: a directory, a pipe, a socket or a device.
	ErrIrregular = errors.New("not a regular file")
	// ErrTooLarge: it has more bytes than it may.
	ErrTooLarge = errors.New("the file is too large")
	// ErrLink: its path has a symbolic link that is not followed.
	ErrLink = sys.ErrLink
)

// quiet is how long a read waits for a file that has nothing to read at the moment.
const quiet = time.Second

// Read returns the bytes of a regular file of at most limit bytes. Errors are a [fs.PathError];
// they wrap ErrIrregular, ErrTooLarge, ErrLink and [os.ErrDeadlineExceeded].
//
// It follows links as [sys.AtFile] does, so another user's link leads to no file that this user could not read.
// It does not wait for a pipe's writer, for the end of a lease (open(2), O_NONBLOCK: it fails with
// EWOULDBLOCK), or longer than a second for one of the kernel's files that is regular by its mode and can be
// waited for, such as /proc/kmsg (proc(5)). A file system that does not answer is given up after five
// seconds; while 16 such reads have not returned, further reads fail at once. It is safe for concurrent use.
func Read(path string, limit int) ([]byte, error) { return reads.read(path, limit, readNow) }

// maxPEM is how large a file of certificates may be. All authorities of a distribution are 220 KB.
const maxPEM = 4 << 20

// ReadPEM is [Read] of a file of certificates or of a key.
func ReadPEM(path string) ([]byte, error) { return Read(path, maxPEM) }

// KeyPair is [tls.LoadX509KeyPair] that waits no longer than [Read].
func KeyPair(cert, key string) (pair tls.Certificate, err error) {
	certPEM, err := ReadPEM(cert)
	if err != nil {
		return pair, err
	}
	keyPEM, err := ReadPEM(key)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// ReadOwn is [Read] of a file that this program writes. It follows no link of another user, and the file must belong to root
// or to this user: otherwise the error wraps [ErrUnsafe].
func ReadOwn(path string, limit int) ([]byte, error) { return ownReads.read(path, limit, readOwnNow) }

// Calls of the process that may never return.
var (
	reads    = calls{op: "read", patience: 5 * time.Second, most: 16}
	ownReads = calls{op: "read", patience: 5 * time.Second, most: 16}
	looks    = calls{op: "read", patience: 2 * time.Second, most: 1}  // less than the client of a status waits
	changes  = calls{op: "write", patience: 3 * time.Second, most: 1} // less than the client of a change waits
	closes   = calls{op: "close", patience: 3 * time.Second, most: math.MaxInt}
	removals = calls{op: "remove", patience: 3 * time.Second, most: math.MaxInt}
)

// calls gives up calls that do not return. Each of them keeps its goroutine, and a thread, until it does.
type calls struct {
	op       string // of the errors
	patience time.Duration
	most     int // how many calls of one name may be stuck, which means given up and not returned
	mu       sync.Mutex
	stuck    map[string]int // how many calls are stuck, by name; guarded by mu
}

// within makes a call about a path, and returns its result. It fails if the call does not return in time, and at
// once while c.most calls of the name are stuck. If the call succeeds later, late undoes it, unless late is nil;
// until then the call counts as stuck.
func within[T any](c *calls, name, path string, call func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	c.mu.Lock()
	full := c.stuck[name] >= c.most
	c.mu.Unlock()
	if full {
		return *new(T), c.noAnswer(path)
	}
	done, gaveUp := make(chan result, 1), false // gaveUp is guarded by c.mu
	go func() {
		var is result
		is.value, is.err = call()
		c.mu.Lock()
		done <- is
		isLate := gaveUp
		c.mu.Unlock()
		if !isLate {
			return
		}
		if is.err == nil && late != nil {
			late(is.value)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stuck[name]--; c.stuck[name] == 0 {
			delete(c.stuck, name)
		}
	}()
	over := time.NewTimer(c.patience)
	defer over.Stop()
	select {
	case is := <-done:
		return is.value, is.err
	case <-over.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case is := <-done: // it has returned in this moment
		return is.value, is.err
	default:
	}
	if gaveUp = true; c.stuck == nil {
		c.stuck = make(map[string]int)
	}
	c.stuck[name]++
	return *new(T), c.noAnswer(path)
}

// Within returns the result of look, a function that looks at files but does not open them. It gives up a file
// system that does not answer after two seconds; until that look has returned, others of the same name fail at once.
// The error wraps [os.ErrDeadlineExceeded]. It is safe for concurrent use.
func Within[T any](name string, look func() T) (is T, err error) {
	return within(&looks, name, name, func() (T, error) { return look(), nil }, nil)
}

// Change returns the result of change, a function that opens or changes the file of a path. It gives up a file
// system that does not answer after three seconds; until that change has returned, others of the same path fail at
// once. The error wraps [os.ErrDeadlineExceeded]. A change that was given up and succeeds later is passed to late,
// which may be nil. Change is safe for concurrent use.
func Change[T any](path string, change func() (T, error), late func(T)) (T, error) {
	return within(&changes, path, path, change, late)
}

// Close closes a descriptor of the file of a path, and waits no longer than [Change].
func Close(path string, fd int) error {
	_, err := within(&closes, path, path, func() (struct{}, error) { return struct{}{}, sys.Close(fd) }, nil)
	return err
}

// Remove calls remove, which removes the file of a path, and waits no longer than [Change]. It does so also while changes of
// the path have not returned: the file goes once the file system answers. A caller removes a file once.
func Remove(path string, remove func() error) error {
	_, err := within(&removals, path, path, func() (struct{}, error) { return struct{}{}, remove() }, nil)
	return err
}

// Same reports whether a file is the same as before, with the same contents as far as this shows without reading them. nil is
// a missing file.
func Same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Stat is [os.Stat] that waits no longer than [Within].
func Stat(path string) (fs.FileInfo, error) {
	return within(&looks, path, path, func() (fs.FileInfo, error) { return os.Stat(path) }, nil)
}

// Glob is [filepath.Glob] that waits no longer than [Within]. A name that begins with a dot matches only if the pattern does, as
// in a shell: editors make such files beside the file that they edit.
func Glob(pattern string) ([]string, error) {
	hidden := func(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }
	return within(&looks, pattern, pattern, func() ([]string, error) {
		paths, err := filepath.Glob(pattern)
		if !hidden(strings.ReplaceAll(pattern, `\.`, ".")) {
			paths = slices.DeleteFunc(paths, hidden)
		}
		return paths, err
	}, nil)
}

// read reads the file of a path by the function now. All such reads count as one name: a file system that
// hangs has many files.
func (c *calls) read(path string, limit int, now func(string, int) ([]byte, error)) ([]byte, error) {
	return within(c, "", path, func() ([]byte, error) { return now(path, limit) }, nil)
}

func (c *calls) noAnswer(path string) error {
	return &fs.PathError{Op: c.op, Path: path, Err: fmt.Errorf("the file system does not answer: %w", os.ErrDeadlineExceeded)}
}

func readNow(path string, limit int) (data []byte, err error) {
	err = sys.AtFile(path, func(name string) error {
		if info, err := os.Stat(name); err != nil {
			return err
		} else if !info.Mode().IsRegular() { // to open a device may have effects
			return &fs.PathError{Op: "read", Path: path, Err: ErrIrregular}
		}
		f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			data, err = readAll(f, path, limit)
		}
		return err
	})
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		at.Path = path
	} else if err != nil {
		err = &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return data, err
}

func readOwnNow(path string, limit int) ([]byte, error) {
	p, err := At(path)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	fd, err := p.Open(syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	is, err := sys.Fstat(fd)
	if err == nil && !p.proc && !p.trusts(is.UID) { // a group, or an ACL, may let its user make files here
		err = p.fault(fmt.Errorf("%w: it belongs to uid %d: chown it to %s, or remove it", ErrUnsafe, is.UID, trusted()))
	}
	if err != nil {
		return nil, errors.Join(err, sys.Close(fd))
	}
	return readAll(os.NewFile(uintptr(fd), path), path, limit)
}

// readAll reads a file to its end, and closes it.
func readAll(f *os.File, path string, limit int) ([]byte, error) {
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrIrregular}
	}
	_ = f.SetReadDeadline(time.Now().Add(quiet)) // os.ErrNoDeadline: the file never waits
	var data bytes.Buffer
	data.Grow(int(min(info.Size(), int64(limit))) + bytes.MinRead)
	if _, err := data.ReadFrom(io.LimitReader(f, int64(limit)+1)); err != nil {
		return nil, err
	}
	if data.Len() > limit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrTooLarge}
	}
	return data.Bytes(), nil
}
