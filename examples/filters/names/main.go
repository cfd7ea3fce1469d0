//go:build wasip1

// A filter that admits TLS clients with a server name from its configuration, and denies all others. The
// configuration has names separated by spaces:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o names.wasm ./examples/filters/names
//
//	filter: {wasm: names.wasm, memory: 4MiB, preread: 4KiB, config: a.example b.example}
package main

import (
	"strings"

	"github.com/penstock/penstock/examples/filters/host"
)

var names = make(map[string]bool)

//go:wasmexport proxy_on_configure
func configure(_, _ uint32) uint32 {
	for name := range strings.FieldsSeq(host.Configuration()) {
		names[strings.ToLower(name)] = true
	}
	if len(names) == 0 {
		return 0 // refuse the configuration
	}
	return 1
}

//go:wasmexport proxy_on_downstream_data
func data(_, _, _ uint32) uint32 {
	if name := host.Property("connection.requested_server_name"); !names[name] {
		host.Deny("server name " + name)
	}
	return 0
}

func main() {}
