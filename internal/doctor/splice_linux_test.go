package doctor

import (
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/pipequota"
)

// TestSpliceWaitsForRoom: an output that takes nothing now is waited for until it
// does, which is not the same as having something to read.
func TestSpliceWaitsForRoom(t *testing.T) {
	pipequota.Share(t)
	source, in := connection(t)
	out, sink := connection(t)
	if err := inspect(out, stuff); err != syscall.EAGAIN {
		t.Fatal(err)
	}
	sent := pattern(spliceBytes)
	if _, err := source.Write(sent); err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		// Not before the pipe is full, and the output has nowhere to go.
		if err := until(func() (bool, error) { return empty(in) }); err != nil {
			t.Error(err)
		}
		io.Copy(io.Discard, sink)
	})
	if err := spliceAll(in, out, len(sent)); err != nil {
		t.Error(err)
	}
	out.Close()
	reader.Wait()
}

// connection is connect for a test.
func connection(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	client, server, err := connect(either(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// stuff sends until nothing more fits in.
func stuff(fd int) error {
	for {
		if _, err := sys.Send(fd, make([]byte, 64<<10), sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL); err != nil {
			return err
		}
	}
}

// empty tells whether all that came has been taken.
func empty(c *net.TCPConn) (bool, error) {
	n := 0
	err := inspect(c, func(fd int) (err error) {
		n, err = sys.FIONREAD(fd)
		return err
	})
	return n == 0, err
}
