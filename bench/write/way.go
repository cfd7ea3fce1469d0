package write

import (
	"fmt"
	"net"
)

// A way is one to write batches.
type way struct {
	name, about string
	open        func(c *net.TCPConn, pieces []int) (writer, error)
}

// The names of the ways that others are compared with, and of those that are
// Penstock's.
const (
	wayWrite   = "Write"
	wayBufio4  = "bufio-4"
	wayBufio64 = "bufio-64"
	wayBuffers = "net.Buffers"
	wayVecio   = "vecio"
	wayLoop    = "vecio-loop"
	wayAgain   = "again"
)

// ways are the compared ways, in the report's order; the others are divided by the first.
var ways = []way{
	{wayWrite, "net.Conn.Write for each piece", openPlain},
	{wayBufio4, "bufio.Writer of 4 KiB, flushed after each batch", openBufio(4 << 10)},
	{wayBufio64, "bufio.Writer of 64 KiB, flushed after each batch", openBufio(64 << 10)},
	{wayBuffers, "net.Buffers.WriteTo for each batch, its array used again", openBuffers},
	{wayVecio, "Penstock's vecio.Writer on a net.Conn, flushed after each batch", openVecio},
	{wayLoop, "the same on a descriptor that one of Penstock's loops owns", openLooped},
	{wayAgain, "net.Buffers once more: what its ratio to net.Buffers strays from 1 is noise", openBuffers},
}

// rivals are the ways that write several pieces at a time without Penstock.
var rivals = []string{wayBufio4, wayBufio64, wayBuffers}

// own are Penstock's.
var own = []string{wayVecio, wayLoop}

// part is the name of the part that runs the way.
func (w *way) part() string { return partPrefix + w.name }

// wayOf returns the way that a part runs.
func wayOf(part string) (*way, error) {
	for i := range ways {
		if w := &ways[i]; w.part() == part {
			return w, nil
		}
	}
	return nil, fmt.Errorf("write: no part %q", part)
}

// A writer is a connection that is written to in one of the ways, and owns it.
type writer interface {
	// write writes so many batches of a source. When it returns, all of them are
	// with the kernel.
	write(from *source, batches int64) error
	// copied is how many bytes it has copied in user space so far.
	copied() int64
	// end half-closes the connection and returns it: nothing is written any more.
	end() (*net.TCPConn, error)
	// close releases the writer's resources. It may be called after end.
	close()
}
