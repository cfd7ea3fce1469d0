package traffic

import (
	"encoding/json"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
)

// controlBytes limits the bytes that iperf3 sends beside its measured streams: cookies,
// parameters and results as JSON, each way.
const controlBytes = 64 << 10

// testIperf3 moves 1 GiB over four streams each way.
func testIperf3(t *testing.T) {
	iperf3 := software.Need(t, "iperf3", "iperf3")
	addr, host, port := software.Addr(t)
	software.Service{
		Command: []string{iperf3, "--server", "--bind", host, "--port", port, "--forceflush"},
		Dir:     software.Dir(t, nil),
		Ready:   "Server listening",
		Addr:    addr,
		Stop:    syscall.SIGTERM,
	}.Start(t)

	for _, direction := range []string{"client to server", "server to client"} {
		t.Run(direction, func(t *testing.T) {
			p := startProxy(t, addr)
			host, port := p.hostPort(t)
			args := []string{iperf3, "--client", host, "--port", port, "--bytes", "1G", "--parallel", "4", "--json"}
			if direction == "server to client" {
				args = append(args, "--reverse")
			}
			report := parseIperf3(t, software.Run(t, args...))
			s := p.stop(t)

			bulk, back := s.Bytes.ClientToEndpoint, s.Bytes.EndpointToClient
			if direction == "server to client" {
				bulk, back = back, bulk
			}
			checkIperf3(t, report, bulk, s.Lost)
			if back.All() == 0 || back.All() > controlBytes {
				t.Errorf("%d bytes against the stream, want some, at most %d", back.All(), controlBytes)
			}
			if s.Connections.Accepted != 5 {
				t.Errorf("%d connections, want one for control and four streams", s.Connections.Accepted)
			}
		})
	}
}

type iperf3Report struct {
	End struct {
		Sent     struct{ Bytes int64 } `json:"sum_sent"`
		Received struct{ Bytes int64 } `json:"sum_received"`
	}
}

func parseIperf3(t *testing.T, out string) iperf3Report {
	t.Helper()
	var r iperf3Report
	must(t, json.Unmarshal([]byte(out), &r))
	return r
}

// checkIperf3 compares the proxy's account of the bulk direction with iperf3's. The receiver
// closes its sockets when it has received enough. So bytes that the sender had sent by then and
// the receiver had not read may be lost, and no others. Bytes that the reset removed from the
// proxy's send queue count as moved and as lost.
func checkIperf3(t *testing.T, r iperf3Report, bulk flow, lost int64) {
	t.Helper()
	sent, received := r.End.Sent.Bytes, r.End.Received.Bytes
	if received < 1<<29 || sent < received {
		t.Errorf("iperf3 sent %d bytes and received %d, want about 1 GiB", sent, received)
	}
	if n := bulk.All(); n < received || n > sent+controlBytes {
		t.Errorf("summary has %d bytes moved, iperf3 received %d of %d", n, received, sent)
	}
	if lost > sent-received {
		t.Errorf("%d bytes lost, but iperf3 received all but %d", lost, sent-received)
	}
	if bulk.Spliced < bulk.All()/2 { // the size of reads depends on the machine
		t.Errorf("%d of %d bytes spliced, want most of a bulk transfer", bulk.Spliced, bulk.All())
	}
}
