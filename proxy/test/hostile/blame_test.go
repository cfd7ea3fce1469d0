package hostile_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// strict is a server that answers one known line, and resets any client that sends another. While
// it is broken it knows no line.
func strict(t *testing.T, broken bool) string {
	t.Helper()
	return sockets.Server(t, func(c net.Conn) {
		s, err := bufio.NewReader(c).ReadString('\n')
		switch {
		case err != nil:
		case s == "hello\n" && !broken:
			_, _ = io.WriteString(c, s)
			_, _ = io.Copy(io.Discard, c)
		default:
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	})
}

// asks connects from an address, sends some bytes and returns the result.
func asks(from, to, what string) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: condition.Patience, KeepAlive: -1}
	c, err := d.Dial("tcp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	if _, err := io.WriteString(c, what); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, len("hello\n")))
	return err
}

const blaming = `
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {first_byte: %s}}
  - {name: honest, bind: "127.0.0.1:0", upstream: u}
upstreams:
  - {name: u, endpoints: [{address: %q, name: a}, {address: %q, name: b}], health_check: off, outlier_detection: {max_ejected: 1, failure_percentage: 60}, retry: {attempts: 0}}`

// TestOneClientIsNoVerdict: clients at two addresses that send garbage, or nothing, as fast as they can get no
// endpoint ejected and open no breaker for other clients.
func TestOneClientIsNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		sent      string
		firstByte string
		failures  int64
	}{
		"garbage": {"GET / HTTP/1.1\r\n\r\n", "20s", 1000},
		"nothing": {"", "500ms", 100},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, fmt.Sprintf(blaming, c.firstByte, strict(t, false), strict(t, false)))
			at := r.At("l")
			honest := func() error { return asks("127.0.0.1", r.At("honest"), "hello\n") } // however busy the machine is
			for range 4 {
				must(t, honest())
			}
			h := honestBy(t, honest)
			var beside sync.WaitGroup
			stop := make(chan struct{})
			for i := range 20 {
				from := fmt.Sprintf("127.0.0.%d", 2+i%2)
				beside.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if err := asks(from, at, c.sent); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("a client that sends %q: %v", c.sent, err)
							return
						}
					}
				})
			}
			for _, name := range []string{"a", "b"} {
				r.Until("the endpoints have reset the client often", func() bool { return r.Endpoint("u", name).Failures >= c.failures })
			}
			for _, name := range []string{"a", "b"} {
				if e := r.Endpoint("u", name); e.State != "up" || e.Breaker != "" {
					t.Errorf("%s is %s, its breaker %s, after %d failures", name, e.State, e.Breaker, e.Failures)
				}
			}
			if u := r.Status().Upstreams[0]; u.Breaker != "closed" {
				t.Errorf("the upstream's breaker is %s", u.Breaker)
			}
			close(stop)
			beside.Wait()
			h.Stop()
		})
	}
}

// TestOneClientIsNoOutage: the only endpoint has served one client, and then one source has sent it garbage often. That is
// no problem of the endpoint, and so none of its upstream.
func TestOneClientIsNoOutage(t *testing.T) {
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], health_check: off, outlier_detection: {window: 1h}, circuit_breaker: {window: 1h}}]`, strict(t, false)))
	must(t, asks("127.0.0.1", r.At("l"), "hello\n"))
	for range 30 {
		if err := asks("127.0.0.2", r.At("l"), "garbage\n"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a client that sends garbage: %v", err)
		}
	}
	r.Until("all have failed", func() bool { return r.Endpoint("u", "a").Failures == 30 })
	if e := r.Endpoint("u", "a"); e.State != "up" || e.Breaker != "" || e.Failing != nil {
		t.Errorf("%s, its breaker %s, failing %+v", e.State, e.Breaker, e.Failing)
	}
}

// TestOneClientDivertsNoOther: one source that sends garbage to an upstream that has served nobody yet opens its breaker; clients of
// other sources do not go to the fallback for that.
func TestOneClientDivertsNoOther(t *testing.T) {
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, endpoints: [%q], health_check: off, fallback: {upstream: w}, circuit_breaker: {window: 1h, open: 1h}}
  - {name: w, endpoints: [{address: %q, name: w}]}`, strict(t, false), sockets.Server(t, func(c net.Conn) { _, _ = io.WriteString(c, "sorry\n") })))
	r.Until("the breaker is open", func() bool {
		_ = asks("127.0.0.2", r.At("l"), "garbage\n")
		return r.Status().Upstreams[0].Breaker == "open"
	})
	before := r.Endpoint("w", "w").Total
	for range 30 {
		must(t, asks("127.0.0.3", r.At("l"), "hello\n"))
	}
	if n := r.Endpoint("w", "w").Total - before; n > 0 {
		t.Errorf("%d clients went to the fallback", n)
	}
}
