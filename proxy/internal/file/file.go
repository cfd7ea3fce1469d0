// Package file reads files whose names an operator has chosen, or another user who may write
// next to them: configurations, certificates, lists of endpoints.
package file

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

var (
	// ErrIrregular: a directory, a pipe, a socket or a device.
	ErrIrregular = errors.New("not a regular file")
	// ErrTooLarge: it has more bytes than it may.
	ErrTooLarge = errors.New("file too large")
)

// patience is how long a file may take that has nothing to read at the moment.
const patience = time.Second

// Read returns the bytes of a regular file, at most so many. Errors are a [fs.PathError]; they wrap
// ErrIrregular and ErrTooLarge.
//
// It does not wait for a pipe's writer, for the end of a lease (open(2), O_NONBLOCK: it fails with
// EWOULDBLOCK), or longer than a second for one of the kernel's files that is regular by its mode and
// can be waited for, such as /proc/kmsg (proc(5)). A file system that does not answer has it wait. It is
// safe for concurrent use.
func Read(path string, limit int) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() { // to open a device may have effects
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrIrregular}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // it was replaced meanwhile
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrIrregular}
	}
	_ = f.SetReadDeadline(time.Now().Add(patience)) // os.ErrNoDeadline: it is one that never waits
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
