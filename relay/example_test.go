package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/relay"
)

// echoServer answers every connection with what it sends, in capitals.
func echoServer() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			_, _ = io.WriteString(c, strings.ToUpper(string(b)))
			_ = c.Close()
		}
	}()
	return l
}

// ask sends a line to addr, ends its side and returns the answer.
func ask(addr net.Addr, line string) string {
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, line)
	_ = c.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(c)
	return string(answer)
}

// A proxy for one connection: accept, dial, join.
func ExampleRelay_Join() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()

	r, err := relay.New(&relay.Config{IdleTimeout: time.Hour, HalfCloseTimeout: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		client, _ := l.Accept()
		endpoint, _ := net.Dial("tcp", origin.Addr().String())
		res, err := r.Join(context.Background(), client, endpoint) // closes both
		fmt.Println(res.Reason, res.AToB.Bytes(), res.BToA.Bytes(), res.AToB.Lost+res.BToA.Lost, err)
	}()

	answer := ask(l.Addr(), "hello")
	<-done
	fmt.Println(answer)
	// Output:
	// eof 5 5 0 <nil>
	// HELLO
}

// A meter counts the bytes of a connection while they are spliced beneath it, which a wrapper with a Read of its own would prevent.
func ExampleMetered() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()

	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		client, _ := l.Accept()
		endpoint, _ := net.Dial("tcp", origin.Addr().String())
		var m relay.Meter
		res, err := r.Join(context.Background(), relay.Metered(client, &m), endpoint)
		read, written := m.Bytes()
		fmt.Println(read, written, res.AToB.Fallbacks[relay.FallbackWrapped], err)
	}()

	answer := ask(l.Addr(), "hello")
	<-done
	fmt.Println(answer)
	// Output:
	// 5 5 0 <nil>
	// HELLO
}

// The bytes that a bufio.Reader has read ahead go first, and the rest without it.
func ExampleBuffered() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()

	done := make(chan struct{})
	go func() {
		defer close(done)
		client, _ := l.Accept()
		ahead := bufio.NewReader(client)
		name, _ := ahead.ReadString('\n')
		endpoint, _ := net.Dial("tcp", origin.Addr().String())
		res, err := relay.Join(context.Background(), relay.Buffered(client, ahead), endpoint)
		fmt.Printf("%q %d %v\n", name, res.AToB.Bytes(), err)
	}()

	answer := ask(l.Addr(), "name\nhello")
	<-done
	fmt.Println(answer)
	// Output:
	// "name\n" 5 <nil>
	// HELLO
}

// A session can be watched while it runs, from any goroutine.
func ExampleRelay_NewSession() {
	r, err := relay.New(&relay.Config{Engine: relay.EngineCopy})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	clientEnd, client := net.Pipe() // of a type that relay does not know
	endpoint, endpointEnd := net.Pipe()
	s := r.NewSession(client, endpoint)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _, _ = s.Run(ctx); close(ended) }()

	_, _ = io.WriteString(clientEnd, "ping")
	_, _ = io.ReadFull(endpointEnd, make([]byte, 4))
	stop()
	<-ended
	res := s.Result()
	fmt.Println(res.Reason, res.AToB.Copied)
	for reason, n := range res.AToB.Fallbacks.All() {
		fmt.Println(reason, n)
	}
	// Output:
	// canceled 4
	// wrapped 1
}

// Copy and CopyN stand in for io.Copy and io.CopyN.
func ExampleRelay_Copy() {
	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	n, err := r.Copy(os.Stdout, strings.NewReader("moved\n"))
	fmt.Println(n, err)
	// Output:
	// moved
	// 6 <nil>
}

func ExampleRelay_CopyN() {
	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	n, err := r.CopyN(io.Discard, strings.NewReader("abc"), 5)
	fmt.Println(n, err)
	// Output: 3 EOF
}

