package traffic_test

import (
	"bytes"
	"math"
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
		{"script", traffic.KindUnknown},
		{"script {", traffic.KindScript},
		{"tell 1", traffic.KindTell},
		{"G", traffic.KindUnknown},
		{"GET / HTTP/1.1\r\n", traffic.KindHTTP},
		{"HEAD / HTTP/1.1\r\n", traffic.KindHTTP},
		{"GETTING", traffic.KindEcho},
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
	for _, n := range []uint64{0, 1, 65521, 1<<32 - 1} {
		once := traffic.AppendOnce(nil, uint32(n))
		if got, err := traffic.ParseOnce(once); err != nil || uint64(got) != n || traffic.Classify(once) != traffic.KindOnce {
			t.Errorf("%q: got %d, %v", once, got, err)
		}
		n <<= 31
		tell := traffic.AppendTell(nil, n)
		if got, err := traffic.ParseTell(tell); err != nil || got != n || traffic.Classify(tell) != traffic.KindTell {
			t.Errorf("%q: got %d, %v", tell, got, err)
		}
	}
	if _, err := traffic.ParseOnce(traffic.AppendTell(nil, 1)); err == nil {
		t.Error("one request is taken for another")
	}
}

func TestScriptRoundTrip(t *testing.T) {
	for _, s := range []traffic.Script{
		{},
		{Token: math.MaxUint64, Seed: math.MaxUint32, Give: math.MaxInt64, After: true, Slow: true, Reset: true},
	} {
		line := traffic.AppendScript(nil, s)
		if len(line) > traffic.MaxLine || line[len(line)-1] != '\n' {
			t.Errorf("%q is too long or not a line", line)
		}
		if got, err := traffic.ParseScript(line); err != nil || got != s || traffic.Classify(line) != traffic.KindScript {
			t.Errorf("%q: got %+v, %v", line, got, err)
		}
	}
}

func TestReportRoundTrip(t *testing.T) {
	want := traffic.Report{State: traffic.StateReset, Received: math.MaxInt64, Sum: make([]byte, 32), Sent: math.MaxInt64}
	line := traffic.AppendReport(nil, want)
	got, err := traffic.ParseReport(line)
	if err != nil || got.State != want.State || got.Received != want.Received || got.Sent != want.Sent || !bytes.Equal(got.Sum, want.Sum) {
		t.Errorf("%q: got %+v, %v", line, got, err)
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

func FuzzParseScript(f *testing.F) {
	for _, s := range []string{
		"script {\"token\":1,\"seed\":2,\"give\":3,\"after\":true}\n", "script {}\n", "script {\"give\":-1}\n",
		"script null\n", "script {\"token\":-1}\n", "script {}{}\n", "script\n", "bulk 1\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := traffic.ParseScript(line)
		if err != nil {
			return
		}
		if traffic.Classify(line) != traffic.KindScript || s.Give < 0 {
			t.Errorf("%q is parsed as %+v", line, s)
		}
		again, err := traffic.ParseScript(traffic.AppendScript(nil, s))
		if err != nil || again != s {
			t.Errorf("%q: %+v became %+v, %v", line, s, again, err)
		}
	})
}

func FuzzParseReport(f *testing.F) {
	for _, s := range []string{"{\"state\":\"open\",\"received\":1,\"sum\":\"AAAA\",\"sent\":2}\n", "{}", "[]", "{\"sum\":\"!\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := traffic.ParseReport(line)
		if err != nil {
			return
		}
		// A state of bytes that are no UTF-8 grows when it is written.
		out := traffic.AppendReport(nil, r)
		if len(out) > traffic.MaxLine {
			return
		}
		again, err := traffic.ParseReport(out)
		if err != nil || again.State != r.State || again.Received != r.Received || again.Sent != r.Sent || !bytes.Equal(again.Sum, r.Sum) {
			t.Errorf("%q: %+v became %+v, %v", line, r, again, err)
		}
	})
}

func FuzzParseNumbers(f *testing.F) {
	for _, s := range []string{"once 64\n", "once -1\n", "tell 18446744073709551615\n", "tell 18446744073709551616\n", "tell \n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if n, err := traffic.ParseOnce(line); err == nil {
			if again, err := traffic.ParseOnce(traffic.AppendOnce(nil, n)); err != nil || again != n || traffic.Classify(line) != traffic.KindOnce {
				t.Errorf("%q: %d became %d, %v", line, n, again, err)
			}
		}
		if n, err := traffic.ParseTell(line); err == nil {
			if again, err := traffic.ParseTell(traffic.AppendTell(nil, n)); err != nil || again != n || traffic.Classify(line) != traffic.KindTell {
				t.Errorf("%q: %d became %d, %v", line, n, again, err)
			}
		}
	})
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
