package sessionlog

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/vecio"
)

const (
	// maxPending limits the bytes of lines that wait for a blocked stream.
	maxPending = 256 << 10
	// pipeWrite is how much is written to a pipe at once. The kernel takes all of it or none (pipe(7), PIPE_BUF), so no
	// line is torn, and no line of another writer gets into it.
	pipeWrite = 4096
	fileMode  = 0o640
)

// A stream is a file, a FIFO, or standard error.
type stream struct {
	path    string   // empty: standard error
	fd      int      // owned; negative without an own descriptor
	is      sys.File // the file; its Size is at least what it was at the last write
	pipe    bool
	writer  *vecio.Writer // nil if there is nothing to write to now
	pending []byte        // lines that are not written yet
	ends    []int         // where each line ends in pending
	given   int           // bytes of pending that the writer has got
	base    int64         // bytes that the writer had written before the given ones
	torn    bool          // pending begins with the rest of a line
	cut     bool          // the file ends in the middle of a line
	astray  error         // why the path could not be opened; until it can be opened, lines go to the old file, if that still has a name

	written, dropped int64
	err              error
}

// openFile opens a file, and makes it if it does not exist.
func openFile(path string) (*stream, error) {
	s := &stream{path: path, fd: -1}
	if err := s.open(); err != nil && !errors.Is(err, errUnread) {
		return nil, err
	}
	return s, nil
}

// openStderr opens standard error. If it is a pipe or a terminal, it is opened again, so that only this copy becomes
// non-blocking. A file is not opened again, because two open files would overwrite each other, and a socket cannot be.
func openStderr() (*stream, error) {
	s := &stream{fd: -1}
	mode, err := sys.FstatMode(2)
	if err != nil {
		return nil, fmt.Errorf("standard error: %w", err)
	}
	if kind := mode & syscall.S_IFMT; kind == syscall.S_IFIFO || kind == syscall.S_IFCHR {
		if fd, err := sys.OpenAppend(sys.OpenName(2)); err == nil {
			o, err := look(fd)
			if err != nil {
				return nil, fmt.Errorf("standard error: %w", err)
			}
			return s, s.take(o)
		}
	}
	s.writer, err = vecio.New(os.Stderr, &byReference)
	return s, err
}

var errUnread = errors.New("no process reads the FIFO")

// odd returns the reason why a file that is no regular one cannot be opened, for which the kernel has only ENXIO.
func odd(path string, err error) error {
	if !errors.Is(err, syscall.ENXIO) {
		return err
	}
	is, _ := sys.Stat(path)
	switch is.Mode & syscall.S_IFMT {
	case syscall.S_IFIFO:
		err = &os.PathError{Op: "open", Path: path, Err: errUnread}
	case syscall.S_IFSOCK:
		err = fmt.Errorf("open %s: it is a socket: write syslog+unix:%[1]s, journald:%[1]s or stderr", path)
	}
	return err
}

// open opens the path. If this fails, look tries again.
func (s *stream) open() error {
	o, err := file.Change(s.path, func() (o opened, err error) {
		fd, err := file.Append(s.path, fileMode)
		if err != nil {
			return o, odd(s.path, err)
		}
		return look(fd)
	}, func(o opened) { _ = sys.Close(o.fd) })
	if err == nil {
		err = s.take(o)
	}
	if s.astray = err; err != nil {
		s.err = err
		if s.fd >= 0 {
			s.err = fmt.Errorf("%w, so lines still go to the old file", err)
		}
	}
	return err
}

// opened is a descriptor, with what is known about its file.
type opened struct {
	fd   int
	mode uint32
	is   sys.File
	cut  bool // it ends inside a line
}

// look looks at a descriptor, and closes it after an error.
func look(fd int) (o opened, err error) {
	o.fd = fd
	if o.mode, err = sys.FstatMode(fd); err == nil {
		o.is, err = sys.Fstat(fd)
	}
	if err != nil {
		_ = sys.Close(fd)
		return o, err
	}
	o.cut = o.mode&syscall.S_IFMT == syscall.S_IFREG && endsInsideALine(fd)
	return o, nil
}

// take makes o the stream's file.
func (s *stream) take(o opened) error {
	writer, err := newWriter(o.fd)
	if err != nil {
		_ = file.Close(s.path, o.fd)
		return fmt.Errorf("%s: %w", s.name(), err)
	}
	s.giveUp()
	s.fd, s.is, s.pipe, s.cut, s.writer = o.fd, o.is, o.mode&syscall.S_IFMT == syscall.S_IFIFO, o.cut, writer
	return nil
}

// endsInsideALine reports whether a file ends in the middle of a line, for example after a full disk and a kill. It returns
// false if this process may not read the file.
func endsInsideALine(fd int) bool {
	f, err := os.Open(sys.OpenName(fd))
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	var last [1]byte
	n, _ := f.ReadAt(last[:], info.Size()-1) // fails for an empty file
	return n == 1 && last[0] != '\n'
}

