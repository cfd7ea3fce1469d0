package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/relay"
)

// A forwarder with an idle limit, a line for each session, and an orderly end.
func Example_forwarder() {
	log.SetFlags(0)
	log.SetOutput(os.Stdout)
	defer log.SetOutput(os.Stderr)
	origin := echoServer()
	defer origin.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	stop, signal := context.WithCancel(context.Background()) // a program: signal.NotifyContext(ctx, syscall.SIGTERM)
	served := make(chan error)
	go func() { served <- forwardAll(stop, l, origin.Addr().String()) }()
	fmt.Println(ask(l.Addr(), "water"))
	signal()
	fmt.Println(<-served)
	// Unordered output:
	// WATER
	// {Spliced:0 Copied:5 Carried:0 Lost:0 Reason:eof Fallbacks:none} {Spliced:0 Copied:5 Carried:0 Lost:0 Reason:eof Fallbacks:none} reason=eof err=<nil>
	// <nil>
}

// forwardAll forwards the connections of l to target until stop ends.
func forwardAll(stop context.Context, l net.Listener, target string) error {
	r, err := relay.New(&relay.Config{IdleTimeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	context.AfterFunc(stop, func() { l.Close() })
	var sessions sync.WaitGroup
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			break // stop has ended
		}
		if err != nil {
			log.Println(err) // for example no free descriptor (EMFILE), which passes
			time.Sleep(100 * time.Millisecond)
			continue
		}
		sessions.Go(func() {
			endpoint, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(stop, "tcp", target)
			if err != nil {
				log.Println(err)
				client.Close()
				return
			}
			res, err := r.Join(context.Background(), client, endpoint) // not stop, which would reset the session
			log.Printf("%+v %+v reason=%v err=%v", res.AToB, res.BToA, res.Reason, err)
		})
	}
	patience, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = r.Shutdown(patience)
	r.Close() // resets the sessions that are left
	sessions.Wait()
	return err
}
