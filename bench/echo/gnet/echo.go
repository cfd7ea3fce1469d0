package main

import "github.com/panjf2000/gnet/v2"

// echo handles the events of every connection.
type echo struct{ server }

// OnTraffic sends back all received bytes.
func (*echo) OnTraffic(c gnet.Conn) gnet.Action {
	in, err := c.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := c.Write(in); err != nil {
		return gnet.Close
	}
	return gnet.None
}
