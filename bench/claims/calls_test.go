package claims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/vecio"
)

// wire is a connection that is written to at its near end and read at its far end: unix
// stream sockets, where nothing below them hides the cost of a call.
type wire struct {
	near, far int // owned
	buf       []byte
}

func newWire() (*wire, error) {
	a, b, err := sys.SocketPair()
	return &wire{a, b, make([]byte, 128<<10)}, os.NewSyscallError("socketpair", err)
}

func (w *wire) close() {
	sys.Close(w.near)
	sys.Close(w.far)
}

// each writes parts by a call each, and reads them.
func (w *wire) each(parts [][]byte) error {
	for _, p := range parts {
		if n, err := sys.Write(w.near, p); err != nil || n != len(p) {
			return fmt.Errorf("write of %d bytes: %d, %w", len(p), n, err)
		}
	}
	return w.read(size(parts))
}

// gathered writes parts by one call, and reads them.
func (w *wire) gathered(parts [][]byte) error {
	if n, err := sys.Writev(w.near, parts); err != nil || n != size(parts) {
		return fmt.Errorf("writev of %d bytes: %d, %w", size(parts), n, err)
	}
	return w.read(size(parts))
}

// flushed writes parts by a vecio.Writer to the near end, and reads them.
func (w *wire) flushed(by *vecio.Writer, parts [][]byte) error {
	for _, p := range parts {
		if err := by.Append(p); err != nil {
			return err
		}
	}
	if err := by.Flush(); err != nil {
		return err
	}
	return w.read(size(parts))
}

func (w *wire) read(n int) error {
	for got := 0; got < n; {
		m, err := sys.Read(w.far, w.buf[got:])
		if err != nil {
			return fmt.Errorf("read of %d bytes: %d, %w", n, got, err)
		}
		got += m
	}
	return nil
}

func size(parts [][]byte) (n int) {
	for _, p := range parts {
		n += len(p)
	}
	return n
}

func filled(b byte, n int) []byte { return slices.Repeat([]byte{b}, n) }

// measureGathered sends a message in three parts by three calls, by one, and by Penstock's
// writer. It also reports whether the kernel has copied
// the parts by the time that the one call returns.
func measureGathered(ctx context.Context) (r Result, err error) {
	w, err := newWire()
	if err != nil {
		return r, err
	}
	defer w.close()
	by, err := vecio.NewSocket(w.near, nil)
	if err != nil {
		return r, err
	}
	defer by.Close()
	message := [][]byte{filled('h', 64), filled('b', 4096), filled('t', 16)}
	var fails failure
	times, err := fails.alternate(
		ctx, 150,
		candidate{"three calls", repeat(func() { fails.note(w.each(message)) })},
		candidate{"one call", repeat(func() { fails.note(w.gathered(message)) })},
		candidate{penstock, repeat(func() { fails.note(w.flushed(by, message)) })},
	)
	if err != nil {
		return r, err
	}
	sent := float64(by.Stats().Written) / float64(size(message))
	perMessage := func(n int64) float64 { return float64(n) / sent }
	changed, err := w.changed()
	r = Result{
		times.median("three calls", 1), times.median("one call", 1), times.ratio("one call", "three calls"),
		times.median(penstock, 1),
		{Of: penstock, Name: "calls for a message", Unit: Number, Value: perMessage(by.Stats().Calls)},
		{Of: penstock, Name: "copied before that", Unit: Bytes, Value: perMessage(by.Stats().CopiedBytes)},
		times.ratio(penstock, "one call"),
		{Name: "of 65,536 bytes overwritten after writev arrived so", Unit: Exact, Value: float64(changed)},
	}
	return r, err
}

// changed returns how many of 64 KiB arrive as they were made after the call that
// wrote them.
func (w *wire) changed() (n int, err error) {
	data := filled('a', 64<<10)
	if _, err := sys.Writev(w.near, [][]byte{data[:1000], data[1000:]}); err != nil {
		return 0, os.NewSyscallError("writev", err)
	}
	copy(data, filled('z', len(data)))
	err = w.read(len(data))
	for _, b := range w.buf[:len(data)] {
		if b == 'z' {
			n++
		}
	}
	return n, err
}

// measureLimit asks one call for more bytes than any one moves, which is MAX_RW_COUNT
// (include/linux/fs.h: 0x7ffff000 where pages have 4 KiB). The destination is one where
// writing costs nothing, and the source is pages that are never touched.
func measureLimit(context.Context) (r Result, err error) {
	length := int64(1<<31 + 1<<20)
	if int64(int(length)) != length {
		return r, errors.New("an iovec longer than one call moves takes an address space of 64 bits")
	}
	zeros, err := sys.MmapAnonymous(int(length), sys.PROT_READ, sys.MAP_PRIVATE)
	if err != nil {
		return r, os.NewSyscallError("mmap", err)
	}
	defer func() { _ = sys.Munmap(zeros) }()
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return r, err
	}
	defer f.Close()
	r = Result{{Name: "bytes asked for", Unit: Exact, Value: float64(len(zeros))}}
	for _, c := range []struct {
		name  string
		parts [][]byte
	}{
		{"written, as one iovec", [][]byte{zeros}},
		{"as two", [][]byte{zeros[:len(zeros)/2], zeros[len(zeros)/2:]}},
	} {
		n, err := sys.Writev(int(f.Fd()), c.parts)
		if err != nil {
			return r, os.NewSyscallError("writev", err)
		}
		r = append(r, Figure{Name: c.name, Unit: Exact, Value: float64(n)})
	}
	return r, nil
}
