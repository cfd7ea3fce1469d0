package claims

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/penstock/penstock/internal/sys"
)

// loadSize is how many bytes measureMove moves at a time: a pipe full.
const loadSize = 64 << 10

// A mule moves a load from a file through a pipe, to a socket or to another file.
type mule struct {
	src, dst *os.File // owned; they have no names any more
	r, w     int      // the pipe, owned
	wire     *wire    // owned
	fails    failure
}

func newMule() (m *mule, err error) {
	m = &mule{r: -1, w: -1}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.src, err = nameless(); err != nil {
		return m, err
	}
	if m.dst, err = nameless(); err != nil {
		return m, err
	}
	if _, err = m.src.Write(filled('m', loadSize)); err != nil {
		return m, err
	}
	if m.wire, err = newWire(); err != nil {
		return m, err
	}
	m.r, m.w, err = sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	return m, os.NewSyscallError("pipe2", err)
}

// nameless makes a temporary file that is gone when it is closed.
func nameless() (*os.File, error) {
	f, err := os.CreateTemp("", "penstock-claims-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

func (m *mule) close() {
	for _, f := range []*os.File{m.src, m.dst} {
		if f != nil {
			f.Close()
		}
	}
	if m.wire != nil {
		m.wire.close()
	}
	if m.r >= 0 {
		sys.Close(m.r)
		sys.Close(m.w)
	}
}

func (m *mule) fill(flags int) error {
	var at int64
	n, err := sys.Splice(int(m.src.Fd()), &at, m.w, nil, loadSize, flags)
	if err == nil && n != loadSize {
		err = fmt.Errorf("%d bytes of %d", n, loadSize)
	}
	return os.NewSyscallError("splice from a file", err)
}

// toSocket moves a load to the socket, which is emptied.
func (m *mule) toSocket(flags int) {
	err := m.fill(flags)
	for n := loadSize; n > 0 && err == nil; {
		var k int
		if k, err = sys.Splice(m.r, nil, m.wire.near, nil, n, flags); err == nil {
			err = m.wire.read(k)
		}
		n -= k
	}
	m.fails.note(err)
}

func (m *mule) toFile(flags int) {
	err := m.fill(flags)
	for at := int64(0); at < loadSize && err == nil; {
		_, err = sys.Splice(m.r, nil, int(m.dst.Fd()), &at, int(loadSize-at), flags)
	}
	m.fails.note(err)
}

// arrived empties the other file, moves a load to it, and returns how many of its
// bytes are there.
func (m *mule) arrived(flags int) (float64, error) {
	if err := m.dst.Truncate(0); err != nil {
		return 0, err
	}
	m.toFile(flags)
	data := make([]byte, loadSize)
	n, err := m.dst.ReadAt(data, 0)
	return float64(bytes.Count(data[:n], []byte{'m'})), err
}

// measureMove moves loads with and without SPLICE_F_MOVE.
func measureMove(ctx context.Context) (r Result, err error) {
	m, err := newMule()
	if err != nil {
		return r, err
	}
	defer m.close()
	times, err := alternate(
		ctx, 150,
		candidate{"to a socket", repeat(func() { m.toSocket(0) })},
		candidate{"to a socket, MOVE", repeat(func() { m.toSocket(sys.SPLICE_F_MOVE) })},
		candidate{"to a file", repeat(func() { m.toFile(0) })},
		candidate{"to a file, MOVE", repeat(func() { m.toFile(sys.SPLICE_F_MOVE) })},
	)
	if err != nil {
		return r, err
	}
	there, err := m.arrived(sys.SPLICE_F_MOVE)
	if err = cmp.Or(m.fails.err(), err); err != nil {
		return r, err
	}
	r = Result{
		times.median("to a socket", 1), times.ratio("to a socket, MOVE", "to a socket"),
		times.median("to a file", 1), times.ratio("to a file, MOVE", "to a file"),
		{Name: "of 65,536 bytes arrived with MOVE", Unit: Exact, Value: there},
	}
	return r, nil
}
