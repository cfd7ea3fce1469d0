// Netpoll is an echo server on github.com/cloudwego/netpoll, with its default
// settings.
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/cloudwego/netpoll"

	"github.com/penstock/penstock/bench/echo/part"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "netpoll:", err)
		os.Exit(1)
	}
}

func run() error {
	l, err := net.Listen("tcp", part.Address)
	if err != nil {
		return err
	}
	loop, err := netpoll.NewEventLoop(echo)
	if err != nil {
		return err
	}
	if err := part.Listening(l.Addr().String()); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- loop.Serve(l) }()
	ended := make(chan struct{})
	go func() { part.Wait(); close(ended) }()
	select {
	case err := <-served:
		return err
	case <-ended:
		return nil
	}
}

// echo sends back all received bytes. The bytes are lent until Release, so they are copied
// into the writer's memory first.
func echo(_ context.Context, c netpoll.Connection) error {
	r, w := c.Reader(), c.Writer()
	in, err := r.Next(r.Len())
	if err != nil {
		return err
	}
	out, err := w.Malloc(len(in))
	if err != nil {
		return err
	}
	copy(out, in)
	if err := r.Release(); err != nil {
		return err
	}
	return w.Flush()
}
