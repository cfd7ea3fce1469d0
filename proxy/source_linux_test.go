package proxy_test

import (
	"errors"
	"net"
	"reflect"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
)

// A client on goroutines whose address is not known is refused, and counted by that; others
// are served.
func TestClientWithoutSource(t *testing.T) {
	came := make(chan string, 2)
	r := serve(t, proxy.Config{Loops: -1, Listen: []socket.Address{parse(t, "127.0.0.1:0")}}, endpoint(t, "127.0.0.1:0", func(c net.Conn) {
		line, _ := sockets.ReadLine(c)
		came <- line
	}))
	near, far := sockets.TCPPair(t)
	f, err := far.File()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(near.SetLinger(0), near.Close()); err != nil {
		t.Fatal(err)
	}
	nameless, err := net.FileConn(f) // which asks for the address when the connection is reset
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	if addr := nameless.RemoteAddr(); addr != nil {
		t.Fatalf("it comes from %v", addr)
	}
	released := 0
	if err := r.Handle(nameless, func() { released++ }); err != nil {
		t.Fatal(err)
	}
	sum := r.Summary()
	if sum.Connections != (proxy.Connections{Accepted: 1, Refused: 1}) || !reflect.DeepEqual(sum.RefusedBy, map[string]int64{"no_source": 1}) || released != 1 {
		t.Errorf("%+v, %v, released %d times", sum.Connections, sum.RefusedBy, released)
	}
	c := r.dial(t)
	if _, err := c.Write([]byte("payload\n")); err != nil {
		t.Fatal(err)
	}
	if got := <-came; got != "payload" {
		t.Errorf("the target got %q", got)
	}
}
