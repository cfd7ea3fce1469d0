package lane_test

import "testing"

// TestIdleWithoutTimeout: a session that the lane relays in user space is idle from its last bytes on, also without an IdleTimeout.
func TestIdleWithoutTimeout(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	p := joined(t, l, "tcp", "127.0.0.1:0")
	if err := p.ComeBack(0); err != nil { // it stays in user space
		t.Fatal(err)
	}
	p.exchange(t, []byte("there"), p.client, p.server)
	moves(t, "joined", p.Session, func() { p.exchange(t, []byte("and back"), p.server, p.client) })
}
