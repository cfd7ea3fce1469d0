package firstbytes_test

import (
	"testing"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
)

// FuzzFirstBytes: bytes that come one by one show what they show at once, the recogniser asks for no more than it needs,
// what is known once stays so, and net/http reads the same in a request.
func FuzzFirstBytes(f *testing.F) {
	for _, seed := range []string{
		hello(f), line + "Host: a.example\r\nX: y\r\n\r\nbody", "GET http://a.example/%41?x HTTP/1.0\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"SSH-2.0-x\r\n", startup("user", "app", "database", "shop"), request(80877103, ""), request(80877102, "12345678"),
		"*2\r\n$4\r\nLLEN\r\n$1\r\na\r\n", "PING\r\n", "A 0 HTTP/1.0\r\n\n", "\x000", "A A000: HTTP/1.0\r\n\r\n", "CONNECT a:1 HTTP/1.0\r\n\r\n", "0123RFB", "\r\nGET / HTTP/1.1\r\n", "\x0cGET\x1c/ HTTP/1.1\r\n", "A\r", "EHLO a\r\n", "\"PING\"\r\n", "*0\r\n*1\r\n$4\r\nPING\r\n", "\x16\x03\x01 /", "\x03\xf7",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), all.Max())]
		whole, need := look(string(b))
		asRead(t, b, &whole)
		if need > all.Max() || need != 0 && need <= len(b) {
			t.Fatalf("%d bytes asked for, after %d", need, len(b))
		}
		if len(b) == all.Max() && need != 0 {
			t.Fatal("never content")
		}
		dripped(t, b, &whole)
	})
}

// dripped holds the facts of bytes that come one by one against those of all, by a recogniser that looks each time
// and by one that looks when it has asked to.
func dripped(t *testing.T, b []byte, whole *firstbytes.Facts) {
	t.Helper()
	var each, asked, before firstbytes.Facts
	next := 1
	for n := 1; n <= len(b); n++ {
		all.Look(b[:n], &each)
		for p := range firstbytes.Silence {
			if was := before.Is(p); was != firstbytes.Open && was != each.Is(p) {
				t.Fatalf("after %d bytes %v is %v, and was %v", n, p, each.Is(p), was)
			}
		}
		before = each
		if n == next {
			if next = all.Look(b[:n], &asked); next == 0 {
				next = -1
			}
		}
		if tls := each.Is(firstbytes.TLS); asked.Is(firstbytes.TLS) == firstbytes.Open && (tls == firstbytes.No || tls == firstbytes.Doubt) {
			continue // what begins like a hello is waited for as its length says
		}
		if known(&asked) != known(&each) {
			t.Fatalf("after %d bytes: %+v, and who waits for what was asked for knows %+v", n, known(&each), known(&asked))
		}
	}
	if len(b) > 0 && known(&each) != known(whole) {
		t.Fatalf("byte by byte: %+v, at once %+v", known(&each), known(whole))
	}
}

// Known is what facts say.
type Known struct {
	verdicts                   [firstbytes.Silence]firstbytes.Verdict
	host, path, user, database firstbytes.Property
	request                    firstbytes.PostgresRequest
	patterns                   [2]firstbytes.Verdict
	name                       string
}

func known(f *firstbytes.Facts) (k Known) {
	for p := range firstbytes.Silence {
		k.verdicts[p] = f.Is(p)
	}
	for i := range k.patterns {
		k.patterns[i] = f.Matches(all, i)
	}
	k.host, k.path, k.user, k.database, k.request, k.name = f.Host, f.Path, f.User, f.Database, f.Request, f.Hello.ServerName
	return k
}
