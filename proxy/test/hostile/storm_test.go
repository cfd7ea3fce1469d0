package hostile_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/lb"
)

// stormy is a configuration with all resources that clients take and give back: places of a
// listener, of sources, of endpoints and of a queue, trials of breakers, retries.
const stormy = `
listeners:
  - name: hello
    bind: %[1]q
    routes: [{match: {sni: ["*.test"]}, %[3]s}]
    limits: {connections: %[4]d, per_source: 30}
    timeouts: {preread: 300ms, connect: 300ms, first_byte: 300ms}
  - {name: tls, bind: %[2]q, tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: u, limits: {per_source: 20}}
upstreams:
  - name: u
    balance: %[5]s
    discover: {file: {path: eps.yaml}}
    health_check: {interval: 50ms, fast_interval: 50ms, timeout: 100ms}
    outlier_detection: {base_ejection_time: 50ms, max_ejection_time: 50ms}
    circuit_breaker: {open: 50ms, connections: 25}
    queue: {size: 10, timeout: 200ms}
    retry: {attempts: 2, backoff: 1ms}
    on_removed: reset
    fallback: {respond: sorry.txt}
  - {name: v, endpoints: [%[6]q], fallback: {upstream: u}}`

// TestStorm: reloads, discovery and operators change the whole configuration continuously, while
// clients of all kinds connect and leave. In the end each place has been given back.
func TestStorm(t *testing.T) {
	good, bad := echo(t), sockets.Server(t, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })
	cert, key := certificate.New(t, "front.test")
	names := []string{good, bad, "127.0.0.1:1", strings.Replace(good, "127.0.0.1", "127.0.0.2", 1)}
	found := func() string {
		var b strings.Builder
		for i := range 1 + rand.IntN(4) {
			fmt.Fprintf(&b, "- {address: %q, name: e%d, weight: %d, connections: %d}\n", names[(i+rand.IntN(4))%4], i, 1+rand.IntN(3), rand.IntN(8))
		}
		return b.String()
	}
	text := func() string {
		to := []string{"upstream: u", "upstream: v", "split: [{upstream: u, percent: 50}, {upstream: v, percent: 50}]"}[rand.IntN(3)]
		policies := lb.Policies()
		policy := policies[rand.IntN(len(policies))]
		return fmt.Sprintf(stormy, "127.0.0.1:0", "127.0.0.1:0", to, 15+rand.IntN(10), policy, bad)
	}
	r := start(t, text(), "eps.yaml", found(), "c.pem", cert, "k.pem", key, "sorry.txt", "sorry\n")
	address := [2]string{r.At("hello"), r.At("tls")}
	hello := helloOf(t, "a.test")
	stop := make(chan struct{})
	time.AfterFunc(1500*time.Millisecond, func() { close(stop) })
	var all sync.WaitGroup
	often := func(pause time.Duration, f func()) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(pause):
					f()
				}
			}
		})
	}
	often(5*time.Millisecond, func() {
		if err := r.Apply(t.Context(), r.Load(text())); err != nil {
			t.Error(err)
		}
	})
	often(10*time.Millisecond, func() { r.Write("eps.yaml", found()) })
	often(3*time.Millisecond, func() {
		endpoint := fmt.Sprintf("e%d", rand.IntN(4)) // it may not exist
		state := []admin.EndpointVerb{admin.EndpointDrain, admin.EndpointReady}[rand.IntN(2)]
		_, _ = r.ChangeEndpoint(&admin.EndpointChange{What: state, Upstream: "u", Endpoint: endpoint}, "test")
		_, _ = r.ChangeEndpoint(&admin.EndpointChange{What: admin.EndpointWeight, Upstream: "u", Endpoint: endpoint, Weight: rand.IntN(5)}, "test")
		_ = r.Status()
	})
	for range 40 {
		often(time.Millisecond, func() { roam(address[rand.IntN(2)], hello) })
	}
	all.Wait()
	r.Until("all places were given back", func() bool {
		st := r.Status()
		left := st.Connections.Active
		for _, l := range st.Listeners {
			left += l.Connections.Active
		}
		for _, u := range st.Upstreams {
			left += u.Active + u.Pending
		}
		return left == 0
	})
	t.Logf("%+v, %v", r.Status().Connections, r.Status().Counters)
	for _, l := range r.Status().Listeners {
		t.Logf("%s: %+v %v", l.Name, l.Connections, l.Reasons)
	}
	// The limit of sources was given back, too: all sources may connect again.
	r.Write("eps.yaml", fmt.Sprintf("[%q]", good))
	must(t, r.Apply(t.Context(), r.Load(fmt.Sprintf(stormy, "127.0.0.1:0", "127.0.0.1:0", "upstream: u", 20, "first", good))))
	r.Until("there are endpoints again", func() bool {
		c, err := net.Dial("tcp", address[0])
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		return exchange(c, hello) == nil
	})
	r.settled(100)
}

func roam(address string, hello []byte) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	sent := bytes.Clone(hello)
	switch rand.IntN(4) {
	case 0:
		sent = sent[:rand.IntN(len(sent))]
	case 1:
		sent[rand.IntN(len(sent))]++
	}
	_, _ = c.Write(sent)
	if rand.IntN(2) == 0 {
		_ = c.(*net.TCPConn).SetLinger(0)
	} else {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	if rand.IntN(2) == 0 {
		_, _ = io.ReadFull(c, sent)
	}
}
