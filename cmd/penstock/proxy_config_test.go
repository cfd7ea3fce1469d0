package main

import (
	"net/netip"
	"testing"
	"time"
)

// TestBulkFlags: what the flags say reaches the server, 0 as off.
func TestBulkFlags(t *testing.T) {
	c := proxyCmd{
		Listen: []string{":0"}, To: []string{"10.0.0.5:80"}, Engine: "auto",
		TailDelay: timeout(2 * time.Millisecond), Gather: timeout(300 * time.Microsecond), MaxPipeSize: 256 << 10, SourceAddress: "10.0.0.7",
	}
	cfg, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.TailDelay != 2*time.Millisecond || cfg.Gather != 300*time.Microsecond || cfg.MaxPipeSize != 256<<10 || cfg.Source != netip.MustParseAddr("10.0.0.7") {
		t.Errorf("%+v", cfg)
	}
	c.TailDelay, c.Gather, c.SourceAddress = 0, 0, ""
	if cfg, err = c.config(); err != nil {
		t.Fatal(err)
	}
	if cfg.TailDelay >= 0 || cfg.Gather >= 0 || cfg.Source.IsValid() {
		t.Errorf("off: %+v", cfg)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]size{"65536": 65536, "64KiB": 64 << 10, "1MiB": 1 << 20, "0": 0, "2047MiB": 2047 << 20} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "1M", "1.5MiB", "-1", "2048MiB", "2147483648", "1 MiB", "1KiBKiB"} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d, want an error", text, got)
		}
	}
}
