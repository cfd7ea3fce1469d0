package traffic_test

import (
	"bytes"
	"testing"

	"github.com/penstock/penstock/bench/traffic"
)

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		in   string
		want traffic.Kind
	}{
		{"", traffic.KindUnknown},
		{"b", traffic.KindUnknown},
		{"bulk", traffic.KindUnknown},
		{"bulk ", traffic.KindBulk},
		{"bulk 12\n", traffic.KindBulk},
		{"bulky", traffic.KindEcho},
		{"o", traffic.KindUnknown},
		{"once 64\n", traffic.KindOnce},
		{"GET / HTTP/1.1\r\n", traffic.KindEcho},
		{"hello\n", traffic.KindEcho},
		{"\n", traffic.KindEcho},
	} {
		if got := traffic.Classify([]byte(test.in)); got != test.want {
			t.Errorf("%q: got %d, want %d", test.in, got, test.want)
		}
	}
}

func TestBulkRequestRoundTrip(t *testing.T) {
	for _, seed := range []uint32{0, 1, 65521, 1<<32 - 1} {
		line := traffic.AppendBulk(nil, seed)
		if len(line) > traffic.MaxRequest || line[len(line)-1] != '\n' {
			t.Errorf("%q is too long or not a line", line)
		}
		if got, err := traffic.ParseBulk(line); err != nil || got != seed {
			t.Errorf("%q: got %d, %v", line, got, err)
		}
	}
}

func TestRequestsRoundTrip(t *testing.T) {
	for _, n := range []uint32{0, 1, 65521, 1<<32 - 1} {
		once := traffic.AppendOnce(nil, n)
		if got, err := traffic.ParseOnce(once); err != nil || got != n || traffic.Classify(once) != traffic.KindOnce {
			t.Errorf("%q: got %d, %v", once, got, err)
		}
	}
	if _, err := traffic.ParseOnce(traffic.AppendBulk(nil, 1)); err == nil {
		t.Error("one request is taken for another")
	}
}

func TestTrailerRoundTrip(t *testing.T) {
	for _, n := range []int64{0, 1, 1 << 40} {
		b := traffic.AppendTrailer(nil, n)
		if got := traffic.ParseTrailer(b); len(b) != traffic.TrailerSize || got != n {
			t.Errorf("%d became %d", n, got)
		}
	}
}

func FuzzParseBulk(f *testing.F) {
	for _, s := range []string{"bulk 1\n", "bulk -1\n", "bulk 4294967296\n", "bulk \n", "bulk 1\r\n", "echo\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		seed, err := traffic.ParseBulk(line)
		if err != nil {
			return
		}
		if traffic.Classify(line) != traffic.KindBulk {
			t.Errorf("%q is parsed as a bulk request, but not classified as one", line)
		}
		again, err := traffic.ParseBulk(traffic.AppendBulk(nil, seed))
		if err != nil || again != seed {
			t.Errorf("%q: %d became %d, %v", line, seed, again, err)
		}
		if !bytes.HasPrefix(line, []byte("bulk ")) {
			t.Errorf("%q is not a bulk request", line)
		}
	})
}
