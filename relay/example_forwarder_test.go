package relay_test

import (
	"bytes"
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
	log.SetOutput(portless{})
	defer log.SetOutput(os.Stderr)
	origin := echoServer()
	defer origin.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	stop, signal := context.WithCancel(context.Background()) // a program: signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	served := make(chan error)
	go func() { served <- forwardAll(stop, l, origin.Addr().String()) }()
	fmt.Println(ask(l.Addr(), "water"))
	signal()
	fmt.Println(<-served)
	// Unordered output:
	// WATER
	// 127.0.0.1 {Spliced:0 Copied:5 Carried:0 Lost:0 Reason:eof Fallbacks:none} {Spliced:0 Copied:5 Carried:0 Lost:0 Reason:eof Fallbacks:none} reason=eof culprit=none first=a err=<nil>
	// <nil>
}

// portless prints lines without the port of the client, with which they begin.
type portless struct{}

func (portless) Write(line []byte) (int, error) {
	client, rest, _ := bytes.Cut(line, []byte(" "))
	host, _, err := net.SplitHostPort(string(client))
	fmt.Print(host, " ", string(rest))
	return len(line), err
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
			endpoint, err := net.DialTimeout("tcp", target, 5*time.Second)
			if err != nil {
				log.Println(client.RemoteAddr(), err)
				client.Close()
				return
			}
			res, err := r.Join(context.Background(), client, endpoint) // not stop, which would reset the session
			log.Printf("%v %+v %+v reason=%v culprit=%v first=%v err=%v", client.RemoteAddr(), res.AToB, res.BToA, res.Reason, res.Culprit, res.First, err)
		})
	}
	patience := time.AfterFunc(30*time.Second, func() { r.Close() }) // resets the sessions that are left
	// Not r.Shutdown: it refuses clients whose target is still being dialled.
	sessions.Wait()
	if !patience.Stop() {
		return errors.New("not all sessions ended in time")
	}
	return r.Close()
}
