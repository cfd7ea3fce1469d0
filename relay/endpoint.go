package relay

import (
	"errors"
	"syscall"
)

// A source is where a direction reads. Its calls never wait, except recv of an end that is
// moved by its own Read. Errors are raw: a syscall.Errno, or the error of Read.
type source interface {
	sender
	// transfer moves bytes straight into the sink and names the system call that
	// it made. Only a regular file has it.
	transfer(dst sink, max int) (n int, op string, err error)
}

// A sender is the part of every source.
type sender interface {
	// recv reads once; 0 and nil means end of file.
	recv(p []byte) (int, error)
	// fill splices once into the pipe.
	fill(c splicePipe, max int) (int, error)
	// peek finds the meaning of a fill of nothing, or of EAGAIN (in spliceErr): a positive
	// number if bytes are queued, 0 and nil for the end of file, EAGAIN if there is nothing
	// yet.
	peek(spliceErr error) (int, error)
	// raiseMark makes the source readable only once n bytes are queued, and reports
	// whether it can. lowerMark undoes that; it is called from other goroutines.
	raiseMark(n int) bool
	lowerMark()
	// aborted reports, after an end of file, whether it was in truth a reset whose error a
	// write on the same socket has already collected.
	aborted() bool
	// queued returns the bytes that wait in the receive queue.
	queued() int
}

// A sink is where a direction writes.
type sink interface {
	// send writes once and may take fewer bytes than offered.
	send(p []byte) (int, error)
	// drain splices once out of the pipe.
	drain(c splicePipe, max int) (int, error)
	// closeWrite passes on an end of file; errNoHalfClose if there is no way to.
	closeWrite() error
}

// A link is the two ends of a direction.
type link interface {
	sender
	sink
	// environment returns the common part of the driver's directions.
	environment() *environment
	// transfer moves bytes straight from source to sink, see source.
	transfer(max int) (n int, op string, err error)
}

// A pair is a link of two ends that know nothing of each other.
type pair struct {
	source
	sink
	env    *environment
	meters *meters // nil: none
	copied int     // size of the buffer in which bytes of a descriptor are copied to a sink that waits inside
}

func (p *pair) environment() *environment { return p.env }

// readSize returns the size of the buffer for the next read, in bytes.
func (p *pair) readSize() int {
	if src, ok := p.source.(*opaqueSource); ok {
		return src.buffer.size
	}
	return p.copied
}

// errNoHalfClose: the sink's type has no CloseWrite.
var errNoHalfClose = errors.New("no half-close")

func wouldBlock(err error) bool { return err == syscall.EAGAIN }
