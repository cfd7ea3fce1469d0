package soak

import (
	"fmt"
	"strings"
	"time"
)

// role is one end of a connection.
type role int

const (
	client role = iota
	server
)

func (r role) other() role { return 1 - r }

func (r role) String() string { return [2]string{"client", "server"}[r] }

// plan is the behaviour of the two ends of a connection.
type plan struct {
	id     id
	silent bool // the client sends nothing, not even its number, so the server knows no plan
	parts  [2]part
}

// exact reports whether all bytes must arrive.
func (p *plan) exact() bool {
	return !p.parts[client].end.how.rough() && !p.parts[server].end.how.rough()
}

// part is the behaviour of one end.
type part struct {
	sends  []send
	total  int64 // bytes of all sends; the client's greeting is not among them
	read   reading
	socket options
	end    ending
}

// send is bytes to send, after some condition and a pause.
type send struct {
	await    int64 // so many bytes of the other end's must have come
	awaitEnd bool  // the other end's end of file must have come
	pause    time.Duration
	n        int64
	piece    int  // how many in one call
	urgent   bool // n is 1, by MSG_OOB
}

// reading is how an end receives.
type reading struct {
	size   int // of its buffer
	stalls []stall
}

// stall is not to read for a while, once so many bytes have come.
type stall struct {
	at int64
	d  time.Duration
}

// options are of the socket; 0 is the kernel's choice.
type options struct {
	sendBuffer, receiveBuffer int  // SO_SNDBUF, SO_RCVBUF
	segment                   int  // TCP_MAXSEG
	nagle                     bool // no TCP_NODELAY
	probes                    int  // seconds between keepalive probes, see soak.probes; 0: none
}

// how is the way in which an end ends.
type how int

const (
	finish     how = iota // an end of file after the last byte, and close after the other's
	quietReset            // a reset once everything has arrived at both ends
	reset                 // a reset
	shutReset             // an end of file after the last byte, then a reset
	leave                 // close, with or without bytes unread
)

var hows = [...]string{"end of file", "reset once all had arrived", "reset", "reset after its end of file", "close"}

func (h how) String() string { return hows[h] }

// rough reports whether bytes may be lost by it.
func (h how) rough() bool { return h >= reset }

// ending is how and when an end ends: after so many bytes sent and received, and a pause. The
// bytes are of the parts' sends, without the greeting.
type ending struct {
	how            how
	sent, received int64
	pause          time.Duration
}

// length is an upper bound of all pauses together.
func (p *plan) length() (d time.Duration) {
	for _, part := range p.parts {
		for _, s := range part.sends {
			d += s.pause
		}
		for _, s := range part.read.stalls {
			d += s.d
		}
		d += part.end.pause
	}
	return d
}

// String is one line.
func (p *plan) String() string {
	if p.silent {
		return fmt.Sprintf("a silent client, ends by %v after %v", p.parts[client].end.how, p.length())
	}
	return fmt.Sprintf("client %v; server %v", &p.parts[client], &p.parts[server])
}

// String describes the part, without the times.
func (p *part) String() string {
	var b strings.Builder
	urgent, ended := 0, ""
	for _, s := range p.sends {
		if s.urgent {
			urgent++
		}
		if s.awaitEnd {
			ended = ", some of them after the other's end"
		}
	}
	fmt.Fprintf(&b, "sends %d times %d bytes, %d urgent%s, stalls %d times, buffers %d and %d, ends by %v",
		len(p.sends), p.total, urgent, ended, len(p.read.stalls), p.socket.sendBuffer, p.socket.receiveBuffer, p.end.how)
	if p.end.how != finish {
		fmt.Fprintf(&b, " at %d sent and %d received", p.end.sent, p.end.received)
	}
	return b.String()
}
