package lane_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// TestDeadlines: deadlines that connections have had end with Join, expired ones as well. No byte is lost, and the session goes on in
// user space and in the lane.
func TestDeadlines(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	early := []byte("sent before the session begins")
	if _, err := client.Write(early); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*net.TCPConn{a, b} {
		if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	p := join(t, l, client, a, b, server)
	p.sent[0] += uint64(len(early))
	got := make([]byte, len(early))
	if _, err := io.ReadFull(p.server, got); err != nil || !bytes.Equal(got, early) {
		t.Fatalf("%q, %v", got, err)
	}
	if err := p.ComeBack(0); err != nil { // it stays in user space
		t.Error(err)
	}
	p.exchange(t, []byte("here"), p.client, p.server)
	p.exchange(t, []byte("and back"), p.server, p.client)
	p.MayLeave()
	p.talk(t)
	p.comesBack(t, time.Second)
	p.exchange(t, []byte("here again"), p.client, p.server)
}
