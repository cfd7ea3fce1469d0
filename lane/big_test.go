package lane_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane"
)

// TestBigTCP: a session comes back, and stays in user space, whose endpoint sends packets above 64 KiB, which no socket of this host shows before.
func TestBigTCP(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	here, client, server := netns.Here(t), netns.New(t), netns.New(t)
	front, back := here.Join(client), here.Join(server)
	near, _ := here.JoinIPv6(client, front)
	_, far := here.JoinIPv6(server, back)
	client.IP("link set %s gso_max_size 180000", front.Device)
	l := open(t, front.Device, back.Device)
	p := across(t, l, client, server, near, far)
	p.talk(t)
	big := make([]byte, 30_000_000)
	(&stream{seed: 9}).fill(big)
	go func() { _, _ = p.client.Write(big) }()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(p.server, got); err != nil || !bytes.Equal(got, big) {
		t.Fatalf("packets above 64 KiB: %v", err)
	}
	condition.Await(t, "it has come back", func() bool { return !p.Left() })
	if why := p.Refused(); why != lane.BigTCP && why != lane.Kept {
		t.Errorf("it stays for %v", why)
	}
	if st := l.Stats(); st.Returned != 1 || st.Reset != 0 {
		t.Errorf("%+v", st)
	}
	p.exchange(t, []byte("and goes on"), p.server, p.client)
}
