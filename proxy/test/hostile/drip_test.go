package hostile_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"
)

// looking is a load balancer that prereads all kinds of first bytes.
const looking = `
listeners:
  - name: hello
    bind: "127.0.0.1:0"
    routes: [{match: {sni: ["*.test"]}, upstream: u}]
    timeouts: {preread: %[2]s}
  - name: header
    bind: "127.0.0.1:0"
    accept_proxy: {versions: [1, 2], from: ["127.0.0.0/8"], timeout: %[2]s}
    upstream: u
  - name: both
    bind: "127.0.0.1:0"
    accept_proxy: {versions: [1, 2], from: ["127.0.0.0/8"], timeout: %[2]s}
    routes: [{match: {sni: ["*.test"]}, upstream: u}]
    timeouts: {preread: %[2]s}
upstreams: [{name: u, endpoints: [%[1]q]}]`

var header1 = []byte("PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n")

func version2(command, family byte, rest []byte) []byte {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x20|command, family)
	b = binary.BigEndian.AppendUint16(b, uint16(len(rest)))
	return append(b, rest...)
}

// TestDrips: more than a thousand clients send their first bytes one at a time, and never
// complete them. Each costs the loops a few turns, whatever it sends. The clients time out and
// are counted. Meanwhile others are served.
func TestDrips(t *testing.T) {
	hello := helloOf(t, "a.test")
	r := start(t, fmt.Sprintf(looking, echo(t), "3s"))
	h := serveHonest(t, r.At("hello"), hello)
	kinds := []struct {
		listener, reason string
		first, sent      []byte // sent at once; sent a byte at a time
	}{
		{"hello", "preread", nil, hello},
		{"header", "proxy_header", nil, version2(1, 0x11, make([]byte, 300))},
		{"both", "preread", header1, hello},
	}
	n := most(t, 1500) / len(kinds)
	clients := make([][]*net.TCPConn, len(kinds))
	for i, k := range kinds {
		for range n {
			c := dial(t, r.At(k.listener))
			_, _ = c.Write(k.first)
			clients[i] = append(clients[i], c)
		}
	}
	r.Until("all clients have been accepted", func() bool { return r.Summary().Connections.Accepted >= int64(n*len(kinds)) })
	before, began, sent := r.turns(), time.Now(), 0
	for ; sent < 60 && time.Since(began) < time.Second; sent++ { // before the clients time out
		for i, k := range kinds {
			for _, c := range clients[i] {
				_, _ = c.Write(k.sent[sent : sent+1])
			}
		}
	}
	turns := r.turns() - before
	for i, k := range kinds {
		for _, c := range clients[i] {
			gone(t, c)
		}
		r.refused(k.listener, map[string]int64{k.reason: int64(n)})
	}
	served := h.Stop()
	t.Logf("%d clients of each kind have sent %d bytes each: %d turns", n, sent, turns)
	if most := 6*3*int64(n) + 40*int64(served) + 1000; turns > most {
		t.Errorf("%d turns for %d times %d bytes and %d honest clients, want %d at most", turns, 3*n, sent, served, most)
	}
	for _, list := range clients {
		closeAll(list)
	}
	r.settled(n * len(kinds))
}

// records splits the message of TLS records into n records.
func records(record []byte, n int) (b []byte) {
	var body []byte
	for rest := record; len(rest) > 0; {
		end := 5 + int(binary.BigEndian.Uint16(rest[3:]))
		body, rest = append(body, rest[5:end]...), rest[end:]
	}
	for i := range n {
		piece := body[i*len(body)/n : (i+1)*len(body)/n]
		b = append(b, record[:3]...)
		b = binary.BigEndian.AppendUint16(b, uint16(len(piece)))
		b = append(b, piece...)
	}
	return b
}
