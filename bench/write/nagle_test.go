package write

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestNagle: Nagle's algorithm delays write-write-read, and does not delay gathered writes. An
// acknowledgement is delayed for at least 40 ms (include/net/tcp.h, TCP_DELACK_MIN). Other work on the machine delays both, so
// there are ten attempts.
func TestNagle(t *testing.T) {
	const rounds = 20
	before, after, err := Nagle(t.Context(), rounds)
	for range 9 {
		if err == nil && after.P50 > 20*time.Millisecond {
			before, after, err = Nagle(t.Context(), rounds)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("write-write-read: p50 %v, p99 %v, worst %v; gathered: p50 %v, p99 %v, worst %v",
		before.P50, before.P99, before.Max, after.P50, after.P99, after.Max)
	if before.P50 < 20*time.Millisecond {
		t.Errorf("half of the exchanges took less than %v: Nagle's algorithm was not at work", before.P50)
	}
	if after.P50 > 20*time.Millisecond {
		t.Errorf("half of the gathered exchanges took more than %v", after.P50)
	}
}

func TestNagleEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := Nagle(ctx, 1<<20); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	if _, _, err := Nagle(t.Context(), 0); err == nil {
		t.Error("0 rounds are accepted")
	}
}

func BenchmarkWriteWriteRead(b *testing.B) {
	before, after, err := Nagle(b.Context(), max(b.N, 1))
	if err != nil {
		b.Fatal(err)
	}
	for name, d := range map[string]time.Duration{
		"before-p50-µs": before.P50, "before-p99-µs": before.P99, "after-p50-µs": after.P50, "after-p99-µs": after.P99,
	} {
		b.ReportMetric(float64(d.Nanoseconds())/1e3, name)
	}
	b.ReportMetric(0, "ns/op")
}
