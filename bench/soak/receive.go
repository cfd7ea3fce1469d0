package soak

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// receive receives until the end, and checks every byte.
func (e *end) receive() {
	saw := e.receiveAll()
	if saw == eof && e.collected() {
		saw = aReset
	}
	if saw == aReset {
		e.tally.count(resetsSeen)
	}
	e.lock(func() { e.saw = saw })
	if saw != eof { // nothing that is sent will arrive
		e.snap()
		_ = e.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

func (e *end) receiveAll() sight {
	buf := make([]byte, e.part.read.size)
	waits := e.part.read.stalls
	for {
		room := len(buf)
		if len(waits) > 0 {
			got := e.received - e.peer().greeted() // written by this goroutine only
			if got >= waits[0].at {
				e.tally.count(stalls)
				e.pause(waits[0].d)
				waits = waits[1:]
				continue
			}
			room = int(min(int64(room), waits[0].at-got))
		}
		n, err := e.conn.Read(buf[:room])
		if !e.check(buf[:n]) {
			return wrong
		}
		if saw := e.name(err); saw != nothing {
			return saw
		}
	}
}

// check compares bytes with those that the other end sends, and counts them.
func (e *end) check(b []byte) bool {
	ok := e.in.Check(b)
	e.lock(func() {
		if !ok {
			e.err = fmt.Errorf("within bytes %d to %d", e.received, e.received+int64(len(b)))
		}
		e.received += int64(len(b))
	})
	return ok
}

// collected reports whether an end of file is none, but the result of a read after a write has
// collected the error of a reset. Then the kernel has closed the connection, though this end
// has not sent its end of file.
func (e *end) collected() bool {
	state, err := uint8(0), error(nil)
	control(e.conn, func(fd int) { state, err = sys.TCPState(fd) })
	if err != nil || state != sys.TCP_CLOSE {
		return false
	}
	shut := false
	e.lock(func() { shut = e.shut })
	return !shut
}
