package main

import "net"

// echo sends back all bytes received on c, which it owns.
func echo(c net.Conn) {
	defer c.Close()
	buf := make([]byte, bufferSize)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}
