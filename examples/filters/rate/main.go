//go:build wasip1

// A filter that limits how many clients of each address it admits in a second, by a token bucket for each
// address. It keeps its state in its memory, so one instance must judge all clients:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o rate.wasm ./examples/filters/rate
//
//	filter: {wasm: rate.wasm, memory: 8MiB, instances: 1, config: "10"}
package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/examples/filters/host"
)

// A bucket has the tokens of an address at some time.
type bucket struct {
	tokens float64
	at     time.Time
}

// maxBuckets is how many addresses are remembered. When there are more, all are forgotten.
const maxBuckets = 10_000

var (
	perSecond float64
	buckets   = make(map[string]bucket)
)

//go:wasmexport proxy_on_configure
func configure(_, _ uint32) uint32 {
	var err error
	if perSecond, err = strconv.ParseFloat(strings.TrimSpace(host.Configuration()), 64); err != nil || perSecond <= 0 {
		return 0
	}
	return 1
}

//go:wasmexport proxy_on_new_connection
func connection(_ uint32) uint32 {
	source := host.Property("source.address")
	address := source[:max(strings.LastIndexByte(source, ':'), 0)]
	now := time.Now()
	b, known := buckets[address]
	if !known {
		if len(buckets) >= maxBuckets {
			clear(buckets)
		}
		b = bucket{tokens: max(perSecond, 1), at: now}
	}
	b.tokens = min(b.tokens+now.Sub(b.at).Seconds()*perSecond, max(perSecond, 1))
	b.at = now
	if b.tokens < 1 {
		host.Deny("more than " + strconv.FormatFloat(perSecond, 'g', -1, 64) + " clients in a second")
	} else {
		b.tokens--
	}
	buckets[address] = b
	return 0
}

func main() {}
