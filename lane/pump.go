package lane

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
)

// chunk is how many bytes a pump moves at once.
const chunk = 64 << 10

// chunks are held by pumps that have bytes, not by those that wait.
var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// errLeft ends a pump whose session has left user space.
var errLeft = errors.New("lane: the session has left user space")

// run relays the session in user space, until it ends there or leaves. Directions that have ended in
// the lane are left alone.
func (s *Session) run(ended [2]bool) {
	s.mu.Lock()
	conn := *s.sockets()
	s.mu.Unlock()
	var pumps sync.WaitGroup
	var errs [2]error
	for d := range 2 {
		if ended[d] {
			continue
		}
		pumps.Go(func() {
			errs[d] = s.pump(d, conn[d], conn[1-d])
			if errs[d] != nil && !s.left() {
				interrupt(conn)
			}
		})
	}
	pumps.Wait()
	if s.left() {
		s.leave(conn)
		return
	}
	err := firstOf(errs)
	// No other goroutine closes them, so they are closed when this is over: their resets find the session's record, which has their numbers.
	for _, c := range conn {
		if err != nil {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
	s.over(err != nil, err)
}

// firstOf returns the cause of the end of a session, which interrupts the pump that has not met it; net.ErrClosed of one that was reset.
func firstOf(errs [2]error) (err error) {
	for _, e := range errs {
		if err == nil || err == net.ErrClosed {
			err = e
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = net.ErrClosed
		}
	}
	return err
}

// interrupt ends the pumps of a session that is in user space.
func interrupt(conn [2]*net.TCPConn) {
	for _, c := range conn {
		_ = c.SetDeadline(past)
	}
}

// pump moves one direction until its end of file.
func (s *Session) pump(d int, from, to *net.TCPConn) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	for {
		b, n, err := s.fill(d, raw)
		if err == io.EOF {
			return to.CloseWrite()
		}
		if err != nil {
			return err
		}
		_, err = to.Write(b[:n])
		chunks.Put(b)
		if err != nil {
			return err
		}
		s.mu.Lock()
		more := s.further()
		more.moved[d] += uint64(n)
		more.since = now()
		s.mu.Unlock()
	}
}

// fill waits for bytes and reads some. The caller gives the chunk back, unless there is an error.
func (s *Session) fill(d int, raw syscall.RawConn) (b *[chunk]byte, n int, err error) {
	waited := raw.Read(func(fd uintptr) bool {
		if !s.wake(d) {
			err = errLeft
			return true
		}
		b = chunks.Get().(*[chunk]byte)
		n, err = sys.Recv(int(fd), b[:], sys.MSG_DONTWAIT)
		if err == nil && n > 0 {
			return true
		}
		chunks.Put(b)
		if err == syscall.EAGAIN {
			s.rest(d)
			return false
		}
		if err == nil {
			err = io.EOF
		}
		return true
	})
	if s.left() {
		return nil, 0, errLeft
	}
	if waited != nil {
		err = waited
	}
	return b, n, err
}

// past is a deadline that ends every wait.
var past = time.Unix(1, 0)

// noteLeft ends the pumps if the program has taken the session. It may have come back since that was reported.
func (s *Session) noteLeft() {
	s.mu.Lock()
	first := false
	if s.phase == relaying && s.stays() == None {
		if at := s.record().State(); at == state.Lane || at == state.Done {
			s.phase, first = leaving, true
		}
	}
	conn, leaves := s.sockets(), s.phase == leaving
	s.mu.Unlock()
	if first && s.owner() != nil {
		s.owner().Left(s)
	}
	if conn != nil && leaves {
		for _, c := range conn {
			_ = c.SetReadDeadline(past)
		}
	}
}
