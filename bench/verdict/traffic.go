package verdict

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

var noContext = context.Background()

// patience is how long anything may take that must happen.
const patience = 20 * time.Second

// A behavior is the part of one side. Its changes take effect at once.
type behavior struct {
	mu sync.Mutex
	pace
}

// A pace is how fast a side reads and writes.
type pace struct {
	readEvery  time.Duration // between reads
	readChunk  int
	writeEvery time.Duration // between writes, or before a question or an answer
	writeChunk int
}

func (b *behavior) set(p pace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pace = p
}

func (b *behavior) now() pace {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pace
}

const wholeChunk = 256 << 10

// stream writes until an error.
func (b *behavior) stream(c net.Conn) {
	block := make([]byte, wholeChunk)
	for {
		p := b.now()
		if p.writeEvery > 0 {
			time.Sleep(p.writeEvery)
		}
		if _, err := c.Write(block[:min(max(p.writeChunk, 1), len(block))]); err != nil {
			return
		}
	}
}

// drain reads until an error.
func (b *behavior) drain(c net.Conn) {
	block := make([]byte, wholeChunk)
	for {
		p := b.now()
		if p.readEvery > 0 {
			time.Sleep(p.readEvery)
		}
		if _, err := c.Read(block[:min(max(p.readChunk, 1), len(block))]); err != nil {
			return
		}
	}
}

const question = 200 // bytes

// ask sends questions and reads answers of a size until an error.
func (b *behavior) ask(c net.Conn, answer int) {
	block := make([]byte, max(answer, question))
	for {
		if p := b.now(); p.writeEvery > 0 {
			time.Sleep(p.writeEvery)
		}
		if _, err := c.Write(block[:question]); err != nil {
			return
		}
		if _, err := io.ReadFull(c, block[:answer]); err != nil {
			return
		}
	}
}

// answer answers questions until an error.
func (b *behavior) answer(c net.Conn, answer int) {
	block := make([]byte, max(answer, question))
	for {
		if _, err := io.ReadFull(c, block[:question]); err != nil {
			return
		}
		if p := b.now(); p.writeEvery > 0 {
			time.Sleep(p.writeEvery)
		}
		if _, err := c.Write(block[:answer]); err != nil {
			return
		}
	}
}

// A pair is both sides of one session.
type pair struct {
	fault            *Fault
	client, endpoint behavior
}

// healthy is the traffic without the fault.
func (p *pair) healthy() {
	whole := pace{readChunk: wholeChunk, writeChunk: wholeChunk / 4}
	p.client.set(whole)
	p.endpoint.set(whole)
}

// slow makes the fault, if it is one of a program.
func (p *pair) slow() {
	f, side := p.fault, &p.endpoint
	if f.Client {
		side = &p.client
	}
	now := side.now()
	switch f.Cause {
	case SlowReader, LongReader:
		now.readChunk = f.Chunk
		now.readEvery = time.Duration(float64(f.Chunk) / f.Strength / 1e6 * float64(time.Second))
	case SlowSender, LongSender:
		now.writeChunk, now.writeEvery = f.Chunk, f.period()
	case SlowAnswer, LongAnswer:
		now.writeEvery = f.period()
	case Idle:
		side = &p.client
		now = side.now()
		now.writeEvery = f.period()
	default:
		return
	}
	side.set(now)
}

// Bytes of the opening of a session that is to leave user space. They are answered: nothing is asked for after it.
const (
	ping = byte('p')
	goOn = byte('g')
)

// opening has both sides exchange a byte now and then until left says that the session has left user space.
func (p *pair) opening(c net.Conn, left func() bool) error {
	var answer [1]byte
	for !left() {
		if _, err := c.Write([]byte{ping}); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, answer[:]); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := c.Write([]byte{goOn}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, answer[:])
	return err
}

// answerOpening is the endpoint's side of it.
func answerOpening(c net.Conn) error {
	for b := [1]byte{}; ; {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if _, err := c.Write(b[:]); err != nil || b[0] == goOn {
			return err
		}
	}
}

// serve is the endpoint's side of a connection.
func (p *pair) serve(c net.Conn) {
	defer c.Close()
	if p.fault.Lane && answerOpening(c) != nil {
		return
	}
	switch {
	case p.fault.Requests:
		p.endpoint.answer(c, p.fault.Chunk)
	case p.fault.Upload:
		p.endpoint.drain(c)
	default:
		var first [1]byte
		if _, err := io.ReadFull(c, first[:]); err == nil {
			p.endpoint.stream(c)
		}
	}
}

// use is the client's side.
func (p *pair) use(c net.Conn) {
	switch {
	case p.fault.Requests:
		p.client.ask(c, p.fault.Chunk)
	case p.fault.Upload:
		p.client.stream(c)
	default:
		if _, err := c.Write([]byte{1}); err == nil {
			p.client.drain(c)
		}
	}
}