// byReference writes lines without a copy: pending does not change while the writer uses a part of it.
var byReference = vecio.Config{High: 2 * maxPending, CopyBelow: -1}

// newWriter returns a writer that never waits.
func newWriter(fd int) (*vecio.Writer, error) {
	return vecio.NewSocket(fd, &byReference)
}

// giveUp closes the descriptor. A torn line stays torn, and counts as dropped.
func (s *stream) giveUp() {
	s.given, s.base, s.writer = 0, 0, nil
	if s.fd >= 0 {
		_ = file.Close(s.path, s.fd)
		s.fd = -1
	}
	s.dropTorn()
}

// dropTorn drops the rest of a torn line.
func (s *stream) dropTorn() {
	if s.torn {
		s.dropped++
		s.keep(s.ends[0], s.ends[1:])
	}
}

func (s *stream) name() string {
	if s.path == "" {
		return "standard error"
	}
	return s.path
}

func (s *stream) add(line []byte, _ *Event) {
	if len(s.pending)+len(line) >= maxPending {
		s.flush()
	}
	if len(s.pending)+len(line) >= maxPending {
		s.dropped++
		return
	}
	s.pending = append(append(s.pending, line...), '\n')
	s.ends = append(s.ends, len(s.pending))
}

// flush writes the pending lines with one gathered write. A pipe gets several writes, and takes each of them whole.
// Lines that are not taken stay pending as long as there is room.
func (s *stream) flush() {
	if len(s.ends) > 0 && s.path != "" && s.fd >= 0 {
		switch is, err := sys.Fstat(s.fd); {
		case err != nil:
		case is.Links == 0: // lines in it would be lost
			s.giveUp()
			_ = s.open() // the error is kept
		default:
			if (s.torn || s.cut) && is.Size < s.is.Size { // it was truncated
				s.dropTorn()
				s.cut = endsInsideALine(s.fd)
			}
			s.is.Size = is.Size
		}
	}
	for len(s.ends) > 0 && s.writer != nil {
		if s.given == 0 {
			s.give()
		}
		switch err := s.writer.Flush(); {
		case err == nil:
			s.cut = false
			s.wrote(s.given)
		case errors.Is(err, vecio.ErrBlocked):
			return
		default:
			s.failed(err)
			return
		}
	}
}

// give passes pending lines to the writer: all of them or, for a pipe, as many as it takes at once.
func (s *stream) give() {
	s.base = s.writer.Stats().Written
	if s.cut && s.writer.AppendString("\n") == nil {
		s.base++
	}
	for _, end := range s.ends {
		if s.pipe && end > pipeWrite && s.given > 0 || s.writer.Append(s.pending[s.given:end]) != nil {
			break
		}
		s.given = end
	}
}

// wrote notes that the first n bytes of pending were written.
func (s *stream) wrote(n int) {
	lines := 0
	for lines < len(s.ends) && s.ends[lines] <= n {
		lines++
	}
	s.written += int64(lines)
	torn := s.torn && n == 0 || n > 0 && (lines == 0 || s.ends[lines-1] < n)
	s.keep(n, s.ends[lines:])
	s.torn = torn
}

// keep drops the first n bytes of pending. ends are the ends of the remaining lines.
func (s *stream) keep(n int, ends []int) {
	s.given, s.torn = 0, false
	s.pending = append(s.pending[:0], s.pending[n:]...)
	for i, end := range ends {
		s.ends[i] = end - n
	}
	s.ends = s.ends[:len(ends)]
}

// failed handles a failed write, for example on a full disk. The unwritten lines are tried again, beginning with the
// rest of a torn line.
func (s *stream) failed(err error) {
	s.err = fmt.Errorf("%s: %w", s.name(), cause(err))
	n := int(s.writer.Stats().Written - s.base)
	s.cut = s.cut && n < 0
	s.wrote(max(n, 0))
	if s.fd < 0 {
		s.writer, err = vecio.New(os.Stderr, &byReference)
	} else {
		s.writer, err = newWriter(s.fd)
		s.is.Size += int64(max(n, 0)) // not its size now: it may have been truncated since the write
	}
	if err != nil {
		s.writer = nil
	}
}

// look opens the path again if it is now another file, or none.
func (s *stream) look(again bool) {
	if s.path == "" {
		return
	}
	if s.fd >= 0 && !again {
		is, err := file.Change(s.path, func() (sys.File, error) { return sys.Stat(s.path) }, nil)
		if err == nil && is.Same(s.is) {
			s.astray = nil
			return
		}
	}
	_ = s.open() // the error is kept
}

func (s *stream) counts() (written, dropped int64, err error) {
	written, dropped, err = s.written, s.dropped, s.err
	s.written, s.dropped, s.err = 0, 0, nil
	return written, dropped, err
}

func (s *stream) close() {
	s.flush()
	s.dropped += int64(len(s.ends))
	s.torn, s.ends = false, nil
	s.giveUp()
}
