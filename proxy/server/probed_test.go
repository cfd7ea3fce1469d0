package server_test

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestProbesAreOfOutlierDetection: an endpoint that answers is probed once. The probe sends
// nothing and then closes, to find out whether the endpoint closes such a connection. Without
// outlier_detection, and without checks, the endpoint gets its clients' connections and no other.
func TestProbesAreOfOutlierDetection(t *testing.T) {
	t.Parallel()

	var probes, clients [2]atomic.Int64
	server := func(i int) string {
		return sockets.Server(t, func(c net.Conn) {
			one := make([]byte, 1)
			if _, err := c.Read(one); err == io.EOF {
				probes[i].Add(1)
				return
			}
			clients[i].Add(1)
			_, _ = c.Write(one)
		})
	}
	r := start(t, fmt.Sprintf(`
listeners: [{name: probed, bind: "127.0.0.1:0", upstream: probed}, {name: left, bind: "127.0.0.1:0", upstream: left}]
upstreams:
  - {name: probed, endpoints: [%q], health_check: off}
  - {name: left, endpoints: [%q], health_check: off, outlier_detection: off}`, server(0), server(1)))
	asked := int64(0)
	r.Until("an endpoint is probed", func() bool {
		for _, listener := range []string{"probed", "left"} {
			c := client(t, r.At(listener))
			if _, err := c.Write([]byte("?")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(c); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		asked++
		return probes[0].Load() > 0
	})
	if n := probes[0].Load(); n != 1 || clients[0].Load() != asked {
		t.Errorf("%d probes and %d clients, want 1 and %d", n, clients[0].Load(), asked)
	}
	if n := probes[1].Load(); n != 0 || clients[1].Load() != asked {
		t.Errorf("without outlier_detection: %d probes and %d clients, want none and %d", n, clients[1].Load(), asked)
	}
}
