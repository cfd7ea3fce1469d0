package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
)

// spliceBytes is how much is moved: one fill of a pipe of the default size.
const spliceBytes = 16 << 10

// splice is whether bytes get from one TCP connection to another through a pipe.
type splice struct {
	Moved int64 `json:"moved_bytes"`

	err error
	place
}

func lookSplice(p *process) facts {
	f := splice{place: p.place}
	if f.err = feature.Splice(); f.err == nil {
		f.Moved, f.err = spliceOver(either())
	}
	p.sandbox(f.err)
	return f
}

func (f splice) judge() finding {
	switch {
	case f.err == nil:
		return finding{state: OK, found: size(f.Moved) + " moved from one TCP connection to another through a pipe"}
	case !refused(f.err):
		return finding{state: Unknown, found: "could not be tried: " + cause(f.err), cost: ifMissing + copying}
	}
	return finding{state: Missing, found: "refused: " + cause(f.err), cost: copying, mend: f.allow(callOf(f.err))}
}

// ifMissing begins the cost of an unknown feature.
const ifMissing = "if it is missing, "

// The figures of docs/pipe.md, by the missing feature.
const (
	copying    = "every byte is copied: a read of 64 KiB takes 1.2 times as long, one of 256 KiB 2.4 times"
	smallPipes = "large reads go through pipes of %s instead of 1 MiB: with 64 KiB one of 128 KiB takes 1.5 times as long, one of 256 KiB 2.0 times, one of 1 MiB 1.2 times"
)

// spliceOver splices some bytes from one connection to another, and compares them.
func spliceOver(network string) (int64, error) {
	source, in, err := connect(network, nil)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	defer in.Close()
	out, sink, err := connect(network, nil)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	defer sink.Close()
	sent := pattern(spliceBytes)
	if _, err := source.Write(sent); err != nil {
		return 0, err
	}
	if err := spliceAll(in, out, len(sent)); err != nil {
		return 0, err
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(sink, got); err != nil {
		return 0, err
	}
	if !bytes.Equal(got, sent) {
		return 0, errors.New("other bytes arrived than were sent")
	}
	return int64(len(got)), nil
}

// spliceAll moves n bytes between connections through a pipe of its own.
func spliceAll(in, out *net.TCPConn, n int) error {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	defer sys.Close(r)
	defer sys.Close(w)
	source, err := in.SyscallConn()
	if err != nil {
		return err
	}
	target, err := out.SyscallConn()
	if err != nil {
		return err
	}
	for moved := 0; moved < n; {
		filled, err := spliceWhenReady(source.Read, func(fd int) (int, error) {
			return sys.Splice(fd, nil, w, nil, n-moved, sys.SPLICE_F_NONBLOCK)
		})
		if err != nil {
			return err
		}
		for moved += filled; filled > 0; {
			drained, err := spliceWhenReady(target.Write, func(fd int) (int, error) {
				return sys.Splice(r, nil, fd, nil, filled, sys.SPLICE_F_NONBLOCK)
			})
			if err != nil {
				return err
			}
			filled -= drained
		}
	}
	return nil
}

// spliceWhenReady repeats f until it moves something, fails, or the connection's
// deadline is over. ready is Read or Write of the connection's RawConn.
func spliceWhenReady(ready func(func(fd uintptr) bool) error, f func(fd int) (int, error)) (int, error) {
	var n int
	var failed error
	err := ready(func(fd uintptr) bool {
		n, failed = f(int(fd))
		return failed != syscall.EAGAIN && failed != syscall.EINTR
	})
	switch {
	case failed != nil && failed != syscall.EAGAIN && failed != syscall.EINTR:
		return 0, answered("splice", failed)
	case err != nil:
		return 0, err
	case n == 0:
		return 0, fmt.Errorf("splice: %w", io.ErrUnexpectedEOF)
	}
	return n, nil
}

// pattern is n bytes of which no two near each other are the same.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}
