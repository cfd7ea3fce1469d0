// Coroutine is an echo server on loop.Server, with a loop for each processor. Its handlers are coroutines, or
// with the argument callback they are called without one. With idle the coroutine ends while there is nothing.
package main

import (
	"errors"
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
	s := &loop.Server{Handle: echo, Callbacks: part.Is("callback")}
	switch {
	case part.Is("hello"):
		s.Handle = hello
	case part.Is("idle"):
		s.Handle = idle
	}
	go func() { part.Wait(); s.Close() }()
	if err := s.Serve(l); !errors.Is(err, loop.ErrServerClosed) {
		return err
	}
	return nil
}
