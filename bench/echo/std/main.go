// Std is an echo server on the standard library: a goroutine for each
// connection.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/penstock/penstock/bench/echo/part"
)

// bufferSize is the buffer of each connection, in bytes, that of package bufio.
const bufferSize = 4 << 10

func main() {
	l, err := net.Listen("tcp", part.Address)
	if err == nil {
		err = part.Listening(l.Addr().String())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "std:", err)
		os.Exit(1)
	}
	serve := echo
	if part.Is("hello") {
		serve = hello
	}
	go accept(l, serve)
	part.Wait()
}

// accept has every connection served until the process ends.
func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "std:", err)
			os.Exit(1)
		}
		go serve(c)
	}
}
