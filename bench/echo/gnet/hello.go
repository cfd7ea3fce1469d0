package main

import (
	"github.com/panjf2000/gnet/v2"

	"github.com/penstock/penstock/bench/echo/part"
)

// hello handles the events of every connection.
type hello struct{ server }

// OnTraffic answers the received requests.
func (*hello) OnTraffic(c gnet.Conn) gnet.Action {
	for {
		in, err := c.Peek(-1)
		if err != nil {
			return gnet.Close
		}
		n := part.Request(in)
		if n == 0 {
			return gnet.None
		}
		if _, err := c.Discard(n); err != nil {
			return gnet.Close
		}
		if _, err := c.Write(part.Response); err != nil {
			return gnet.Close
		}
	}
}
