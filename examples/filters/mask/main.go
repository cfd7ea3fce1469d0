//go:build wasip1

// A module that replaces card numbers, tokens, e-mail addresses and matches of your own patterns in a stream by
// asterisks, however the stream is cut into pieces. The words of its configuration are card, token, email, and
// pattern= with a regular expression:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o mask.wasm ./examples/filters/mask
//
//	rewrite: {direction: down, wasm: mask.wasm, memory: 8MiB, timeout: 1s, config: "card email pattern=ID-[0-9]{6}"}
//
// At the end of a session in which it masked something, it logs the session and the number of matches of each
// kind.
package main

import (
	"fmt"

	"github.com/penstock/penstock/examples/filters/host"
	"github.com/penstock/penstock/examples/filters/mask/masks"
)

// masker is the session's masker, because an instance has only one session.
var masker *masks.Masker

//go:wasmexport proxy_on_configure
func configure(_, _ uint32) uint32 {
	set, err := masks.Parse(host.Configuration())
	if err != nil {
		println(err.Error())
		return 0 // refuse the configuration
	}
	masker = set.NewMasker()
	return 1
}

//go:wasmexport proxy_on_downstream_data
func fromClient(_, size, end uint32) uint32 { return mask(host.Downstream, size, end) }

//go:wasmexport proxy_on_upstream_data
func fromServer(_, size, end uint32) uint32 { return mask(host.Upstream, size, end) }

// mask is called with new bytes behind the held bytes, or without new bytes: at the end, and when nothing has
// come for a while, so that the held bytes go on. If it cannot go on it panics and the session ends, so that no
// bytes pass unseen.
func mask(stream, size, end uint32) uint32 {
	if size == 0 {
		return 0
	}
	b := host.Buffer(stream)
	if len(b) != int(size) {
		panic("the module has no room for the bytes: set a smaller buffer")
	}
	held, changed := masker.Mask(b, end != 0 || len(b) == masker.Held())
	if changed {
		host.SetBuffer(stream, b)
	}
	if held > 0 {
		host.Hold(held)
	}
	return 0
}

// ended is called at the end of the session.
//
//go:wasmexport proxy_on_log
func ended(uint32) {
	counts, line := masker.Counts(), ""
	for k, n := range counts.Matches {
		if n > 0 {
			line += fmt.Sprintf(" %v=%d", masks.Kind(k), n)
		}
	}
	if counts.Late > 0 {
		line += fmt.Sprintf(" late_bytes=%d", counts.Late)
	}
	if line != "" {
		host.Log("masked" + line + " session=" + host.Property("penstock.session"))
	}
}

func main() {}
