package soak

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// burst is from where on a send is one.
const burst = 256 << 10

// send sends all of the plan, and the end of file if that is how it ends.
func (e *end) send() {
	saw := e.sendAll()
	if saw == whole {
		saw = e.sendEnd()
	}
	e.lock(func() { e.sentEnd = saw })
}

func (e *end) sendAll() sight {
	if e.greeted() > 0 {
		if saw := e.write(e.pair.plan.id.greet()); saw != nothing {
			return saw
		}
	}
	for _, s := range e.part.sends {
		if !e.ready(&s) {
			return stopped
		}
		if saw := e.sendOne(&s); saw != nothing {
			return saw
		}
	}
	return whole
}

// ready waits for the condition of a send; false if that cannot come any more.
func (e *end) ready(s *send) (ok bool) {
	e.await(func() bool {
		if s.awaitEnd {
			ok = e.saw == eof
		} else {
			ok = e.received-e.peer().greeted() >= s.await
		}
		return ok || e.saw != nothing || e.stopping
	})
	e.pause(s.pause)
	if ok && s.pause >= idle && s.n >= burst {
		e.tally.count(bursts)
	}
	return ok
}

// sendOne sends one send, piece by piece.
func (e *end) sendOne(s *send) sight {
	if s.n == 0 {
		return nothing
	}
	e.tally.count(messages)
	if s.urgent {
		e.tally.count(urgentBytes)
		e.tally.offered[e.role].Add(s.n)
		return e.judge(e.writeUrgent(e.out.Next(1)))
	}
	for n := s.n; n > 0; {
		b := e.out.Next(int(min(n, int64(s.piece), traffic.MaxChunk)))
		if saw := e.write(b); saw != nothing {
			return saw
		}
		n -= int64(len(b))
	}
	return nothing
}

func (e *end) write(b []byte) sight {
	e.tally.offered[e.role].Add(int64(len(b)))
	n, err := e.conn.Write(b)
	return e.judge(n, err)
}

// judge adds n to the bytes sent, and returns how sending ended if it did.
func (e *end) judge(n int, err error) sight {
	saw := e.name(err)
	e.lock(func() { e.sent += int64(n) })
	return saw
}

// writeUrgent sends a byte by MSG_OOB, however long that has to wait.
func (e *end) writeUrgent(b []byte) (n int, err error) {
	raw, err := e.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	waited := raw.Write(func(fd uintptr) bool {
		n, err = sys.Send(int(fd), b, sys.MSG_OOB|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		return !errors.Is(err, syscall.EAGAIN)
	})
	if waited != nil {
		return 0, waited
	}
	return n, err
}

// sendEnd sends the end of file, if it is planned.
func (e *end) sendEnd() sight {
	if h := e.part.end.how; h != finish && h != shutReset {
		return whole
	}
	ended, open := false, false
	e.lock(func() {
		e.shut = true
		ended = e.saw == eof
		open = e.peer().sent-e.peer().greeted() < e.peer().part.total
	})
	if ended && e.part.end.how == finish && e.pair.plan.id.n%2 == 0 {
		e.tally.count(closedFirst)
		return whole // close does it
	}
	if open {
		e.tally.count(halfCloses)
	}
	if saw := e.name(e.conn.CloseWrite()); saw != nothing {
		return saw
	}
	return whole
}

// name classifies an error; nothing if there is none.
func (e *end) name(err error) (saw sight) {
	switch {
	case err == nil:
		return nothing
	case errors.Is(err, io.EOF):
		return eof
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ENOTCONN):
		return aReset
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.lock(func() {
			saw = late
			if e.stopping || e.saw > eof {
				saw = stopped
			}
		})
		return saw
	}
	e.lock(func() { e.err = err })
	return failed
}
