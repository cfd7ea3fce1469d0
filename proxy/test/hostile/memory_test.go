package hostile_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/internal/testutil/sockets"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

// remembering is a load balancer with everything that may keep bytes of clients and endpoints.
const remembering = `
listeners:
  - {name: tls, bind: "127.0.0.1:0", timeouts: {preread: 1h}, routes: [{match: {sni: ["*.test"]}, upstream: mute}]}
  - {name: tls-unix, bind: "unix:%[1]s/tls", timeouts: {preread: 1h}, routes: [{match: {sni: ["*.test"]}, upstream: mute}]}
  - {name: http, bind: "127.0.0.1:0", timeouts: {preread: 1h}, routes: [{match: {host: [a.test], path: [/a/*]}, upstream: mute}]}
  - {name: http-unix, bind: "unix:%[1]s/http", timeouts: {preread: 1h}, routes: [{match: {host: [a.test]}, upstream: mute}]}
  - {name: startup, bind: "127.0.0.1:0", timeouts: {preread: 1h}, routes: [{match: {user: [a]}, upstream: mute}]}
  - {name: postgres, bind: "127.0.0.1:0", postgres: passthrough, timeouts: {preread: 1h}, upstream: mute}
  - {name: header, bind: "127.0.0.1:0", accept_proxy: {versions: [1, 2], from: ["127.0.0.0/8"], timeout: 1h}, upstream: mute}
  - {name: redis, bind: "127.0.0.1:0", timeouts: {preread: 1h}, routes: [{match: {protocol: [redis]}, upstream: mute}]}
  - {name: bytes, bind: "127.0.0.1:0", timeouts: {preread: 1h}, routes: [{match: {bytes: [{hex: "61", offset: 4095}]}, upstream: mute}]}
  - {name: filter, bind: "127.0.0.1:0", timeouts: {preread: 1h}, upstream: mute, filter: {wasm: pause.wasm, preread: 16KiB, timeout: 10s}}
  - {name: ended, bind: "127.0.0.1:0", timeouts: {preread: 1h}, upstream: mute, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
  - {name: certified, bind: "127.0.0.1:0", timeouts: {preread: 1h}, upstream: mute, tls: {certificates: [{cert: c.pem, key: k.pem}], client_ca: c.pem}}
  - {name: queued, bind: "127.0.0.1:0", accept_proxy: {versions: [2], from: ["127.0.0.0/8"]}, routes: [{match: {host: [a.test]}, upstream: full}]}
  - {name: compared, bind: "127.0.0.1:0", upstream: small, mirror: {upstream: mute, patience: 1h, compare: {framing: lines}}}
  - {name: ahead, bind: "127.0.0.1:0", upstream: large, mirror: {upstream: mute, patience: 1h, compare: {framing: lines}}}
  - {name: mirrored, bind: "127.0.0.1:0", upstream: small, mirror: {upstream: mute, patience: 1h}}
  - {name: held, bind: "127.0.0.1:0", upstream: mute, rewrite: {direction: up, wasm: pause.wasm, memory: 64KiB, timeout: 10s, instances: 1000, hold: 1m}}
  - {name: unread, bind: "127.0.0.1:0", upstream: bulk, rewrite: {direction: down, wasm: pause.wasm, memory: 64KiB, timeout: 10s, instances: 1000}}
upstreams:
  - {name: mute, endpoints: [%[2]q], health_check: off}
  - {name: small, endpoints: [%[3]q], health_check: off}
  - {name: large, endpoints: [%[4]q], health_check: off}
  - {name: bulk, endpoints: [%[5]q], health_check: off}
  - {name: full, endpoints: [{address: %[2]q, connections: 1}], queue: {size: 10000, timeout: 1h}, health_check: off}
`

// A habit is what the clients of a listener do to have a load balancer keep memory.
type habit struct {
	listener string
	share    int      // of a thousand clients
	pieces   [][]byte // that each sends
	unread   bool     // it reads nothing, and its receive buffer is the least
	most     int64    // bytes that each may cost beside [ofAny]
}

// ofAny is the user memory of any client, of its search for an endpoint, and of its session.
const ofAny = 4 << 10

// drip returns bytes of which the first n are pieces of their own.
func drip(b []byte, n int) (pieces [][]byte) {
	for i := range n {
		pieces = append(pieces, b[i:i+1])
	}
	return append(pieces, b[n:])
}

func habits(t *testing.T) []habit {
	hello := helloOf(t, "a.test", strings.Fields(strings.Repeat(strings.Repeat("p", 250)+" ", 60))...)
	hello = hello[:len(hello)-1]
	head := []byte("GET /a/b HTTP/1.1\r\nHost: a.test\r\nX: " + strings.Repeat("x", 8<<10))[:8<<10-1]
	startup := append([]byte{0, 0, 0x27, 0x10, 0, 3, 0, 0}, bytes.Repeat([]byte("user\x00a\x00"), 1500)...)[:9999]
	tlv := append([]byte{192, 0, 2, 1, 198, 51, 100, 2, 18, 103, 1, 187, 0xe0, 0x0f, 0x00}, make([]byte, 0xf00)...)
	whole := append(version2(1, 0x11, tlv), "GET /"+strings.Repeat("a", 8000)+" HTTP/1.1\r\nHost: a.test\r\n\r\n"...)
	command := [][]byte{[]byte("*1\r\n$4\r\nPING\r\n")}
	return []habit{
		{"tls", 40, drip(hello, 20), false, 20 << 10},
		{"tls-unix", 40, drip(hello, 5), false, 20 << 10},
		{"http", 130, drip(head, 20), false, 10 << 10},
		{"http-unix", 150, drip(head, 5), false, 10 << 10},
		{"startup", 60, drip(startup, 20), false, 12 << 10},
		{"postgres", 50, drip(startup, 20), false, 12 << 10},
		{"header", 50, drip(version2(1, 0x11, make([]byte, 4000))[:4000], 20), false, 5 << 10},
		{"redis", 40, drip([]byte("PING "+strings.Repeat("x", 1000)), 20), false, 2 << 10},
		{"bytes", 60, drip(make([]byte, 4095), 20), false, 5 << 10},
		{"filter", 40, drip(make([]byte, 16<<10-1), 10), false, 20 << 10},
		{"ended", 40, drip(hello, 5), false, 64 << 10},
		{"certified", 40, halfCertificate(t), false, 96 << 10},
		{"queued", 40, [][]byte{whole}, false, 24 << 10},
		{"compared", 60, command, false, 64 << 10},
		{"ahead", 40, command, false, 64 << 10},
		{"mirrored", 40, drip(make([]byte, 1000), 10), false, 0},
		{"held", 40, drip(make([]byte, 16<<10), 10), false, 160 << 10},
		{"unread", 40, nil, true, 160 << 10},
	}
}