// Move is Copy, and tells how the bytes went.
func ExampleRelay_Move() {
	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	f, err := r.Move(io.Discard, strings.NewReader("abc"))
	fmt.Println(f.Copied, f.Spliced, f.Reason, err)
	// Output: 3 0 eof <nil>
}

// Several relays share one pool of pipes, for all pipes of a user count against
// one quota.
func ExampleNew_pipes() {
	pipes, err := pipe.NewPool(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pipes.Close()
	short, err := relay.New(&relay.Config{Pipes: pipes, IdleTimeout: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer short.Close()
	long, err := relay.New(&relay.Config{Pipes: pipes, IdleTimeout: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer long.Close()
	fmt.Println(short.Stats().Pipes.Leased, long.Stats().Pipes.Leased)
	// Output: 0 0
}

// named is a connection with a name. It adds nothing to the bytes, so relay may move them beneath it.
type named struct {
	*net.TCPConn
	name string
}

func (n *named) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return n.TCPConn, nil, nil
}
func (n *named) RelayWriter() io.Writer { return n.TCPConn }

func ExampleUnwrapper() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	done := make(chan relay.Result)
	go func() {
		c, _ := l.Accept()
		endpoint, _ := net.Dial("tcp", origin.Addr().String())
		res, _ := r.Join(context.Background(), &named{c.(*net.TCPConn), "first"}, endpoint)
		done <- res
	}()
	fmt.Println(ask(l.Addr(), "hello"))
	res := <-done
	fmt.Println("fallbacks:", res.AToB.Fallbacks[relay.FallbackWrapped])
	// Output:
	// HELLO
	// fallbacks: 0
}

// The beginning of a connection was read, say to look at a TLS server name: the other end gets it all
// the same, and what follows is moved beneath.
func ExamplePrefixed() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, _ := l.Accept()
		head := make([]byte, 3)
		_, _ = io.ReadFull(c, head)
		endpoint, _ := net.Dial("tcp", origin.Addr().String())
		_, _ = r.Join(context.Background(), relay.Prefixed(c, head), endpoint)
	}()
	fmt.Println(ask(l.Addr(), "hello"))
	<-done
	// Output: HELLO
}

// All connections of a listener share a rate, and each is held to less.
func ExampleSession_Limit() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	limits := &relay.Limits{
		IdleTimeout:   time.Hour,
		FirstByte:     3 * time.Second,
		Bandwidth:     relay.NewBucket(100<<20, 0),
		PerConnection: relay.Rates{Both: 10 << 20},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, _ := l.Accept()
		endpoint, _ := net.Dial("tcp", origin.Addr().String())
		s := r.NewSession(c, endpoint)
		s.Limit(limits)
		_, _ = s.Run(context.Background())
	}()
	fmt.Println(ask(l.Addr(), "hello"))
	<-done
	// Output: HELLO
}

func ExampleParseEngine() {
	e, err := relay.ParseEngine("splice")
	fmt.Println(e, err)
	_, err = relay.ParseEngine("fast")
	fmt.Println(err)
	// Output:
	// splice <nil>
	// unknown engine "fast": write auto, splice or copy
}

// Code that says io.Copy stays as it is: the connection that it is given splices.
func ExampleWrap() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	go func() {
		c, _ := l.Accept()
		client := relay.Wrap(c)
		endpoint, _ := net.Dial("tcp", origin.Addr().String())
		go func() {
			_, _ = io.Copy(endpoint, client)
			_ = endpoint.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(client, endpoint)
		_, _ = client.Close(), endpoint.Close()
	}()
	fmt.Println(ask(l.Addr(), "hello"))
	// Output: HELLO
}

// One line joins two connections.
func ExampleJoin() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	go func() {
		client, _ := l.Accept()
		endpoint, _ := net.Dial("tcp", origin.Addr().String())
		_, _ = relay.Join(context.Background(), client, endpoint) // closes both
	}()
	fmt.Println(ask(l.Addr(), "hello"))
	// Output: HELLO
}
