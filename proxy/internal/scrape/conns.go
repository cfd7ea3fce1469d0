package scrape

import (
	"net"
	"sync"
)

// acceptedConns is a [net.Listener] of connections that were accepted elsewhere.
type acceptedConns struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newAcceptedConns() *acceptedConns {
	return &acceptedConns{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// put passes a connection to Accept.
func (a *acceptedConns) put(conn net.Conn) {
	select {
	case a.conns <- conn:
	case <-a.closed:
		conn.Close()
	}
}

// Accept returns the next connection.
func (a *acceptedConns) Accept() (net.Conn, error) {
	select {
	case conn := <-a.conns:
		return conn, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

// Close stops accepting.
func (a *acceptedConns) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// Addr implements [net.Listener].
func (a *acceptedConns) Addr() net.Addr { return &net.TCPAddr{} }

// A countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (c *countedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
