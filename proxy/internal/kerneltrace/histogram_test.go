package kerneltrace

import (
	"math/bits"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// bucketOf is record of bpf/trace.c.
func bucketOf(ns uint64) int {
	if ns < 128 {
		return 0
	}
	power := bits.Len64(ns) - 1
	return min((power-7)<<2+int(ns>>(power-2)&3), 127)
}

// TestBuckets: a duration is below the end of its bucket, and at least at that of the one before.
func TestBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Uint64Range(0, 1<<50).Draw(t, "ns")
		i := bucketOf(ns)
		if d := time.Duration(ns); d >= bucketEnd(i) || i > 0 && d < bucketEnd(i-1) {
			t.Errorf("%d ns is in bucket %d, from %d to %d", ns, i, bucketEnd(i-1), bucketEnd(i))
		}
	})
}

func TestQuantile(t *testing.T) {
	var h Histogram
	if h.Quantile(0.99) != 0 {
		t.Error("an empty one has a quantile")
	}
	for i := range 100 {
		d := time.Duration(i+1) * time.Millisecond
		h.buckets[bucketOf(uint64(d))]++
		h.Count, h.Max = h.Count+1, d
	}
	if q := h.Quantile(0.5); q < 50*time.Millisecond || q > 63*time.Millisecond {
		t.Errorf("the median is %v", q)
	}
	if q := h.Quantile(1); q != 100*time.Millisecond {
		t.Errorf("the maximum is %v", q)
	}
	h.Add(&h)
	if h.Count != 200 || h.Max != 100*time.Millisecond {
		t.Errorf("%d, %v", h.Count, h.Max)
	}
}

func TestParseRow(t *testing.T) {
	const v4 = "   0: 0100007F:1F90 0200000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 20 4 30 10 -1"
	row, ok := parseRow(v4)
	if !ok || row.Local != netip.MustParseAddrPort("127.0.0.1:8080") || row.Remote != netip.MustParseAddrPort("10.0.0.2:50000") || row.inode != 4711 || row.Listens {
		t.Errorf("%+v, %v", row, ok)
	}
	const v6 = "   1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 9 1 0 100 0 0 10 0"
	row, ok = parseRow(v6)
	if !ok || row.Local != netip.MustParseAddrPort("[::]:80") || !row.Listens || len(row.places()) != 2 {
		t.Errorf("%+v, %v", row, ok)
	}
	if _, ok = parseRow("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"); ok {
		t.Error("the head is a row")
	}
}

// FuzzParseRow: no text makes it fail otherwise than by saying so.
func FuzzParseRow(f *testing.F) {
	f.Add("   0: 0100007F:1F90 0200000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 20 4 30 10 -1")
	f.Fuzz(func(t *testing.T, line string) {
		if row, ok := parseRow(line); ok && !row.Local.IsValid() {
			t.Errorf("%q is a row without an address", line)
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, text := range []string{"127.0.0.1", "::1", "2001:db8::5", "0.0.0.0", "::"} {
		a := netip.MustParseAddr(text)
		if got := addressOf(words(a)); got != a {
			t.Errorf("%v becomes %v", a, got)
		}
	}
}
