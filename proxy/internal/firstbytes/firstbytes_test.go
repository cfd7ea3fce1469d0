package firstbytes_test

import (
	"crypto/tls"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
)

// all is a recogniser of everything.
var all = firstbytes.New(firstbytes.Wants{
	Protocols: 1<<firstbytes.Silence - 1, Host: true, Startup: true,
	Patterns: []firstbytes.Pattern{{Offset: 4, Bytes: []byte("RFB")}, {Bytes: []byte{3, 0xf0}, Mask: []byte{0xff, 0xf0}}},
})

// startup makes a StartupMessage of version 3.
func startup(pairs ...string) string {
	body := strings.Join(pairs, "\x00") + "\x00\x00"
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(8+len(body))), 3<<16)) + body
}

func startupOf(n int) string { return request(3<<16, zeros(n-8)) }

func zeros(n int) string { return strings.Repeat("\x00", n) }

func request(code uint32, rest string) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(8+len(rest))), code)) + rest
}

// look returns the facts of bytes that come at once, and whether more may show more.
func look(b string) (f firstbytes.Facts, need int) {
	need = all.Look([]byte(b), &f)
	return f, need
}

func hello(t testing.TB) string {
	return string(clienthello.Of(t, &tls.Config{ServerName: "Shop.example.com", NextProtos: []string{"h2"}}))
}

// TestRecognised: the first bytes of each protocol are those of that one alone.
func TestRecognised(t *testing.T) {
	for sent, want := range map[string]firstbytes.Protocol{
		hello(t):                                 firstbytes.TLS,
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n":      firstbytes.HTTP1,
		"M-SEARCH * HTTP/1.1\r\n\r\n":            firstbytes.HTTP1,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":       firstbytes.HTTP2,
		"SSH-2.0-OpenSSH_10.0p2 Debian-7\r\n":    firstbytes.SSH,
		startup("user", "app"):                   firstbytes.Postgres,
		startupOf(8 + 1):                         firstbytes.Postgres,
		startupOf(10_004):                        firstbytes.Postgres,
		request(80877103, ""):                    firstbytes.Postgres,
		request(80877103, "x"):                   firstbytes.Postgres,
		request(80877104, zeros(9_996)):          firstbytes.Postgres,
		request(80877104, ""):                    firstbytes.Postgres,
		request(80877102, "12345678"):            firstbytes.Postgres,
		"*2\r\n$4\r\nLLEN\r\n$1\r\na\r\n":        firstbytes.Redis,
		"PING\r\n":                               firstbytes.Redis,
		"auth user password\r\n":                 firstbytes.Redis,
		"HELLO 3 AUTH default x SETNAME HTT\r\n": firstbytes.Redis,
	} {
		f, _ := look(sent)
		for p := range firstbytes.Protocols {
			if got := f.Is(p); got != firstbytes.If(p == want) {
				t.Errorf("%.20q: %v is %v", sent, p, got)
			}
		}
		if p, ok := f.Recognised(); !ok || p != want {
			t.Errorf("%.20q is %v, %v", sent, p, ok)
		}
	}
}

// TestUnrecognised: other protocols are none of these, and no doubt is left of that if their first line shows it.
func TestUnrecognised(t *testing.T) {
	for _, sent := range []string{
		"EHLO client.example\r\n", "USER anonymous\r\n", "ssh-2.0-x\r\n", "*1\r\n:1\r\n", "PINGS\r\n", strings.Repeat("A", 40) + "\r\n",
		"CONNECT {\"verbose\":false}\r\n", "SAY \u00fc\r\n", "gets a b\r\n", "MSH|^~&|\r\n",
	} {
		f, _ := look(sent)
		for p := range firstbytes.Protocols {
			if got := f.Is(p); got != firstbytes.No {
				t.Errorf("%.20q: %v is %v: %s", sent, p, got, f.Why)
			}
		}
	}
}

// TestDoubtful: bytes that some server may take for the beginning of a request are never said to be none.
func TestDoubtful(t *testing.T) {
	for _, sent := range []string{
		"\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00", // RDP
		"RFB 003.008\n", "\x10\x10\x00\x04MQTT", "AMQP\x00\x00\x09\x01", "\x00\x00\x00\x07\x00\x03\x00\x00", "\x00\x00\x00\x08\x00\x04\x00\x00",
		"GET /a\r\n", "Get a\r\n", "SET a b/c\r\n", "\x85GET /a HTTP/1.1\r\n", "\x0bA", "PRI * HTTP/2.0\r\n\r\nXX", "A\rb", strings.Repeat("A", firstbytes.MaxHead),
		"\x16\x03\x01 /\x02", "A\r\x00",
	} {
		f, _ := look(sent)
		if f.Is(firstbytes.HTTP1) != firstbytes.Doubt || f.Host.Verdict != firstbytes.Doubt || f.Path.Verdict != firstbytes.Doubt || f.Why == "" {
			t.Errorf("%.20q: http1 is %v, host %v: %s", sent, f.Is(firstbytes.HTTP1), f.Host.Verdict, f.Why)
		}
	}
	for _, sent := range []string{hello(t), startup("user", "app"), "SSH-2.0-Ruby/Net::SSH_7.0.1 x86_64-linux\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		if f, _ := look(sent); f.Is(firstbytes.HTTP1) != firstbytes.No {
			t.Errorf("%.20q: http1 is %v: %s", sent, f.Is(firstbytes.HTTP1), f.Why)
		}
		only := firstbytes.New(firstbytes.Wants{Protocols: firstbytes.SetOf(firstbytes.HTTP1)})
		var f firstbytes.Facts
		only.Look([]byte(sent), &f)
		want := firstbytes.No
		if sent[0] < ' ' {
			want = firstbytes.Doubt
		}
		if f.Is(firstbytes.HTTP1) != want {
			t.Errorf("%.20q, where binary protocols are not looked for: http1 is %v, want %v", sent, f.Is(firstbytes.HTTP1), want)
		}
	}
}

