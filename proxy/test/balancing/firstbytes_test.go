package balancing

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
)

// TestFirstBytesAsServersRead: whatever first bytes a server of a protocol serves, they are not taken for another
// protocol, except for this one or in doubt. (For TLS there are the differential tests of proxy/clienthello, for HTTP/1
// testEvasion.)
func TestFirstBytesAsServersRead(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: what servers read is the same for every user; the run without -short has it")
	}
	for name, test := range map[string]func(*testing.T){"redis": redisReads, "postgres": postgresReads, "ssh": sshReads, "http2": http2Reads} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// servedBytes compares a server and its recogniser: the server serves first bytes if its answer to them says so. It returns how many were served.
func servedBytes(t *testing.T, of firstbytes.Protocol, addr string, inputs []string, served func(answer string) bool) (n int) {
	t.Helper()
	recogniser := firstbytes.New(firstbytes.Wants{Protocols: firstbytes.SetOf(of)})
	for _, sent := range inputs {
		var f firstbytes.Facts
		recogniser.Look([]byte(sent), &f)
		answer := answerTo(t, addr, sent)
		if !served(answer) {
			continue
		}
		if n++; f.Is(of) == firstbytes.No {
			t.Errorf("%.60q is said to be none of %v, and the server serves it: %.60q", sent, of, answer)
		}
	}
	if n == 0 {
		t.Error("the server has served nothing")
	}
	return n
}

// badPing is a frame of HTTP/2 that ends the connection.
const badPing = "\x00\x00\x01\x06\x00\x00\x00\x00\x00x"

// answerTo returns all that a server sends to a client that sends some bytes, and nothing more.
func answerTo(t *testing.T, addr, sent string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(5*time.Minute)))
	if _, err := io.WriteString(c, sent); err == nil && !strings.HasSuffix(sent, badPing) { // nginx answers none that ends
		_ = c.(*net.TCPConn).CloseWrite()
	}
	b, _ := io.ReadAll(c) // as far as a reset, which is an answer as well
	return string(b)
}

func redisReads(t *testing.T) {
	s := newStore(t)
	var inputs []string
	for _, before := range []string{"", "\r\n", "\n", "\r", " ", "\t", "\v", "\f", "\x00", "\x1f", "\x85", "\xa0", "\x00\r\n", "*0\r\n", "*-1\r\n", "*-5\r\n", "*00\r\n", "\"\"\r\n"} {
		for _, command := range []string{
			"PING\r\n", "ping\n", "PiNg \r\n", "PING\t\r\n", "PING\v\r\n", "PING\r\r\n", "PING\x00\r\n", "PING\x00x\r\n", "PING x\r\n", "PING 'x y'\r\n", `"PING"` + "\r\n", "'PING'\r\n", `P"ING"` + "\r\n",
			`"\x50ING"` + "\r\n", "*1\r\n$4\r\nPING\r\n", "*1\rX$4\rXPINGXX", "*1\n$4\nPING\n", "*+1\r\n$4\r\nPING\r\n", "* 1\r\n$4\r\nPING\r\n", "*1 \r\n$4\r\nPING\r\n", "*01\r\n$4\r\nPING\r\n",
			"*1\r\n$04\r\nPING\r\n", "*1\r\n$+4\r\nPING\r\n", "*1\r\n$ 4\r\nPING\r\n", "*1\r\n\r\n$4\r\nPING\r\n", "*0x1\r\n$4\r\nPING\r\n", "*2\r\n$4\r\nPING\r\n$1\r\nx\r\n",
		} {
			inputs = append(inputs, before+command)
		}
	}
	pong := func(answer string) bool { return answer != "" && !strings.HasPrefix(answer, "-ERR") }
	t.Logf("%d of %d are served", servedBytes(t, firstbytes.Redis, s.addr, inputs, pong), len(inputs))
	recogniser := firstbytes.New(firstbytes.Wants{Protocols: firstbytes.SetOf(firstbytes.Redis)})
	names := strings.Fields(software.Run(t, software.Need(t, "redis-cli", "redis-tools"), "-p", s.port, "-h", strings.TrimSuffix(s.addr, ":"+s.port), "COMMAND", "LIST"))
	if len(names) < 100 {
		t.Fatalf("the server has the commands %q", names)
	}
	for _, name := range names {
		if strings.Contains(name, "|") { // a part of one
			continue
		}
		for _, line := range []string{name + "\r\n", strings.ToUpper(name) + " x\r\n", name + "\n"} {
			var f firstbytes.Facts
			recogniser.Look([]byte(line), &f)
			if f.Is(firstbytes.Redis) == firstbytes.No {
				t.Errorf("%q is said to be none of Redis, which has this command", line)
			}
		}
	}
	// The exception of docs/first-bytes.md: an error does not end the connection.
	if answer := answerTo(t, s.addr, "FOO\r\nPING\r\n"); !strings.HasPrefix(answer, "-ERR unknown command") || !strings.HasSuffix(answer, "+PONG\r\n") {
		t.Errorf("an unknown command before another one: %q", answer)
	}
}

