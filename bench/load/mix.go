package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/penstock/penstock/bench/traffic"
)

// How many connections each behaviour of a Mix has at once, and their parameters.
const (
	mixShort, mixBulk, mixChat, mixIdle, mixAbrupt = 4, 2, 32, 200, 2

	chatSize    = 256
	chatPause   = 10 * time.Millisecond // on average
	abruptSize  = 64 << 10
	abruptPause = 5 * time.Millisecond
	// failPause keeps a proxy that refuses from being asked all the time.
	failPause = 20 * time.Millisecond
)

// mix is a Mix under way.
type mix struct {
	r       *Runner
	ctx     context.Context
	address string
	until   time.Time
}

// class is a Class that is being counted.
type class struct {
	r       Runner // counts the bytes of this class
	mu      sync.Mutex
	Class                           // of mu
	latency *hdrhistogram.Histogram // of mu; nanoseconds
}

// mix runs all behaviours at once. Every step of every connection is bounded, so
// it ends whatever the proxy does.
func (r *Runner) mix(ctx context.Context, p Plan) (Result, error) {
	start := time.Now()
	m := &mix{r: r, ctx: ctx, address: p.Address, until: start.Add(p.Duration)}
	behaviours := []struct {
		name string
		n    int
		run  func(*mix, *class)
	}{
		{"short", mixShort, (*mix).short},
		{"bulk", mixBulk, (*mix).bulk},
		{"chat", mixChat, (*mix).chat},
		{"idle", mixIdle, (*mix).sleep},
		{"abrupt", mixAbrupt, (*mix).abrupt},
	}
	classes := make([]*class, len(behaviours))
	var all sync.WaitGroup
	for i, b := range behaviours {
		c := &class{Class: Class{Name: b.name}, latency: hdrhistogram.New(1, longestLatency, latencyDigits)}
		classes[i] = c
		for range b.n {
			all.Go(func() { b.run(m, c) })
		}
	}
	all.Wait()
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	return m.sum(classes, time.Since(start)), nil
}

// sum adds up the classes.
func (m *mix) sum(classes []*class, elapsed time.Duration) Result {
	result := Result{Elapsed: elapsed}
	for _, c := range classes {
		sent, received := c.r.sent.Load(), c.r.received.Load()
		m.r.sent.Add(sent)
		m.r.received.Add(received)
		c.BytesPerSecond = float64(sent+received) / elapsed.Seconds()
		c.P50 = time.Duration(c.latency.ValueAtQuantile(50))
		c.P99 = time.Duration(c.latency.ValueAtQuantile(99))
		result.Failed += c.Failed
		if c.Name == "chat" {
			result.Requests += c.Done
		} else {
			result.Connections += c.Done
		}
		result.Classes = append(result.Classes, c.Class)
	}
	return result
}

// done counts one that went well, and how long it took, if that is above 0.
func (c *class) done(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Done++
	if took > 0 {
		_ = c.latency.RecordValue(min(int64(took), longestLatency))
	}
}

// failed counts one that did not, and waits a little.
func (m *mix) failed(c *class, err error) {
	if m.ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	c.Failed++
	if c.Said == "" {
		c.Said = err.Error()
	}
	c.mu.Unlock()
	m.pause(failPause)
}

// going reports whether the time is not over.
func (m *mix) going() bool { return m.ctx.Err() == nil && time.Now().Before(m.until) }

// pause waits for d, or until the time is over.
func (m *mix) pause(d time.Duration) {
	select {
	case <-time.After(min(d, time.Until(m.until))):
	case <-m.ctx.Done():
	}
}

// with connects, calls f, and closes. All of it has to be over grace after the
// beginning, or after extra if that is later.
func (m *mix) with(c *class, extra time.Duration, f func(*talk) error) error {
	deadline := time.Now().Add(extra + m.r.grace()/2)
	t, err := c.r.dialTalk(m.ctx, m.address, deadline, 0)
	if err != nil {
		return fmt.Errorf("connecting: %w", said(err))
	}
	defer t.Close()
	defer context.AfterFunc(m.ctx, func() { _ = t.Close() })()
	return f(t)
}

// again does f as long as the time lasts, and counts.
func (m *mix) again(c *class, pause time.Duration, f func() error) {
	for m.going() {
		start := time.Now()
		if err := f(); err != nil {
			m.failed(c, err)
			continue
		}
		c.done(time.Since(start))
		if pause > 0 {
			m.pause(pause)
		}
	}
}

