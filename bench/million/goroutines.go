package million

import (
	"sync"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// bufferSize is that of io.Copy, in bytes.
const bufferSize = 32 << 10

// A pump is one way of a session with goroutines, which has a buffer of its own. A channel
// wakes it instead of the runtime's poller.
type pump struct {
	wake chan struct{}
	done chan<- error
	from int // borrowed from a link
	to   int
}

// run is its goroutine, until wake is closed.
func (p *pump) run() {
	b := make([]byte, bufferSize)
	for i := range b {
		b[i] = 1 // it has been full once
	}
	p.done <- nil
	for range p.wake {
		n, err := sys.Recv(p.from, b, sys.MSG_DONTWAIT)
		if err == nil {
			err = send(p.to, b[:n])
		}
		p.done <- err
	}
}

// pumps are those of all sessions.
type pumps struct {
	links links
	ways  [][2]*pump
	done  chan error
	ended sync.WaitGroup
	b     [messageSize]byte
}

// start starts two goroutines for each session, and waits until they have buffers.
func (p *pumps) start() error {
	for i := range p.ways {
		k := p.links.of(i)
		for way, ends := range [2][2]int{{k.nearA, k.nearB}, {k.nearB, k.nearA}} {
			pump := &pump{make(chan struct{}), p.done, ends[0], ends[1]}
			p.ways[i][way] = pump
			p.ended.Go(pump.run)
			if err := <-p.done; err != nil {
				return err
			}
		}
	}
	return nil
}

// message passes one through session i.
func (p *pumps) message(i int) (time.Duration, error) {
	k, wake := p.links.of(i), p.ways[i][0].wake
	if err := send(k.farA, p.b[:]); err != nil {
		return 0, err
	}
	begun := time.Now()
	wake <- struct{}{}
	err := <-p.done
	took := time.Since(begun)
	if err != nil {
		return 0, err
	}
	return took, receive(k.farB, p.b[:])
}

// stop ends all goroutines.
func (p *pumps) stop() {
	for _, ways := range p.ways {
		for _, way := range ways {
			if way != nil {
				close(way.wake)
			}
		}
	}
	p.ended.Wait()
	p.links.close()
}

// ofGoroutines measures two goroutines for each session.
func (f *Figures) ofGoroutines(n int, t *teller) error {
	ks, err := newLinks()
	if err != nil {
		return err
	}
	p := &pumps{links: ks, ways: make([][2]*pump, n), done: make(chan error)}
	defer p.stop()
	t.doing("sessions begin")
	if err := f.begin(n, p.start); err != nil {
		return err
	}
	return f.talk(n, p.message, t, func(int, int) {})
}
