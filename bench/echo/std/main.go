// Std is an echo server on the standard library: a goroutine for each
// connection.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/penstock/penstock/bench/echo/part"
)

// bufferSize is the buffer of each connection, in bytes: more than any message.
const bufferSize = 16 << 10

func main() {
	l, err := net.Listen("tcp", part.Address)
	if err == nil {
		err = part.Listening(l.Addr().String())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "std:", err)
		os.Exit(1)
	}
	go accept(l)
	part.Wait()
}

// accept serves every connection until the process ends.
func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "std:", err)
			os.Exit(1)
		}
		go echo(c)
	}
}

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