// short connects, asks, has the answer, sees the server close.
func (m *mix) short(c *class) {
	m.again(c, 0, func() error {
		return m.with(c, 0, func(t *talk) error { return t.once(m.r.nextSeed(), 64+rand.IntN(4000)) })
	})
}

// abrupt connects, has some of an endless answer, and resets.
func (m *mix) abrupt(c *class) {
	m.again(c, abruptPause, func() error {
		return m.with(c, 0, func(t *talk) error {
			seed := m.r.nextSeed()
			if _, err := t.Write(traffic.AppendBulk(nil, seed)); err != nil {
				return fmt.Errorf("sending: %w", said(err))
			}
			err := t.download(traffic.NewStream(seed), abruptSize, 0)
			t.reset()
			return err
		})
	})
}

// left is the time that is left.
func (m *mix) left() time.Duration { return max(time.Until(m.until), 0) }

// bulk downloads until the time is over.
func (m *mix) bulk(c *class) {
	for m.going() {
		if err := m.with(c, m.left(), m.download); err != nil {
			m.failed(c, err)
			continue
		}
		c.done(0)
	}
}

// download takes a bulk stream until the time is over, then ends it.
func (m *mix) download(t *talk) error {
	seed := m.r.nextSeed()
	if _, err := t.Write(traffic.AppendBulk(nil, seed)); err != nil {
		return fmt.Errorf("sending: %w", said(err))
	}
	content, got := traffic.NewStream(seed), int64(0)
	for ; m.going(); got += talkSize {
		if err := t.download(content, talkSize, 0); err != nil {
			return err
		}
	}
	if err := t.CloseWrite(); err != nil {
		return fmt.Errorf("ending: %w", said(err))
	}
	rest, err := io.ReadAll(t)
	last := len(rest) - traffic.TrailerSize
	switch {
	case err != nil:
		return fmt.Errorf("after the end: %w", said(err))
	case last < 0 || traffic.ParseTrailer(rest[last:]) != got+int64(last):
		return errTruncated
	case !content.Check(rest[:last]):
		return errMismatch
	}
	return nil
}

// chat sends small messages with pauses, on one connection as long as it lives.
func (m *mix) chat(c *class) {
	for m.going() {
		if err := m.with(c, m.left(), func(t *talk) error { return m.converse(t, c) }); err != nil {
			m.failed(c, err)
		}
	}
}

// converse is one chat. Each message has a deadline of its own.
func (m *mix) converse(t *talk, c *class) error {
	content, back := traffic.NewStream(m.r.nextSeed()), make([]byte, chatSize)
	for m.going() {
		took, err := m.message(t, content, back)
		if err != nil {
			return err
		}
		c.done(took)
		m.pause(rand.N(2 * chatPause))
	}
	if err := t.CloseWrite(); err != nil {
		return fmt.Errorf("ending: %w", said(err))
	}
	return t.finish()
}

// message has the next bytes of content echoed.
func (m *mix) message(t *talk, content *traffic.Stream, back []byte) (time.Duration, error) {
	start := time.Now()
	if err := t.SetDeadline(start.Add(m.r.grace() / 2)); err != nil {
		return 0, err
	}
	b := content.Next(len(back))
	if _, err := t.Write(b); err != nil {
		return 0, fmt.Errorf("sending a message: %w", said(err))
	}
	if _, err := io.ReadFull(t, back); err != nil {
		return 0, fmt.Errorf("waiting for a message: %w", said(err))
	}
	if !bytes.Equal(back, b) {
		return 0, errMismatch
	}
	return time.Since(start), nil
}

// sleep is a connection that is quiet, and alive at the end.
func (m *mix) sleep(c *class) {
	err := m.with(c, m.left(), func(t *talk) error {
		content, back := traffic.NewStream(m.r.nextSeed()), make([]byte, chatSize)
		if _, err := m.message(t, content, back); err != nil {
			return err
		}
		m.pause(m.left())
		if _, err := m.message(t, content, back); err != nil {
			return fmt.Errorf("after it was idle: %w", err)
		}
		if err := t.CloseWrite(); err != nil {
			return fmt.Errorf("ending: %w", said(err))
		}
		return t.finish()
	})
	if err != nil {
		m.failed(c, err)
		return
	}
	c.done(0)
}
