package loop_test

import (
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/signals"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// TestUrgentInSignals: a read that comes to the urgent mark with a signal pending answers EAGAIN although bytes are
// queued, and nothing tells of them again. The runtime signals its threads to preempt them; here they are all the
// time.
func TestUrgentInSignals(t *testing.T) {
	s := startServer(t, &loop.Server{Handle: echoes})
	c := s.dial(t)
	fd := sockets.FD(t, c)
	defer signals.Storm()()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		must.Get(sys.Send(fd, []byte("before!"), sys.MSG_OOB))(t)
		must.Get(io.WriteString(c, "after"))(t)
		sockets.Expect(t, c, "beforeafter")
	}
}
