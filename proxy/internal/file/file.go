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
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	// ErrIrregular: a directory, a pipe, a socket or a device.
	ErrIrregular = errors.New("not a regular file")
	// ErrTooLarge: it has more bytes than it may.
	ErrTooLarge = errors.New("the file is too large")
)

// patience is how long a read waits for a file that has nothing to read at the moment.
const patience = time.Second

// Read returns the bytes of a regular file of at most limit bytes. Errors are a [fs.PathError];
// they wrap ErrIrregular, ErrTooLarge and [os.ErrDeadlineExceeded].
//
// It does not wait for a pipe's writer, for the end of a lease (open(2), O_NONBLOCK: it fails with
// EWOULDBLOCK), or longer than a second for one of the kernel's files that is regular by its mode and
// can be waited for, such as /proc/kmsg (proc(5)). A file system that does not answer is given up after five
// seconds; while 16 such reads have not returned there are no more. It is safe for concurrent use.
func Read(path string, limit int) ([]byte, error) { return reads.read(path, limit) }

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

// ReadOwn is [Read] of a file that this program writes. It follows no link of another user, and where others may make
// files, the file must belong to root or to this user: otherwise the error wraps [ErrUnsafe].
func ReadOwn(path string, limit int) ([]byte, error) { return ownReads.read(path, limit) }

const (
	answerTime = 5 * time.Second
	maxStuck   = 16
)

// reads and ownReads are the reads of the process.
var (
	reads    = reader{now: readNow, after: time.After}
	ownReads = reader{now: readOwnNow, after: time.After}
)

// A reader gives up reads that do not return. Each of them keeps its goroutine, and a thread, until it does.
type reader struct {
	now   func(path string, limit int) ([]byte, error)
	after func(time.Duration) <-chan time.Time
	stuck atomic.Int32 // reads that were given up and have not returned
}

type content struct {
	data []byte
	err  error
}

func (r *reader) read(path string, limit int) ([]byte, error) {
	if r.stuck.Load() >= maxStuck {
		return nil, noAnswer(path)
	}
	done := make(chan content, 1)
	var settled atomic.Bool // by the first of the two: the read has returned, or it is given up
	go func() {
		data, err := r.now(path, limit)
		if done <- (content{data, err}); settled.Swap(true) {
			r.stuck.Add(-1)
		}
	}()
	select {
	case c := <-done:
		return c.data, c.err
	case <-r.after(answerTime):
	}
	r.stuck.Add(1)
	if settled.Swap(true) { // it has returned in this moment
		r.stuck.Add(-1)
		c := <-done
		return c.data, c.err
	}
	return nil, noAnswer(path)
}

func noAnswer(path string) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("the file system does not answer: %w", os.ErrDeadlineExceeded)}
}

func readNow(path string, limit int) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() { // to open a device may have effects
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrIrregular}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return readAll(f, path, limit)
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
	_ = f.SetReadDeadline(time.Now().Add(patience)) // os.ErrNoDeadline: the file never waits
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

// lookTime is how long [Within] waits: less than the client of a status does.
const lookTime = 2 * time.Second

// stuckLooks counts the looks that were given up and have not returned, by name.
var stuckLooks = struct {
	sync.Mutex
	of map[string]int
}{of: make(map[string]int)}

// Within returns what look returns, which looks at files but does not open them. It gives up a file system that does
// not answer after two seconds; until that look has returned, others of the same name fail at once. The error wraps
// [os.ErrDeadlineExceeded]. It is safe for concurrent use.
func Within[T any](name string, look func() T) (is T, err error) {
	s := &stuckLooks
	s.Lock()
	stuck := s.of[name] > 0
	s.Unlock()
	if stuck {
		return is, noAnswer(name)
	}
	done := make(chan T, 1)
	gaveUp := false // guarded by s
	go func() {
		now := look()
		s.Lock()
		defer s.Unlock()
		if done <- now; gaveUp {
			if s.of[name]--; s.of[name] == 0 {
				delete(s.of, name)
			}
		}
	}()
	late := time.NewTimer(lookTime)
	defer late.Stop()
	select {
	case is = <-done:
		return is, nil
	case <-late.C:
	}
	s.Lock()
	defer s.Unlock()
	select {
	case is = <-done: // it has returned in this moment
		return is, nil
	default:
	}
	gaveUp = true
	s.of[name]++
	return is, noAnswer(name)
}
