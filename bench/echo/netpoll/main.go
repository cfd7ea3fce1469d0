// Netpoll is an echo server on github.com/cloudwego/netpoll, with its default
// settings.
package main

import (
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
	handle := echo
	if part.Is("hello") {
		handle = hello
	}
	loop, err := netpoll.NewEventLoop(handle)
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
