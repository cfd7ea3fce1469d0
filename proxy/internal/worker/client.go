package worker

import (
	"net/netip"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
)

// A Client is the known properties of a client until it is joined. It is used again for
// others, so it must not be kept; but for its Waker it belongs to the loop's goroutine.
type Client struct {
	// Hello is the contents of its ClientHello, where [Preread.Hello] is set, or First needs it.
	Hello clienthello.Info
	// First is what its first bytes have shown, where [Preread.First] is set.
	First firstbytes.Facts
	// Header is the contents of its PROXY header; its Version is 0 if there was none.
	Header proxyproto.Info
	// Looked is the client's first bytes, after [Look], during the next call of [Search.Next] alone, and
	// LookedEnded says that no more come.
	Looked      []byte
	LookedEnded bool
	// Postgres is what it has said by the protocol of PostgreSQL, where [Preread.Postgres] is set.
	Postgres PostgresClient
	// AdmissionToken is the [Admitter]'s, which gets it back when the client has left; 0: none. It is a number, for
	// every session that rests keeps one.
	AdmissionToken uint64
	// Record is the course of the client so far; nil: none is kept. Its methods may be called
	// all the same.
	Record *record.Record

	listening   *Listening
	loop        int
	fd          int // borrowed; negative: there is none to be asked
	tcp         bool
	asked       [2]bool
	peer        source.Source // of TCP from the beginning, of a unix socket once it was asked for
	destination netip.AddrPort
	original    netip.AddrPort // where fd cannot be asked any more; invalid: as destination
	wakes       wakeable
	use         uint64
}

// NewClient returns a client with known addresses, for callers without a loop.
func NewClient(peer source.Source, destination netip.AddrPort) *Client {
	return &Client{fd: -1, peer: peer, destination: destination}
}

// Source returns where the client comes from: the address of its PROXY header if that has one,
// otherwise the connection's other end.
func (c *Client) Source() source.Source {
	if c.Header.Known() {
		return source.TCP(c.Header.Source)
	}
	return c.Peer()
}

// Destination returns the address that the client has connected to: that of its PROXY header
// if that has one, otherwise that of the connection's own end, which is the original one where
// TPROXY has brought it. It is not valid for a unix socket.
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

// leave asks for every address while the descriptor is there, which is about to be another
// owner's.
func (c *Client) leave() {
	c.Peer()
	c.Local()
	c.original = c.Original()
	c.fd = -1
}

// Peer returns the connection's other end, whatever a header says. A client of TCP has come
// with its address; the kernel is asked for the credentials of one of a unix socket the first
// time, so only callers that need them pay for it.
func (c *Client) Peer() source.Source {
	if !c.tcp && c.ask(askedPeer) {
		c.peer = unixPeerOf(c.fd)
	}
	return c.peer
}

// Questions to the kernel.
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

// Waker returns the Waker that ends the client's parking.
func (c *Client) Waker() Waker { return Waker{c.wakes, c.use} }

// keptTLVs is how much memory a client's header leaves to the next.
const keptTLVs = 512

// reset makes c the Client of no client.
func (c *Client) reset() {
	c.Header.Reset()
	if cap(c.Header.TLVs) > keptTLVs {
		c.Header.TLVs = nil
	}
	*c = Client{Header: c.Header, wakes: c.wakes, fd: -1}
}

// A Waker ends the parking of one client, see [Park]. It may be kept for any time: when the
// client is not parked any more, or not there, it does nothing. It is comparable; the zero
// value wakes no client.
type Waker struct {
	to  wakeable
	use uint64
}

// Wake has the client's [Search] asked for its next step, soon, on its loop. It may be called
// by any goroutine at any time, and does not wait.
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

// wakeable is a client that can be parked. use distinguishes its uses.
type wakeable interface {
	wake(use uint64)
	hungUp(use uint64) bool
}

// bind makes c that of a connection.
func (c *Client) bind(l *Listening, fd int, peer netip.AddrPort) {
	c.listening, c.fd, c.tcp, c.peer = l, fd, l.TCP, source.TCP(peer)
}

func unixPeerOf(fd int) source.Source {
	peer, err := sys.PeerCredentials(fd)
	if err != nil {
		return source.Source{}
	}
	return source.Unix(source.Credentials(peer))
}

func localOf(fd int) netip.AddrPort {
	name, err := sys.LocalName(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return unmapped(name.AddrPort)
}

// originalOf asks netfilter, which knows no connection that it has not redirected.
func originalOf(fd int) netip.AddrPort {
	at, err := sys.OriginalDestination(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return unmapped(at)
}

// unmapped turns an IPv4-mapped address of an IPv6 socket into the IPv4 address.
func unmapped(at netip.AddrPort) netip.AddrPort {
	if !at.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
