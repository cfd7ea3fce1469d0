package verdict

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/sys"
)

// A path makes the way over a router a long one, where the kernel has no netem: a TUN device there gets every packet
// between its two links, and gives it back after a delay. Packets keep their order.
type path struct {
	device  *os.File // owned
	delay   time.Duration
	jitter  time.Duration // up to so much more
	queue   chan delayed
	dropped atomic.Int64 // packets for which the queue had no room
	refused atomic.Int64 // packets that the device has not taken back
	done    sync.WaitGroup
}

// A delayed packet.
type delayed struct {
	due    time.Time
	packet *[]byte
}

const (
	pathDevice = "path"
	// pathQueue is how many packets may be under way in both directions: 25 MB, which is 1 Gbit/s at 200 ms.
	pathQueue = 1 << 14
)

// packets are buffers for those that are under way.
var packets = sync.Pool{New: func() any {
	b := make([]byte, 0, 2048)
	return &b
}}

// lengthen has each packet over the router take so much longer, from link to link. Without privileges the error wraps
// syscall.EPERM. The path must be closed.
func lengthen(router *process.Group, delay, jitter time.Duration) (p *path, err error) {
	var fd int
	if stop := router.Do(func() { fd, err = sys.OpenTUN(pathDevice) }); stop != nil || err != nil {
		return nil, fmt.Errorf("lengthen a path: a TUN device: %w", errors.Join(stop, err))
	}
	p = &path{device: os.NewFile(uintptr(fd), pathDevice), delay: delay, jitter: jitter, queue: make(chan delayed, pathQueue)}
	p.done.Go(p.take)
	p.done.Go(p.give)
	if err := router.Run("ip link set "+pathDevice+" txqueuelen 5000 up", "ip route add default dev "+pathDevice+" table 100",
		// A packet of the device itself matches neither rule: it goes to the link that it was for.
		"ip rule add iif outer lookup 100", "ip rule add iif inner lookup 100"); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// take takes packets from the device, until that is closed.
func (p *path) take() {
	defer close(p.queue)
	var last time.Time
	for {
		b := packets.Get().(*[]byte)
		n, err := p.device.Read((*b)[:cap(*b)])
		if err != nil {
			return
		}
		*b = (*b)[:n]
		due := time.Now().Add(p.delay)
		if p.jitter > 0 {
			due = due.Add(rand.N(p.jitter))
		}
		if due.Before(last) {
			due = last
		}
		last = due
		select {
		case p.queue <- delayed{due, b}:
		default:
			p.dropped.Add(1)
			packets.Put(b)
		}
	}
}

// give gives them back when they are due.
func (p *path) give() {
	for d := range p.queue {
		time.Sleep(time.Until(d.due))
		if _, err := p.device.Write(*d.packet); err != nil {
			p.refused.Add(1) // a loss, as on any path
		}
		packets.Put(d.packet)
	}
}

// close ends the path, and with it the device. Packets that are under way are lost. The rules stay for the router's life.
func (p *path) close() {
	_ = p.device.Close()
	p.done.Wait()
}
