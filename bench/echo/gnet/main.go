// Gnet is an echo server on github.com/panjf2000/gnet, with a loop for each
// processor (its Multicore) and otherwise its default settings.
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"

	"github.com/penstock/penstock/bench/echo/part"
)

func main() {
	var handler gnet.EventHandler = new(echo)
	if part.Is("hello") {
		handler = new(hello)
	}
	err := gnet.Run(handler, "tcp://"+part.Address, gnet.WithMulticore(true), gnet.WithLogger(logger{}))
	if err != nil {
		fmt.Fprintln(os.Stderr, "gnet:", err)
		os.Exit(1)
	}
}

// server starts and stops.
type server struct{ gnet.BuiltinEventEngine }

// OnBoot says where it listens, which gnet knows by a descriptor only.
func (s *server) OnBoot(e gnet.Engine) gnet.Action {
	address, err := listening(e)
	if err == nil {
		err = part.Listening(address)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gnet:", err)
		return gnet.Shutdown
	}
	go func() {
		part.Wait()
		_ = e.Stop(context.Background())
	}()
	return gnet.None
}

// listening returns the engine's address.
func listening(e gnet.Engine) (string, error) {
	fd, err := e.Dup()
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// logger leaves standard output to the one line that is expected there, and writes errors to
// standard error. A client's end is not logged.
type logger struct{}

func (logger) Debugf(string, ...any) {}
func (logger) Infof(string, ...any)  {}
func (logger) Warnf(string, ...any)  {}

func (logger) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "gnet: "+format+"\n", args...)
}

func (l logger) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	os.Exit(1)
}
