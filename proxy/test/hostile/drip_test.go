package hostile_test

import (
	"encoding/binary"
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
