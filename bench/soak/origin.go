package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/service"
)

// origin accepts the connections from the proxy.
type origin struct {
	s       *soak
	address string
	mu      sync.Mutex
	changed sync.Cond // of mu
	serving int       // of mu; connections
	probes  int       // of mu; connections of its own that it has accepted
}

// listen returns the origin of s and its listener. Sockets that it accepts take
// urgent bytes with the others, and lose none of them.
func (s *soak) listen(ctx context.Context) (*origin, net.Listener, error) {
	cfg := net.ListenConfig{Control: options{probes: s.probes()}.set, KeepAlive: -1}
	l, err := cfg.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	o := &origin{s: s, address: l.Addr().String()}
	o.changed.L = &o.mu
	return o, l, nil
}

func (o *origin) serve(ctx context.Context, l net.Listener) error {
	return service.Serve(ctx, l, o.handle)
}

func (o *origin) note(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	o.changed.Broadcast()
}

// handle finds out which connection it is, and drives its end.
func (o *origin) handle(ctx context.Context, conn *net.TCPConn) {
	o.note(func() { o.serving++ })
	defer o.note(func() { o.serving-- })
	r := o.s.round.Load()
	_ = conn.SetReadDeadline(time.Now().Add(o.s.Patience + o.s.Longest))
	buf := make([]byte, greeting)
	n, err := io.ReadFull(conn, buf)
	if err != nil {
		r.stranger(n, err)
		return
	}
	i, err := parseGreeting(buf)
	switch {
	case err != nil:
		o.s.violate(fmt.Sprintf("server: %v", err))
	case i.round == 0:
		o.note(func() { o.probes++ })
	default:
		r.attach(ctx, i, conn)
	}
}

// settle waits until the origin has accepted all connections made to it before the call, and
// serves none any more. For that it connects to itself: accept queues are in order.
func (o *origin) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.s.Patience, errors.New("connections that the origin holds are not over"))
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", o.address)
	if err != nil {
		return err
	}
	defer c.Close()
	o.mu.Lock()
	before := o.probes
	o.mu.Unlock()
	if _, err := c.Write(id{}.greet()); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { o.note(func() {}) })()
	o.mu.Lock()
	defer o.mu.Unlock()
	for (o.probes == before || o.serving > 0) && ctx.Err() == nil {
		o.changed.Wait()
	}
	return context.Cause(ctx)
}
