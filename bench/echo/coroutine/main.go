// Coroutine is an echo server whose handlers are coroutines of Penstock's loops, one loop for each
// processor.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/penstock/penstock/bench/echo/part"
	"github.com/penstock/penstock/loop"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "coroutine:", err)
		os.Exit(1)
	}
}

func run() error {
	l, err := net.Listen("tcp", part.Address)
	if err != nil {
		return err
	}
	if err := part.Listening(l.Addr().String()); err != nil {
		return err
	}
	s := &loop.Server{Handle: echo}
	go func() { part.Wait(); s.Stop() }()
	return s.Serve(l)
}

// echo sends back all bytes received on c.
func echo(c *loop.Conn) error {
	for {
		if err := c.More(); err != nil {
			return err
		}
		b, err := c.Next(len(c.Buffered()))
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}
