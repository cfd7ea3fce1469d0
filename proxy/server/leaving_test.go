package server_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// waits are upstreams whose clients wait for an endpoint for a minute or longer, each for another
// reason; %q are addresses, of one that echoes, one that refuses, one that is silent and
// one that speaks no TLS.
const waits = `
upstreams:
  - {name: queue, endpoints: [{address: %[1]q, connections: 1}], queue: {size: 20, timeout: 1h}%[5]s}
  - {name: backoff, endpoints: [%[2]q], retry: {attempts: 1, backoff: 1m, max_backoff: 1m}, health_check: off, outlier_detection: off%[5]s}
  - {name: dial, endpoints: [%[3]q], health_check: off%[5]s}
  - {name: handshake, endpoints: [%[4]q], health_check: off, tls: {ca: c.pem, sni: front.test}}
listeners:`

// TestClientsWithTLSThatLeave: a client on a goroutine, because TLS ends or begins here, that is
// reset while it waits for an endpoint gives up its place at once. That holds for each reason to
// wait. So twenty such clients do not keep a queue of twenty from others.
func TestClientsWithTLSThatLeave(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	mute := sockets.Server(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<16)); _, _ = c.Read(make([]byte, 1)) })
	for how, begins := range map[string]string{"ended": "", "begun": ", tls: {ca: c.pem, sni: front.test}"} {
		t.Run(how, func(t *testing.T) {
			up := named(t, "up")
			text := fmt.Sprintf(waits, up, sockets.Refusing(t), sockets.Silent(t), mute, begins)
			if how == "begun" {
				text = fmt.Sprintf(waits, frontOf(t, cert, key), sockets.Refusing(t), sockets.Silent(t), mute, begins)
			}
			ends := ", tls: {certificates: [{cert: c.pem, key: c.key}]}"
			if how == "begun" {
				ends = ""
			}
			for _, u := range []string{"queue", "backoff", "dial", "handshake"} {
				text += fmt.Sprintf("\n  - {name: %s, bind: \"127.0.0.1:0\", upstream: %s, timeouts: {connect: 1h}%s}", u, u, ends)
			}
			r := start(t, text, "c.pem", cert, "c.key", key)
			for _, listener := range []string{"queue", "backoff", "dial", "handshake"} {
				leaveWaiting(t, r, listener, how == "ended")
			}
			for _, u := range r.Status().Upstreams {
				if n := u.Endpoints[0].Failures; n > 0 && u.Name != "backoff" {
					t.Errorf("%s: %d clients that left count as failures of the endpoint", u.Name, n)
				}
			}
		})
	}
}

// leaveWaiting has twenty clients wait at a listener, and leave.
func leaveWaiting(t *testing.T, r *rig, listener string, speaksTLS bool) {
	t.Helper()
	dial := func() (c net.Conn, beneath *net.TCPConn) {
		beneath = client(t, r.At(listener))
		if !speaksTLS {
			return beneath, beneath
		}
		s := tls.Client(beneath, &tls.Config{InsecureSkipVerify: true})
		if err := s.Handshake(); err != nil {
			t.Fatal(err)
		}
		return s, beneath
	}
	active := func() int64 { return r.Listener(listener).Connections.Active }
	pending := func() int64 {
		us := r.Status().Upstreams
		return us[slices.IndexFunc(us, func(u admin.Upstream) bool { return u.Name == "queue" })].Pending
	}
	var stays int64
	var first net.Conn
	if listener == "queue" {
		first, _ = dial()
		line(t, first)
		stays = 1
	}
	var waiting []*net.TCPConn
	for range 20 {
		_, c := dial()
		waiting = append(waiting, c)
	}
	r.Until("the clients wait at "+listener, func() bool {
		return active() == stays+20 && (listener != "queue" || pending() == 20)
	})
	for _, c := range waiting {
		_, _ = c.SetLinger(0), c.Close()
	}
	r.Until("the clients have left "+listener, func() bool { return active() == stays })
	if n := r.Refused(listener, "upstream") + r.Refused(listener, "tls"); n != 0 {
		t.Errorf("%s: %d clients that left are counted as refused", listener, n)
	}
	if first == nil {
		return
	}
	next, _ := dial() // the queue has room for it
	r.Until("the client waits", func() bool { return pending() == 1 })
	first.Close()
	line(t, next)
	next.Close()
}
