package core

import (
	"net/netip"

	"github.com/penstock/penstock/proxy/header"
	"github.com/penstock/penstock/proxy/hello"
	"github.com/penstock/penstock/proxy/source"
)

// A Client is what is known of a client until it is joined. It is used again for
// others, so nobody keeps it; but for its Waker it belongs to the loop's goroutine.
type Client struct {
	// Hello is what its ClientHello says, where [Preread.Hello] is set.
	Hello hello.Info
	// Header is what its PROXY header says; its Version is 0 if there was none.
	Header header.Info
	// Ticket is the [Admitter]'s, who gets it back when the client has left. It is kept
	// outside of the session: it costs nothing where it is nil.
	Ticket any

	listening   *Listening
	fd          int // borrowed; negative: there is none to be asked
	tcp         bool
	asked       [2]bool
	peer        source.Source // of TCP from the beginning, of a unix socket once it was asked for
	destination netip.AddrPort
	original    netip.AddrPort // where fd cannot be asked any more; invalid: as destination
	wakes       wakeable
	use         uint64
}

// NewClient returns a client with known addresses, for those who have none of a loop.
func NewClient(peer source.Source, destination netip.AddrPort) *Client {
	return &Client{fd: -1, peer: peer, destination: destination}
}

// Source returns where the client comes from: the address of its PROXY header if that has
// told one, otherwise the connection's other end.
func (c *Client) Source() source.Source {
	if c.Header.Known() {
		return source.TCP(c.Header.Source)
	}
	return c.Peer()
}

// Destination returns the address that the client has connected to: that of its PROXY
// header if that has told one, otherwise that of the connection's own end, which is the
// original one where TPROXY has brought it. It is not valid for a unix socket.
func (c *Client) Destination() netip.AddrPort {
	if c.Header.Known() {
		return c.Header.Destination
	}
	return c.Local()
}

// Local returns the address of the connection's own end, whatever a header says; it is not valid
// for a unix socket.
func (c *Client) Local() netip.AddrPort {
	if c.tcp && c.ask(askedLocal) {
		c.destination = localOf(c.fd)
	}
	return c.destination
}

// Original returns the address that the client has connected to before a NAT rule of
// this machine redirected it, and that of the connection's own end if there was none,
// whatever a header says: a client may write any address into that.
func (c *Client) Original() netip.AddrPort {
	if c.fd >= 0 && c.tcp {
		if at := originalOf(c.fd); at.IsValid() {
			return at
		}
	}
	if c.original.IsValid() {
		return c.original
	}
	return c.Local()
}

// leave asks for every address while the descriptor is there, which is about to be
// somebody else's.
func (c *Client) leave() {
	c.Peer()
	c.Local()
	c.original = c.Original()
	c.fd = -1
}

// Peer returns the connection's other end, whatever a header says. A client of TCP has come
// with its address; for the credentials of one of a unix socket the kernel is asked the first
// time, so who does not need to know them does not ask.
func (c *Client) Peer() source.Source {
	if !c.tcp && c.ask(askedPeer) {
		c.peer = unixPeerOf(c.fd)
	}
	return c.peer
}

// What the kernel is asked for.
const (
	askedPeer = iota
	askedLocal
)

// ask reports whether something has to be asked for, which it is once.
func (c *Client) ask(which int) bool {
	if c.asked[which] || c.fd < 0 {
		return false
	}
	c.asked[which] = true
	return true
}

// Listening returns where the client came in; nil for one that was made by NewClient.
func (c *Client) Listening() *Listening { return c.listening }

// Waker returns what ends the client's parking.
func (c *Client) Waker() Waker { return Waker{c.wakes, c.use} }

// keptTLVs is how much memory a client's header leaves to the next.
const keptTLVs = 512

// reset makes c that of nobody.
func (c *Client) reset() {
	c.Header.Reset()
	if cap(c.Header.TLVs) > keptTLVs {
		c.Header.TLVs = nil
	}
	*c = Client{Header: c.Header, wakes: c.wakes, fd: -1}
}

// A Waker ends the parking of one client, see [Park]. It may be kept for as long as
// anybody likes: when the client is not parked any more, or not there, it does nothing.
// It is comparable; the zero value wakes nobody.
type Waker struct {
	to  wakeable
	use uint64
}

// Wake has the client's [Search] asked what to do next, soon, on its loop. It may be
// called by any goroutine at any time, and does not wait.
func (w Waker) Wake() {
	if w.to != nil {
		w.to.wake(w.use)
	}
}

// HungUp reports whether the client has closed its connection both ways, so that it waits for
// no answer, though it has left bytes that an endpoint may still get. It is known of unix sockets
// alone: of TCP such a client looks like one that only sends no more. It may be called by any
// goroutine.
func (w Waker) HungUp() bool { return w.to != nil && w.to.hungUp(w.use) }

// wakeable is who can be parked. use tells one client from others.
type wakeable interface {
	wake(use uint64)
	hungUp(use uint64) bool
}
