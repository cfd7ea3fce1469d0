package million

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// idleTimeout is that of penstock proxy.
const idleTimeout = time.Hour

// A crowd is sessions on one loop, which all of this process's goroutine drives. Its
// sessions never end, for they share their descriptors: it is good for a process of
// its own.
type crowd struct {
	clock  *clock
	loop   *loop.Loop
	arena  *arena.Arena // with a slot for each session
	driver *relay.Driver
	links  links
	slabs  [][]conn
	ids    []loop.ID // of each session's a
	last   *conn
	ended  []relay.Reason // of sessions that did end
	b      [messageSize]byte
	want   [messageSize]byte
}

// slabSize is how many conns package proxy/internal/worker makes at a time.
var slabSize = int(64 << 10 / reflect.TypeFor[conn]().Size())

// A conn is as large as that of package proxy/internal/worker, and has as many pointers.
type conn struct {
	session    relay.Driven // its sockets are the links'
	crowd      *crowd
	next, prev *conn
	dial       *link    // that it was begun with
	_          [16]byte // descriptors, a number, a state
}

// Ended implements relay.Owner.
func (n *conn) Ended(_ *relay.Driven, res relay.Result, _ error) {
	n.crowd.ended = append(n.crowd.ended, res.Reason)
}

// newCrowd makes one with room for n sessions, of which there is none yet.
func newCrowd(n int) (*crowd, error) {
	c := &crowd{clock: new(clock), ids: make([]loop.ID, n)}
	var err error
	if c.links, err = newLinks(); err != nil {
		return nil, err
	}
	if c.loop, err = loop.New(&loop.Config{Now: c.clock.read}); err != nil {
		return nil, err
	}
	r, err := relay.New(&relay.Config{IdleTimeout: idleTimeout})
	if err != nil {
		return nil, err
	}
	// Its own slots, and a chunk for the buffer that all sessions read into.
	if c.arena, err = arena.New(&arena.Config{Locals: 1, Size: int64(n)*slotSize + 2*arena.ChunkSize}); err != nil {
		return nil, err
	}
	if c.driver, err = r.NewDriver(c.loop, c.arena.Local(0)); err != nil {
		return nil, err
	}
	return c, nil
}

// fill starts all sessions, over a span of the clock: some in each step of it, so that the
// loop's wheel turns with it.
func (c *crowd) fill(from, to time.Duration) (err error) {
	n := len(c.ids)
	_, failed := c.clock.run(c.loop, from, to, n, func(step, steps int) {
		for i := n * step / steps; i < n*(step+1)/steps && err == nil; i++ {
			err = c.start(i)
		}
	})
	return cmp.Or(err, failed)
}

func (c *crowd) conn(i int) *conn { return &c.slabs[i/slabSize][i%slabSize] }

// start starts session i, which is the next.
func (c *crowd) start(i int) error {
	if i%slabSize == 0 {
		c.slabs = append(c.slabs, make([]conn, slabSize))
	}
	n, k := c.conn(i), c.links.of(i)
	if n.crowd, n.dial, n.prev = c, k, c.last; c.last != nil {
		c.last.next = n
	}
	c.last = n
	a, err := c.register(k.nearA, 0, n)
	if err != nil {
		return err
	}
	b, err := c.register(k.nearB, 1, n)
	if err != nil {
		return err
	}
	c.ids[i] = a.ID
	c.driver.Start(&n.session, a, b, n)
	return nil
}

// register takes a slot of the loop's table for a socket that shares its descriptor with
// others, which epoll could therefore not separate. It registers an eventfd that is closed at
// once, and so has no events. The returned Events says that the socket is writable.
func (c *crowd) register(fd int, which uint8, n *conn) (relay.Socket, error) {
	event, err := sys.Eventfd()
	if err != nil {
		return relay.Socket{}, fmt.Errorf("million: %w", os.NewSyscallError("eventfd", err))
	}
	defer sys.Close(event)
	id, err := c.loop.Add(event, which, &n.session)
	return relay.Socket{FD: fd, ID: id, Events: loop.Writable}, err
}

// messageSize is how long a message is, in bytes.
const messageSize = 1 << 10

// message passes one through session i, and returns how long the loop's side of it
// took: to find the registration, as an event does, and to read and write.
func (c *crowd) message(i int) (time.Duration, error) {
	k, id, s := c.links.of(i), c.ids[i], &c.conn(i).session
	if err := send(k.farA, c.numbered(i, messageSize)); err != nil {
		return 0, err
	}
	begun := time.Now()
	c.loop.Hand(id, s)
	s.Ready(0, loop.Readable)
	took := time.Since(begun)
	return took, c.expect(k, messageSize)
}

// numbered is a message that no other session has.
func (c *crowd) numbered(i, size int) []byte {
	binary.LittleEndian.PutUint64(c.want[:], uint64(i)+1)
	return c.want[:size]
}

var errOther = errors.New("million: another session's message")

// expect receives the message of which numbered was asked last.
func (c *crowd) expect(k *link, size int) error {
	if err := receive(k.farB, c.b[:size]); err != nil {
		return err
	}
	if !bytes.Equal(c.b[:size], c.want[:size]) {
		return errOther
	}
	return nil
}