func postgresReads(t *testing.T) {
	database, _, _ := newNodes(t)
	database.initdb()
	database.serve()
	var inputs []string
	refused := make(map[string]bool) // by its length
	for _, size := range []uint32{0, 4, 7, 8, 9, 12, 16, 17, 30, 64, 268, 300, 9_999, 10_000, 10_003, 10_004, 10_005, 20_000, 1<<24 - 1, 1 << 24, 1<<24 + 4, 1<<24 + 5, 2<<24 + 40, 1 << 30, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		for _, code := range []uint32{1 << 16, 2 << 16, 3 << 16, 3<<16 | 1, 3<<16 | 2, 3<<16 | 9999, 4 << 16, 80877100, 80877102, 80877103, 80877104, 80877105, 0x47455420} {
			b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, size), code)
			b = append(b, "user\x00penstock\x00database\x00postgres\x00"...)
			for len(b) < 20_000 {
				b = append(b, 0)
			}
			sent := string(b)
			if size > 8 && size < uint32(len(b)) {
				sent = sent[:size]
			}
			inputs = append(inputs, sent)
			refused[sent] = size < 8 || size > 10_004
		}
	}
	n := 0
	servedBytes(t, firstbytes.Postgres, database.addr, inputs, func(answer string) bool {
		sent := inputs[n]
		if n++; refused[sent] && answer != "" {
			t.Errorf("%.12q: the server answers a message of a length that it is said to close at: %q", sent, answer)
		}
		return answer != "" && !strings.Contains(answer, "C0A000\x00") // feature_not_supported: a version that it does not speak
	})
}

func sshReads(t *testing.T) {
	inputs := []string{"SSH-2.0-x\r\n", "SSH-2.0-x\n", "SSH-1.99-x\r\n", "SSH-2.0-\r\n", "ssh-2.0-x\r\n", "\r\nSSH-2.0-x\r\n", " SSH-2.0-x\r\n", "\x00SSH-2.0-x\r\n", "hello\r\nSSH-2.0-x\r\n", "SSH 2.0-x\r\n"}
	n := servedBytes(t, firstbytes.SSH, newShell(t).addr, inputs, func(answer string) bool { return strings.Contains(answer, "ssh-ed25519") }) // its offer of keys
	t.Logf("%d of %d are served", n, len(inputs))
}

func http2Reads(t *testing.T) {
	const preface, settings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	var inputs []string
	for _, form := range []string{preface, "\r\n" + preface, " " + preface, "pri * http/2.0\r\n\r\nsm\r\n\r\n", "PRI  * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0\n\nSM\n\n", "PRI * HTTP/2.0\r\n\r\n", "PRI / HTTP/2.0\r\n\r\nSM\r\n\r\n", ""} {
		inputs = append(inputs, form+settings+badPing)
	}
	n := servedBytes(t, firstbytes.HTTP2, answering(t, "http2", "http2"), inputs, func(answer string) bool { return strings.Contains(answer, "\x04\x01\x00\x00\x00\x00") }) // it has taken them
	t.Logf("%d of %d are served", n, len(inputs))
}
