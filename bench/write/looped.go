package write

import (
	"errors"
	"fmt"
	"net"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/vecio"
)

// atOnce is how many batches are written before others on the loop would have their
// turn.
const atOnce = 16

// looped writes to a descriptor that a loop owns, on the loop's goroutine.
type looped struct {
	loop *loop.Loop
	w    *vecio.Writer
	fd   int      // owned; -1 once it is conn's
	conn net.Conn // owned; nil until end
	id   loop.ID

	asked job    // set before begin is posted
	begin func() // begins the job in asked
	job          // under way, the loop's

	done  chan error // the end of a write
	ended chan error // the end of the loop
}

// job is batches that are still to be taken.
type job struct {
	from *source // nil if there are none
	left int64
}

// openLooped takes the connection's descriptor to a loop of its own.
func openLooped(c *net.TCPConn, _ []int) (writer, error) {
	on, err := loop.New(nil)
	if err != nil {
		return nil, err
	}
	fd, err := loop.Take(c)
	if err != nil {
		return nil, errors.Join(err, on.Close())
	}
	l := &looped{loop: on, fd: fd, done: make(chan error, 1), ended: make(chan error, 1)}
	l.begin = func() {
		l.job = l.asked
		l.Ready(0, 0)
	}
	l.w, err = vecio.NewSocket(fd, nil)
	if err == nil {
		l.id, err = on.Add(fd, 0, l)
	}
	if err != nil {
		return nil, errors.Join(err, on.Close(), sys.Close(fd))
	}
	go func() { l.ended <- on.Run() }()
	return l, nil
}

func (l *looped) write(from *source, batches int64) error {
	l.asked = job{from, batches}
	if err := l.loop.Post(l.begin); err != nil {
		return err
	}
	select {
	case err := <-l.done:
		return err
	case err := <-l.ended:
		l.ended <- nil // for close
		return errors.Join(errors.New("the loop has ended"), err)
	}
}

// Ready implements loop.Handler.
func (l *looped) Ready(uint8, loop.Events) {
	if l.from == nil {
		return // between two writes, or before the first
	}
	for range atOnce {
		if l.w.Pending() == 0 {
			if l.left == 0 {
				l.finish(nil)
				return
			}
			l.left--
			if err := gather(l.w, l.from.batch()); err != nil {
				l.finish(err)
				return
			}
		}
		switch err := l.w.Flush(); {
		case errors.Is(err, vecio.ErrBlocked):
			return
		case err != nil:
			l.finish(err)
			return
		}
	}
	l.loop.Again(l.id)
}

// finish ends the write under way.
func (l *looped) finish(err error) {
	l.from = nil
	l.done <- err
}

func (l *looped) copied() int64 { return copiedBy(l.w) }

// end takes the connection back from the loop, which has nothing more to do.
func (l *looped) end() (*net.TCPConn, error) {
	if err := l.stop(); err != nil {
		return nil, err
	}
	if err := l.loop.Detach(l.id); err != nil {
		return nil, err
	}
	var err error
	fd := l.fd
	l.fd = -1 // whatever Give says
	if l.conn, err = loop.Give(fd); err != nil {
		return nil, err
	}
	c, ok := l.conn.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("%T is no TCP connection", l.conn)
	}
	return c, c.CloseWrite()
}

// stop ends the loop and waits for that.
func (l *looped) stop() error {
	l.loop.Stop()
	err := <-l.ended
	l.ended <- nil // for the next call of stop
	return err
}

func (l *looped) close() {
	_ = l.stop()
	_ = l.w.Close()
	_ = l.loop.Close()
	if l.fd >= 0 {
		_ = sys.Close(l.fd)
	}
	if l.conn != nil {
		_ = l.conn.Close()
	}
}