// halfCertificate is a ClientHello, and a client's certificates without the last byte, as long as a handshake may be.
func halfCertificate(t *testing.T) [][]byte {
	const size = 32_000
	message := append([]byte{11, 0, size >> 8, size & 0xff}, make([]byte, size-1)...)
	var records []byte
	for record := range slices.Chunk(message, 16<<10) {
		records = append(append(records, 22, 3, 3, byte(len(record)>>8), byte(len(record))), record...)
	}
	return [][]byte{clienthello.Of(t, &tls.Config{ServerName: "front.test", MaxVersion: tls.VersionTLS12}), records}
}

// mute is a server that accepts no connection, and so the kernel alone takes what clients send.
func mute(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// talker sends each client the same, and keeps its connection.
func talker(t *testing.T, says []byte) string {
	return sockets.Server(t, func(c net.Conn) {
		go func() { _, _ = c.Write(says) }()
		_, _ = io.Copy(io.Discard, c)
	})
}

// pausing is a filter that wants more, whatever it has seen. As a module that rewrites it holds the bytes of clients back, and lets others go.
func pausing() string {
	m := &Module{Pages: 1}
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_memory_allocate", string(I32), string(I32), 0, Const(8192))
	m.Func("proxy_on_downstream_data", string([]byte{I32, I32, I32}), string(I32), 0, Code(Get(2), I32Eqz))
	m.Func("proxy_on_upstream_data", string([]byte{I32, I32, I32}), string(I32), 0, Const(0))
	return string(m.Bytes())
}

// sessions returns how many hostile clients there are: 9,000, or as many as descriptors allow. Each costs the load balancer
// up to three.
func sessions(t *testing.T) int {
	if race.Enabled {
		return 900
	}
	return most(t, 6000) * 3 / 2
}

// TestMemory: thousands of clients keep a load balancer waiting, with first bytes that never end, of every protocol that is recognised,
// before filters and in a queue, and in sessions with frozen shadows, answers that are compared with none, and bytes that a module holds back or that nobody
// reads. Each costs as much user memory as is documented, whatever it sends, and gives it back.
func TestMemory(t *testing.T) {
	cert, key := certificate.New(t, "front.test")
	large := "$30000\r\n" + strings.Repeat("x", 30_000) + "\r\n"
	text := fmt.Sprintf(remembering, sockets.Dir(t), mute(t), talker(t, bytes.Repeat([]byte("+\r\n"), 2000)), talker(t, []byte(large)),
		talker(t, bytes.Repeat([]byte(large), 40)))
	s := startServing(t, text, "pause.wasm", pausing(), "c.pem", cert, "k.pem", key)
	first, n := s.footprint(), sessions(t)
	var all []net.Conn
	last, may := first, first.used()
	for _, h := range habits(t) {
		list := s.crowd(h, n*h.share/1000)
		all = append(all, list...)
		for _, piece := range h.pieces {
			for _, c := range list {
				_, _ = c.Write(piece)
			}
		}
		now, most := s.steady(int64(len(all))), fixed+int64(len(list))*(ofAny+h.most)
		took := now.used() - last.used()
		t.Logf("%-9s %4d clients: %6d bytes each; in all %d MiB, %d MiB resident", h.listener, len(list), took/int64(len(list)), now.used()>>20, now.Resident>>20)
		if took > most {
			t.Errorf("%d clients of %s cost %d bytes, want %d at most", len(list), h.listener, took, most)
		}
		last, may = now, may+most
	}
	if most := 2*may + fixed; last.Resident > most && !race.Enabled {
		t.Errorf("%d bytes are resident, want %d at most", last.Resident, most)
	}
	for _, c := range all {
		if c, ok := c.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
		c.Close()
	}
	if end := s.steady(0); end.used() > first.used()+fixed+int64(len(all))*1024 {
		t.Errorf("after the end of all clients %+v is in use, before them %+v was", end, first)
	}
}

// fixed is what the first clients of a kind cost: instances of a filter, chunks of the arena.
const fixed = 6 << 20

func (s *serving) crowd(h habit, n int) []net.Conn {
	network, address := "tcp", s.at[h.listener]
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	d := net.Dialer{Timeout: condition.Patience, KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) (err error) {
		if !h.unread {
			return nil
		}
		e := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1) })
		return errors.Join(e, err)
	}}
	d.SetMultipathTCP(false)
	list := make([]net.Conn, n)
	for i := range list {
		c, err := d.Dial(network, address)
		must(s.t, err)
		s.t.Cleanup(func() { c.Close() })
		list[i] = c
	}
	return list
}
