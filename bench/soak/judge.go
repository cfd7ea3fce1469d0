package soak

import (
	"fmt"
	"time"
)

// faults returns the violations of a connection of which both ends are over.
func (c *pair) faults() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.ends[client]
	switch {
	case c.plan.silent:
		return note(a.heardNothing())
	case !c.attached && c.plan.exact():
		return append(note(a.odd()), "server: expected the connection, got none")
	case !c.attached:
		return note(a.odd())
	}
	for _, e := range c.ends {
		all = append(all, note(e.odd(), e.ended(), e.complete(), e.unsent())...)
	}
	return all
}

// note is those that are not empty.
func note(texts ...string) (all []string) {
	for _, t := range texts {
		if t != "" {
			all = append(all, t)
		}
	}
	return all
}

// odd returns a fault that is one whatever the plan was.
func (e *end) odd() string {
	switch {
	case e.saw == wrong:
		return fmt.Sprintf("%v: expected the bytes that the %v had sent, got others, %v", e.role, e.role.other(), e.err)
	case e.saw == failed || e.sentEnd == failed:
		return fmt.Sprintf("%v: expected no such error, got %v", e.role, e.err)
	case e.saw == late:
		return fmt.Sprintf("%v: expected bytes or an end, got nothing for %v after %d of %d bytes sent",
			e.role, e.patience.Round(time.Millisecond), e.received, e.peer().sent)
	case e.saw == aReset && e.peer().part.end.how == finish:
		return fmt.Sprintf("%v: expected no reset, got one after %d of %d bytes sent", e.role, e.received, e.peer().sent)
	case e.saw == aReset && !e.peer().torn && !e.peer().closed:
		return fmt.Sprintf("%v: expected no reset before the %v's, got one after %d bytes", e.role, e.role.other(), e.received)
	}
	return ""
}

// ended returns the fault in an end of file.
func (e *end) ended() string {
	peer := e.peer()
	switch {
	case e.saw != eof:
		return ""
	case !peer.shut && !peer.closed:
		return fmt.Sprintf("%v: expected a reset, which the %v had sent, got an end of file after %d of %d bytes sent",
			e.role, e.role.other(), e.received, peer.sent)
	case e.received != peer.sent:
		return fmt.Sprintf("%v: expected all of %d bytes before the end of file, got %d", e.role, peer.sent, e.received)
	}
	return ""
}

// complete returns the fault in the number of bytes received.
func (e *end) complete() string {
	sent := e.peer().sent
	switch {
	case e.received > sent:
		return fmt.Sprintf("%v: expected at most the %d bytes sent, got %d", e.role, sent, e.received)
	case e.pair.plan.exact() && e.saw != late && (e.received != sent || sent != e.peer().part.total+e.peer().greeted()):
		return fmt.Sprintf("%v: expected %d bytes, of which %d were sent, got %d",
			e.role, e.peer().part.total+e.peer().greeted(), sent, e.received)
	}
	return ""
}

// unsent returns the fault in the end of sending.
func (e *end) unsent() string {
	calm := e.part.end.how == finish && e.peer().part.end.how == finish
	switch {
	case e.sentEnd == late && e.saw != late:
		return fmt.Sprintf("%v: expected to send %d bytes, got rid of %d within %v", e.role, e.part.total+e.greeted(), e.sent, e.patience)
	case calm && e.sentEnd == aReset && e.saw != aReset:
		return fmt.Sprintf("%v: expected to send %d bytes, got a reset after %d", e.role, e.part.total+e.greeted(), e.sent)
	}
	return ""
}

// heardNothing returns the fault in the end of a client that sent nothing.
func (e *end) heardNothing() string {
	switch how := e.part.end.how; {
	case e.received > 0:
		return fmt.Sprintf("client: expected nothing, got %d bytes", e.received)
	case how == finish && e.saw != eof:
		return fmt.Sprintf("client: expected an end of file after its own, got %v %v", e.saw, errText(e.err))
	case how != finish && e.saw != stopped:
		return fmt.Sprintf("client: expected nothing until it ended by %v, got %v %v", how, e.saw, errText(e.err))
	}
	return ""
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
