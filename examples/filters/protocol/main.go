//go:build wasip1

// A filter that recognises the protocol of a client by its first bytes, tags the client, and sends HTTP clients
// to the upstream "web":
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o protocol.wasm ./examples/filters/protocol
//
//	filter: {wasm: protocol.wasm, memory: 4MiB, preread: 8, upstreams: [web]}
package main

import (
	"bytes"

	"github.com/penstock/penstock/examples/filters/host"
)

const (
	goOn  = 0
	pause = 1 // wait for more bytes
)

// beginnings are the first bytes of protocols.
var beginnings = []struct{ bytes, protocol string }{
	{"GET ", "http"}, {"POST ", "http"}, {"HEAD ", "http"}, {"PRI * HT", "http"}, {"SSH-", "ssh"}, {"\x16\x03", "tls"},
}

//go:wasmexport proxy_on_downstream_data
func data(_, size, ended uint32) uint32 {
	first := host.FirstBytes()
	for _, b := range beginnings {
		n := min(len(first), len(b.bytes))
		if !bytes.Equal(first[:n], []byte(b.bytes)[:n]) {
			continue
		}
		if n < len(b.bytes) && ended == 0 {
			return pause
		}
		host.Tag("protocol", b.protocol)
		if b.protocol == "http" {
			host.Route("web")
		}
		return goOn
	}
	host.Tag("protocol", "unknown")
	return goOn
}

func main() {}
