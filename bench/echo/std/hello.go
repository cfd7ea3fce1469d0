package main

import (
	"net"

	"github.com/penstock/penstock/bench/echo/part"
)

// hello answers the requests received on c, which it owns.
func hello(c net.Conn) {
	defer c.Close()
	buf, in := make([]byte, bufferSize), 0
	for {
		n, err := c.Read(buf[in:])
		if err != nil {
			return
		}
		in += n
		for n = part.Request(buf[:in]); n > 0; n = part.Request(buf[:in]) {
			if _, err := c.Write(part.Response); err != nil {
				return
			}
			in = copy(buf, buf[n:in])
		}
	}
}
