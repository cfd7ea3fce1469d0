//go:build wasip1

// A module that rewrites a stream: it replaces texts by others, also of another length, however the stream is
// cut into pieces. Each line of its configuration has a pair of texts:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o replace.wasm ./examples/filters/replace
//
//	rewrite: {direction: up, wasm: replace.wasm, memory: 4MiB, timeout: 500ms, config: "secret=[removed]"}
package main

import (
	"github.com/penstock/penstock/examples/filters/host"
	"github.com/penstock/penstock/examples/filters/replace/text"
)

var (
	pairs *text.Pairs
	out   []byte
	held  int // bytes that the last call has held back
)

//go:wasmexport proxy_on_configure
func configure(_, _ uint32) uint32 {
	var err error
	if pairs, err = text.Parse(host.Configuration()); err != nil {
		println(err.Error())
		return 0 // refuse the configuration
	}
	return 1
}

//go:wasmexport proxy_on_downstream_data
func fromClient(_, size, end uint32) uint32 { return rewrite(host.Downstream, size, end) }

//go:wasmexport proxy_on_upstream_data
func fromServer(_, size, end uint32) uint32 { return rewrite(host.Upstream, size, end) }

// rewrite is called with new bytes behind the held bytes, or without new bytes: at the end, and when nothing
// has come for a while. Then the held bytes go on as they are.
func rewrite(stream, size, end uint32) uint32 {
	last := end != 0 || int(size) == held
	out, held = pairs.Replace(out[:0], host.Buffer(stream), last)
	host.SetBuffer(stream, out)
	host.Hold(held)
	return 0
}

func main() {}
