package worker

import (
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// A control is a congestion control, one more than its place in lanes.controls; 0: it is not known. Sessions that have left
// share the names, which are few.
type control uint8

// controlOf returns that of a socket: as it is, and not as it was configured, for the kernel may have refused that, a route
// may have another one, and a reload leaves connections alone.
func (t *lanes) controlOf(fd int) control {
	name, err := sys.Congestion(fd)
	if err != nil {
		return 0
	}
	at := slices.Index(t.controls, name)
	if at < 0 {
		if len(t.controls) == math.MaxUint8 {
			return 0
		}
		at = len(t.controls)
		t.controls = append(t.controls, name)
	}
	return control(at + 1)
}

// setOptions gives the sockets of a session that has come back the options of those of before: all of accept and of
// connect, of which those of an endpoint need not wait any more. Without them they are connections like others.
func (c *laneSession) setOptions(sockets [2]int) {
	options := c.conn.ref.serving.service.Options
	_ = sys.SetsockoptInt(sockets[1], sys.SOL_SOCKET, syscall.SO_REUSEADDR, 0) // which the lane sets: the listening socket had it, and that of connect not
	for i, fd := range sockets {
		_ = options.Set(fd)
		if at := c.controls[i]; at != 0 {
			_ = sys.SetCongestion(fd, c.worker().lanes.controls[at-1])
		}
	}
}

// userTimeoutOf is the TCP_USER_TIMEOUT of a session's sockets; 0: that is the kernel's.
func userTimeoutOf(n *conn) time.Duration {
	return n.ref.serving.service.Options.SetUserTimeout()
}
