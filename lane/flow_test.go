package lane_test

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane"
)

// TestFlow measures when a session leaves user space whose client sends without a pause for three seconds: over
// links that are as fast as the sender, and with a bottleneck of 300 Mbit/s behind the proxy. It is run on demand:
//
//	PENSTOCK_TEST_LANE_FLOW=1 go test ./lane -run TestFlow -v
func TestFlow(t *testing.T) {
	t.Parallel()

	if os.Getenv("PENSTOCK_TEST_LANE_FLOW") == "" {
		t.Skip("a measurement, on demand")
	}
	if !alone(t) {
		return
	}
	here, client, server := netns.Here(t), netns.New(t), netns.New(t)
	front, back := here.Join(client), here.Join(server)
	l := open(t, front.Device, back.Device)
	flow := func(name string) {
		p := across(t, l, client, server, front.Near, back.Far)
		p.exchange(t, []byte("device of one side"), p.client, p.server)
		p.exchange(t, []byte("and of the other"), p.server, p.client)
		go func() { _, _ = io.Copy(io.Discard, p.server) }()
		before, begun, left, sent := l.Stats().Refused, time.Now(), "never", 0
		for b := make([]byte, 16000); time.Since(begun) < 3*time.Second; sent += len(b) {
			if _, err := p.client.Write(b); err != nil {
				t.Fatal(err)
			}
			if left == "never" && p.Left() {
				left = time.Since(begun).String()
			}
		}
		tries := uint64(0)
		for why := lane.None; why <= lane.Interrupted; why++ {
			tries += l.Stats().Refused[why] - before[why]
		}
		t.Logf("%s: %d MB, leaves after: %s, refused %d times", name, sent>>20, left, tries)
		p.Reset()
	}
	flow("fast links")
	here.TC("qdisc add dev %s root tbf rate 300mbit burst 128k latency 20ms", back.Device)
	flow("a bottleneck behind the proxy")
	here.TC("qdisc del dev %s root", back.Device)
	client.TC("qdisc add dev %s root tbf rate 300mbit burst 128k latency 20ms", "v0")
	flow("a bottleneck before the proxy")
}
