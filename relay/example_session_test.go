package relay_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/penstock/penstock/relay"
)

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

// A deadline of the whole session is a context's.
func ExampleRelay_Join_deadline() {
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
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	res, err := r.Join(ctx, a, b)
	fmt.Println(res.Reason, errors.Is(err, context.DeadlineExceeded))
	// Output: canceled true
}

// A graceful shutdown stops accepting, lets sessions end, and cuts those that are left.
func ExampleRelay_Join_shutdown() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()

	sessions, cut := context.WithCancel(context.Background())
	var active sync.WaitGroup
	active.Go(func() { // the accept loop
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			active.Go(func() {
				if endpoint, err := net.Dial("tcp", origin.Addr().String()); err == nil {
					_, _ = r.Join(sessions, client, endpoint)
				}
			})
		}
	})
	fmt.Println(ask(l.Addr(), "hello"))

	_ = l.Close()
	drained := make(chan struct{})
	go func() { active.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(30 * time.Second):
	}
	cut()
	<-drained
	fmt.Println("drained")
	// Output:
	// HELLO
	// drained
}

// TLS ends here: its side is moved by Read and Write of the tls.Conn, and the result says so. The
// other side is a descriptor as ever.
func ExampleRelay_Join_tls() {
	origin := echoServer()
	defer origin.Close()
	test := httptest.NewTLSServer(nil) // whose certificate this proxy has
	defer test.Close()
	l, _ := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: test.TLS.Certificates})
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
		res, err := r.Join(context.Background(), client, endpoint)
		fmt.Println(res.Reason, res.AToB.Fallbacks[relay.FallbackWrapped] > 0, err)
	}()

	c, err := tls.Dial("tcp", l.Addr().String(), test.Client().Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "hello")
	_ = c.CloseWrite()
	answer, _ := io.ReadAll(c)
	<-done
	fmt.Println(string(answer))
	// Output:
	// eof true <nil>
	// HELLO
}
