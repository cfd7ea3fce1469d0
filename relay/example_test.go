package relay_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

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

// through has a client ask, by way of proxy, a server that answers in capitals. proxy owns both connections.
func through(line string, proxy func(client, endpoint net.Conn)) (answer string) {
	origin := echoServer()
	defer origin.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		client, _ := l.Accept()
		endpoint, _ := net.Dial("tcp", origin.Addr().String())
		proxy(client, endpoint)
	}()
	answer = ask(l.Addr(), line)
	<-done
	return answer
}

// One line joins two connections.
func ExampleJoin() {
	fmt.Println(through("hello", func(client, endpoint net.Conn) {
		_, _ = relay.Join(context.Background(), client, endpoint) // closes both
	}))
	// Output: HELLO
}

// A relay of one's own has timeouts.
func ExampleRelay_Join() {
	r, err := relay.New(&relay.Config{IdleTimeout: time.Hour, HalfCloseTimeout: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	fmt.Println(through("hello", func(client, endpoint net.Conn) {
		res, err := r.Join(context.Background(), client, endpoint)
		fmt.Println(res.Reason, res.AToB.Bytes(), res.BToA.Bytes(), res.AToB.Lost+res.BToA.Lost, err)
	}))
	// Output:
	// eof 5 5 0 <nil>
	// HELLO
}

// A session that is started needs no goroutine that waits for its end, and can be cut.
func ExampleSession_Start() {
	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	client, a := net.Pipe()
	b, endpoint := net.Pipe()
	defer client.Close()
	defer endpoint.Close()
	s := r.NewSession(a, b) // which owns both
	ended := make(chan struct{})
	err = s.Start(func(res relay.Result, err error) {
		fmt.Println(res.Reason, err)
		close(ended)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Cut(errors.New("maintenance")) // by any goroutine, at any time
	<-ended
	// Output: canceled maintenance
}

// All connections of a listener share a rate, and each is held to less.
func ExampleSession_Limit() {
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
	fmt.Println(through("hello", func(client, endpoint net.Conn) {
		s := r.NewSession(client, endpoint)
		s.Limit(limits)
		_, _ = s.Run(context.Background())
	}))
	// Output: HELLO
}

// A meter counts the bytes of a connection while they are spliced beneath it, which a wrapper with a Read of its own would prevent.
func ExampleMetered() {
	var m relay.Meter
	answer := through("hello", func(client, endpoint net.Conn) {
		res, err := relay.Join(context.Background(), relay.Metered(client, &m), endpoint)
		fmt.Println(res.AToB.Fallbacks[relay.FallbackWrapped], err)
	})
	read, written := m.Bytes()
	fmt.Println(answer, read, written)
	// Output:
	// 0 <nil>
	// HELLO 5 5
}

// The bytes that a bufio.Reader has read ahead go first, and the rest without it.
func ExampleBuffered() {
	fmt.Println(through("name\nhello", func(client, endpoint net.Conn) {
		ahead := bufio.NewReader(client)
		name, _ := ahead.ReadString('\n')
		res, err := relay.Join(context.Background(), relay.Buffered(client, ahead), endpoint)
		fmt.Printf("%q %d %v\n", name, res.AToB.Bytes(), err)
	}))
	// Output:
	// "name\n" 5 <nil>
	// HELLO
}

// The beginning of a connection was read, say to look at a TLS server name: the other end gets it
// anyway, and what follows is moved beneath.
func ExamplePrefixed() {
	fmt.Println(through("hello", func(client, endpoint net.Conn) {
		head := make([]byte, 3)
		_, _ = io.ReadFull(client, head)
		_, _ = relay.Join(context.Background(), relay.Prefixed(client, head), endpoint)
	}))
	// Output: HELLO
}

// Code that says io.Copy stays as it is: the connection that it is given splices.
func ExampleWrap() {
	fmt.Println(through("hello", func(c, endpoint net.Conn) {
		client := relay.Wrap(c)
		go func() {
			_, _ = io.Copy(endpoint, client)
			_ = endpoint.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(client, endpoint)
		_, _ = client.Close(), endpoint.Close()
	}))
	// Output: HELLO
}

// named is a connection with a name. It adds nothing to the bytes, so relay may move them beneath it.
type named struct {
	net.Conn
	name string
}

func (n *named) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return n.Conn, nil, nil
}
func (n *named) RelayWriter() io.Writer { return n.Conn }

func ExampleUnwrapper() {
	fmt.Println(through("hello", func(client, endpoint net.Conn) {
		res, _ := relay.Join(context.Background(), &named{client, "first"}, endpoint)
		fmt.Println("fallbacks:", res.AToB.Fallbacks[relay.FallbackWrapped])
	}))
	// Output:
	// fallbacks: 0
	// HELLO
}

// Copy and CopyN stand in for io.Copy and io.CopyN. Move is Copy, and tells how the bytes went.
func ExampleRelay_Copy() {
	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	n, err := r.Copy(os.Stdout, strings.NewReader("moved\n"))
	fmt.Println(n, err)
	n, err = r.CopyN(io.Discard, strings.NewReader("abc"), 5)
	fmt.Println(n, err)
	f, err := r.Move(io.Discard, strings.NewReader("abc"))
	fmt.Println(f.Copied, f.Spliced, f.Reason, err)
	// Output:
	// moved
	// 6 <nil>
	// 3 EOF
	// 3 0 eof <nil>
}