// TestPostgresLengths: a user is read in the longest message that a server takes, and what begins as a message and has a length that is not known to
// be of one is in doubt.
func TestPostgresLengths(t *testing.T) {
	t.Parallel()
	for size := 9_990; size <= 10_004; size++ {
		b := startup("user", "secret", "database", "shop", "x", strings.Repeat("x", size-len(startup("user", "secret", "database", "shop", "x", ""))))
		if f, _ := look(b); len(b) != size || f.User.Value != "secret" || f.Database.Value != "shop" {
			t.Errorf("%d bytes: user %v, database %v: %s", len(b), f.User, f.Database, f.Why)
		}
	}
	for _, code := range []uint32{1 << 16, 2 << 16, 3 << 16, 3<<16 | 2, 80877102, 80877103, 80877104, 80877105} {
		for _, size := range []uint32{0, 4, 7, 10_005, 20_000, 1<<24 - 1, 1<<24 + 4} {
			b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, size), code)
			f, need := look(string(b))
			if f.Is(firstbytes.Postgres) != firstbytes.Doubt || f.User.Verdict != firstbytes.Doubt || f.Database.Verdict != firstbytes.Doubt || f.Why == "" {
				t.Errorf("code %#x, %d bytes: %v, user %v, database %v, need %d", code, size, f.Is(firstbytes.Postgres), f.User, f.Database, need)
			}
		}
	}
}

// TestInlineRedis: what a server of Redis takes for a command is recognised, or in doubt.
func TestInlineRedis(t *testing.T) {
	for sent, want := range map[string]firstbytes.Verdict{
		"\"PING\"\r\n": firstbytes.Doubt, "'PING'\r\n": firstbytes.Doubt, "P\"ING\"\r\n": firstbytes.Doubt, "*0\r\n*1\r\n$4\r\nPING\r\n": firstbytes.Doubt,
		"*-1\r\n*1\r\n$4\r\nPING\r\n": firstbytes.Doubt, "\r\nPING\r\n": firstbytes.Doubt, " PING\r\n": firstbytes.Doubt, "set x y\n": firstbytes.Doubt,
		"PING\t\r\n": firstbytes.Yes, "*1\rX$4\rXPING\r\n": firstbytes.Yes, "EHLO x\r\n": firstbytes.No, "GET / HTTP/1.1\r\n": firstbytes.No, "*01\r\n": firstbytes.Doubt, "*10000000\r\n": firstbytes.Doubt,
		"json.get k\r\n": firstbytes.Doubt, "HSETEX k\r\n": firstbytes.Doubt, "a.b c\r\n": firstbytes.No,
		"SET k HTTP/1.1\r\n": firstbytes.Doubt, "PING HTTP/1.1\r\n": firstbytes.Doubt,
	} {
		if f, _ := look(sent); f.Is(firstbytes.Redis) != want {
			t.Errorf("%q: %v, want %v", sent, f.Is(firstbytes.Redis), want)
		}
	}
}

// TestMethods: any token of any length is a method.
func TestMethods(t *testing.T) {
	for _, method := range []string{"get", "G1", "1", "A!#$%&'*+.^`|~-_", strings.Repeat("A", 33), strings.Repeat("A", 4000), "*1", "SSH-2.0"} {
		f, _ := look(method + " /a HTTP/1.1\r\nHost: a\r\n\r\n")
		if f.Is(firstbytes.HTTP1) != firstbytes.Yes || f.Path.Value != "/a" || f.Host.Value != "a" {
			t.Errorf("%.20q: %v, path %v", method, f.Is(firstbytes.HTTP1), f.Path)
		}
	}
}

// TestPatterns: a pattern is compared where it is to be, and as early as it can.
func TestPatterns(t *testing.T) {
	for sent, want := range map[string][2]firstbytes.Verdict{
		"RFB ":         {firstbytes.Open, firstbytes.No},
		"0123RFB":      {firstbytes.Yes, firstbytes.No},
		"0123X":        {firstbytes.No, firstbytes.No},
		"\x03":         {firstbytes.Open, firstbytes.Open},
		"\x03\xf7":     {firstbytes.Open, firstbytes.Yes},
		"\x03\xe0":     {firstbytes.Open, firstbytes.No},
		"\x03\xf0\x00": {firstbytes.Open, firstbytes.Yes},
	} {
		f, _ := look(sent)
		for i, v := range want {
			if got := f.Matches(all, i); got != v {
				t.Errorf("%q: pattern %d is %v, want %v", sent, i, got, v)
			}
		}
		if f.Matches(firstbytes.New(firstbytes.Wants{}), 0) != firstbytes.Open {
			t.Error("a pattern of another recogniser is known")
		}
	}
}
