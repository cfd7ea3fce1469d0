package bench

import (
	"testing"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/proxy/clienthello"
)

func TestClientHello(t *testing.T) {
	b := ClientHello("bench.example")
	info, err := clienthello.Parse(b)
	if err != nil || info.ServerName != "bench.example" {
		t.Errorf("%+v, %v", info, err)
	}
	if n, whole := traffic.Preamble(b); n != len(b) || !whole {
		t.Errorf("%d of %d, %v", n, len(b), whole)
	}
}
