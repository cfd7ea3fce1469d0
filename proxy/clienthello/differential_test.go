package clienthello_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	hellos "github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/clienthello"
)

// known is the name by which a client is routed, as far as the first bytes show it: refused says that it never has a route by sni, nor one
// for clients without a name.
func known(b []byte) (name string, refused bool) {
	info, err := clienthello.Parse(b)
	return info.ServerName, err != nil && !errors.Is(err, clienthello.ErrNotTLS)
}

// agrees compares what a server has read with what is known, and reports whether the client has a route.
func agrees(t *testing.T, server, what string, b []byte, saw bool, name string) (routed bool) {
	t.Helper()
	got, refused := known(b)
	if want := strings.TrimSuffix(strings.ToLower(name), "."); saw && !refused && got != want {
		t.Errorf("%s: %s reads the name %q, and the client is routed by %q\n%.600x", what, server, name, got, b)
	}
	return !refused
}

// heard is a connection of which a server reads b, and then the end.
type heard struct {
	hellos.Recorder
	b []byte
}

func (h *heard) Read(p []byte) (int, error) {
	if len(h.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, h.b)
	h.b = h.b[n:]
	return n, nil
}

// goServer returns the name that a server of crypto/tls reads.
func goServer(b []byte) (name string, saw bool) {
	_ = tls.Server(&heard{b: b}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, saw = h.ServerName, true
		return nil, io.EOF
	}}).HandshakeContext(context.Background())
	return name, saw
}

// A hello is a ClientHello in parts, which a test may change.
type hello struct {
	head       []byte // from the version to the compression methods
	extensions []extension
}

type extension struct {
	kind uint16
	body []byte
}

// apart takes a hello in one record apart.
func apart(b []byte) (h hello) {
	at := 9 + 2 + 32
	at += 1 + int(b[at])
	at += 2 + int(binary.BigEndian.Uint16(b[at:]))
	at += 1 + int(b[at])
	h.head = slices.Clone(b[9:at])
	for rest := b[at+2:]; len(rest) > 0; {
		n := int(binary.BigEndian.Uint16(rest[2:]))
		h.extensions = append(h.extensions, extension{binary.BigEndian.Uint16(rest), slices.Clone(rest[4 : 4+n])})
		rest = rest[4+n:]
	}
	return h
}

// with returns the hello with extensions in place of those of their kinds, or behind all others.
func (h hello) with(more ...extension) hello {
	h.extensions = slices.DeleteFunc(slices.Clone(h.extensions), func(e extension) bool {
		return slices.ContainsFunc(more, func(o extension) bool { return o.kind == e.kind })
	})
	h.extensions = append(h.extensions, more...)
	return h
}

// message is the handshake message, with garbage behind its extensions.
func (h hello) message(garbage ...byte) []byte {
	var all []byte
	for _, e := range h.extensions {
		all = binary.BigEndian.AppendUint16(all, e.kind)
		all = append(binary.BigEndian.AppendUint16(all, uint16(len(e.body))), e.body...)
	}
	body := binary.BigEndian.AppendUint16(slices.Clone(h.head), uint16(len(all)))
	body = append(append(body, all...), garbage...)
	return append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

// sni is the extension for entries of a name type and a name each.
func sni(entries ...string) extension {
	var list []byte
	for _, e := range entries {
		list = append(list, e[0])
		list = append(binary.BigEndian.AppendUint16(list, uint16(len(e)-1)), e[1:]...)
	}
	return extension{0, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)}
}

func host(name string) string { return "\x00" + name }

// inRecords cuts a message into records of n bytes.
func inRecords(message []byte, n int) (b []byte) {
	for piece := range slices.Chunk(message, n) {
		b = append(b, 22, 3, 1, byte(len(piece)>>8), byte(len(piece)))
		b = append(b, piece...)
	}
	return b
}

// padding is an extension that makes a hello n bytes longer.
func padding(kind uint16, n int) extension { return extension{kind, make([]byte, n-4)} }

// odd are hellos, and what is not one, as clients send them that want to be taken for others.
func odd(t *testing.T) map[string][]byte {
	const whole = 1 << 14
	usual := apart(says(t, &tls.Config{ServerName: "admin.example", NextProtos: []string{"h2", "http/1.1"}}))
	plain := usual.message()
	sent := inRecords(plain, whole)
	before := func(records ...byte) []byte { return append(records, sent...) }
	within := func(record ...byte) []byte {
		return slices.Concat(inRecords(plain[:50], whole), record, inRecords(plain[50:], whole))
	}
	version := func(major, minor byte) []byte {
		b := slices.Clone(sent)
		b[1], b[2] = major, minor
		return b
	}
	nameless := usual
	nameless.extensions = nil
	all := map[string][]byte{
		"usual": sent, "with more behind it": append(slices.Clone(sent), 20, 3, 3, 0, 1, 1),
		"16 records": inRecords(plain, len(plain)/16+1), "17 records": inRecords(plain, len(plain)/17+1), "records of one byte": inRecords(plain, 1), "records of seven": inRecords(plain, 7),
		"17 KB": inRecords(usual.with(padding(21, 17<<10)).message(), whole), "60 KB": inRecords(usual.with(padding(21, 60<<10)).message(), whole),
		"60 KB in small records": inRecords(usual.with(padding(21, 60<<10)).message(), 100),
		"64 KiB":                 inRecords(usual.with(padding(21, 1<<16-len(plain)-100)).message(), whole), "more": inRecords(usual.with(padding(21, 40<<10), padding(0x0a0a, 40<<10)).message(), whole),
		"capitals": inRecords(usual.with(sni(host("ADMIN.Example"))).message(), whole), "a dot": inRecords(usual.with(sni(host("admin.example."))).message(), whole),
		"a dot in records of ten": inRecords(usual.with(sni(host("Admin.Example."))).message(), 10),
		"two dots":                inRecords(usual.with(sni(host("admin.example.."))).message(), whole), "only a dot": inRecords(usual.with(sni(host("."))).message(), whole),
		"a space": inRecords(usual.with(sni(host("admin.example "))).message(), whole), "a zero": inRecords(usual.with(sni(host("admin.example\x00"))).message(), whole),
		"no ASCII": inRecords(usual.with(sni(host("admın.example"))).message(), whole), "Kelvin": inRecords(usual.with(sni(host("\u212a.example"))).message(), whole),
		"an empty name": inRecords(usual.with(sni(host(""))).message(), whole), "no names": inRecords(usual.with(sni()).message(), whole), "an empty extension": inRecords(usual.with(extension{0, nil}).message(), whole),
		"a long name": inRecords(usual.with(sni(host(strings.Repeat("a.", 127)+"b"))).message(), whole), "too long a name": inRecords(usual.with(sni(host(strings.Repeat("a.", 130)+"b"))).message(), whole),
		"two names": inRecords(usual.with(sni(host("public.example"), host("admin.example"))).message(), whole), "another type of name": inRecords(usual.with(sni("\x01public.example", host("admin.example"))).message(), whole),
		"another type behind":  inRecords(usual.with(sni(host("admin.example"), "\x01public.example")).message(), whole),
		"two SNI":              inRecords(usual.with(sni(host("public.example")), sni(host("admin.example"))).message(), whole),
		"a byte behind":        inRecords(usual.with(extension{0, append(sni(host("public.example")).body, 0)}).message(), whole),
		"a list that is short": inRecords(usual.with(extension{0, []byte("\x00\x0f\x00\x00\x0fadmin.example")}).message(), whole),
		"grease":               inRecords(usual.with(extension{0x0a0a, nil}, extension{0x1a1a, []byte{0}}).message(), whole), "a twin of grease": inRecords(usual.with(extension{0x0a0a, nil}, extension{0x0a0a, nil}).message(), whole),
		"a malformed group": inRecords(usual.with(extension{10, []byte{0, 9, 1}}).message(), whole), "a malformed key": inRecords(usual.with(extension{51, []byte{0}}).message(), whole),
		"malformed protocols": inRecords(usual.with(extension{16, []byte{0, 3, 0, 1, 'x'}}).message(), whole), "a malformed ticket": inRecords(usual.with(extension{41, []byte{1}}).message(), whole),
		"no extensions": inRecords(nameless.message(), whole), "garbage behind": inRecords(usual.message(0, 0, 0, 0), whole),
		"a short length":  slices.Concat([]byte{22, 3, 1}, binary.BigEndian.AppendUint16(nil, uint16(len(plain)-1)), plain),
		"another message": inRecords(append([]byte{0, 0, 0, 0}, plain...), whole), "twice": append(slices.Clone(sent), inRecords(usual.with(sni(host("public.example"))).message(), whole)...),
		"two in a record": inRecords(append(usual.with(sni(host("public.example"))).message(), plain...), whole),
		"a warning":       before(21, 3, 1, 0, 2, 1, 90), "five warnings": before(slices.Repeat([]byte{21, 3, 3, 0, 2, 1, 90}, 5)...), "a closing": before(21, 3, 1, 0, 2, 1, 0), "an alert": before(21, 3, 1, 0, 2, 2, 40),
		"a warning of version 2": before(21, 2, 0, 0, 2, 1, 90),
		"a change of the cipher": before(20, 3, 3, 0, 1, 1), "data": before(23, 3, 3, 0, 1, 1), "a heartbeat": before(24, 3, 3, 0, 3, 1, 0, 0), "an empty record": before(22, 3, 1, 0, 0),
		"a warning within": within(21, 3, 1, 0, 2, 1, 90), "a change within": within(20, 3, 3, 0, 1, 1), "an empty record within": within(22, 3, 1, 0, 0),
		"a new line": before('\r', '\n'), "a header": before([]byte("PROXY UNKNOWN\r\n")...), "a request": before([]byte("GET / HTTP/1.1\r\n\r\n")...),
		"SSLv2":   {0x80, 0x2e, 1, 3, 3, 0, 0x15, 0, 0, 0, 0x10, 0, 0, 0x2f, 0, 0, 0x35, 0, 0, 0x3c, 0, 0xc0, 0x2f, 0, 0xc0, 0x30, 0, 0x13, 1, 0, 0, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		"nothing": nil, "zeros": make([]byte, 600),
	}
	all["SSLv2, and a hello"] = append(slices.Clone(all["SSLv2"]), sent...)
	for _, major := range []byte{0, 1, 2, 4, 0xf, 0x10, 0x7f, 0xff} {
		all[fmt.Sprintf("version %d", major)] = version(major, 1)
	}
	for i := range 256 {
		b := slices.Clone(sent)
		b[0] = byte(i)
		all[fmt.Sprintf("a record of type %d", i)] = b
	}
	return all
}

// TestServersSeeTheNameOfTheRoute: whatever name a TLS server reads in a client's first bytes is the name by which the client is routed, or
// the client is refused: crypto/tls and OpenSSL, for odd hellos, for hellos cut in two records at each byte, and for such as are changed by chance.
// PENSTOCK_DEEP=1 has hundreds of times as many.
func TestServersSeeTheNameOfTheRoute(t *testing.T) {
	t.Parallel()
	deep := os.Getenv("PENSTOCK_DEEP") != ""
	all := odd(t)
	usual := apart(says(t, &tls.Config{ServerName: "admin.example", NextProtos: []string{"h2"}})).with(sni(host("Admin.Example.")))
	plain := usual.message()
	for at := 1; at < len(plain); at++ {
		all[fmt.Sprintf("cut at %d", at)] = append(inRecords(plain[:at], at), inRecords(plain[at:], len(plain))...)
	}
	t.Run("crypto/tls", func(t *testing.T) {
		t.Parallel()
		routed := 0
		look := func(what string, b []byte) {
			name, saw := goServer(b)
			if agrees(t, "crypto/tls", what, b, saw, name) && saw {
				routed++
			}
		}
		for what, b := range all {
			look(what, b)
		}
		dice := rand.New(rand.NewPCG(7, 7))
		n := 20_000
		if deep {
			n *= 100
		}
		list := samples(t)
		for range n {
			look("changed by chance", mutant(dice, list))
		}
		if routed < 1000 {
			t.Errorf("%d clients had a route", routed)
		}
	})
	t.Run("OpenSSL", func(t *testing.T) {
		t.Parallel()
		s := startOpenSSL(t)
		for what, b := range all {
			if at, cut := strings.CutPrefix(what, "cut at "); cut && !deep && len(at)%2 == 0 {
				continue
			}
			name, saw := s.reads(t, b)
			agrees(t, "OpenSSL", what, b, saw, name)
		}
		dice := rand.New(rand.NewPCG(8, 8))
		n := 200
		if deep {
			n *= 100
		}
		list := samples(t)
		for range n {
			b := mutant(dice, list)
			name, saw := s.reads(t, b)
			agrees(t, "OpenSSL", "changed by chance", b, saw, name)
		}
		if s.named < 100 {
			t.Errorf("the server has read %d names", s.named)
		}
	})
}

// samples are hellos to be changed.
func samples(t *testing.T) [][]byte {
	a := says(t, &tls.Config{ServerName: "admin.example", NextProtos: []string{"h2", "http/1.1"}})
	return [][]byte{
		a, cut(a, 60), cut(a, 9), says(t, &tls.Config{ServerName: "admin.example", MaxVersion: tls.VersionTLS12}),
		inRecords(apart(a).with(sni(host("public.example"), host("admin.example"))).message(), 1<<14), append([]byte{21, 3, 1, 0, 2, 1, 90}, a...),
	}
}

// mutant is a hello of which a few bytes are changed, taken out, doubled, or cut off.
func mutant(dice *rand.Rand, list [][]byte) []byte {
	b := slices.Clone(list[dice.IntN(len(list))])
	name := max(strings.Index(string(b), "example")-16, 0)
	for range 1 + dice.IntN(3) {
		at := dice.IntN(len(b))
		if dice.IntN(2) == 0 {
			at = min(name+dice.IntN(40), len(b)-1) // about the name
		}
		switch dice.IntN(8) {
		case 0:
			b = slices.Delete(b, at, min(at+1+dice.IntN(4), len(b)))
		case 1:
			b = slices.Insert(b, at, b[at:min(at+1+dice.IntN(30), len(b))]...)
		case 2:
			b = b[:max(at, 1)]
		default:
			b[at] = [...]byte{0, 1, '.', 0xff, byte(dice.UintN(256)), b[at] + 1, b[at] - 1}[dice.IntN(7)]
		}
		if len(b) == 0 {
			return b
		}
	}
	return b
}

// An openSSL is a running server of OpenSSL, which serves a client at a time.
type openSSL struct {
	address string
	lines   chan string
	named   int
}

// startOpenSSL starts one that prints the names that clients ask for.
func startOpenSSL(t *testing.T) *openSSL {
	for _, program := range []string{"openssl", "stdbuf"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: %v", program, err)
		}
	}
	dir := t.TempDir()
	cert, key := certificate.New(t, "admin.example")
	for name, content := range map[string]string{"c.pem": cert, "k.pem": key} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	s := &openSSL{address: "127.0.0.1:" + sockets.Port(t), lines: make(chan string, 1000)}
	cmd := exec.Command("stdbuf", "-oL", "openssl", "s_server", "-accept", s.address, "-cert", "c.pem", "-key", "k.pem", "-cert2", "c.pem", "-key2", "k.pem", "-servername", "x", "-no_ticket")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	check(t, err)
	in, err := cmd.StdinPipe()
	check(t, err)
	cmd.Stderr = cmd.Stdout
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		in.Close()
		_ = cmd.Wait()
	})
	go func() {
		defer close(s.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.lines <- lines.Text()
		}
	}()
	s.until(t, "ACCEPT", func(string) {})
	return s
}

// until reads lines until one comes.
func (s *openSSL) until(t *testing.T, last string, each func(line string)) {
	t.Helper()
	for timeout := time.After(condition.Patience); ; {
		select {
		case line, ok := <-s.lines:
			if !ok {
				t.Fatal("the server of OpenSSL has ended")
			}
			if line == last {
				return
			}
			each(line)
		case <-timeout:
			t.Fatal("the server of OpenSSL says nothing")
		}
	}
}

// reads returns the name that the server reads in the first bytes of a client.
func (s *openSSL) reads(t *testing.T, b []byte) (name string, saw bool) {
	t.Helper()
	c, err := net.Dial("tcp", s.address)
	check(t, err)
	defer c.Close()
	_, _ = c.Write(b) // it may end before it has read all
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	s.until(t, "CONNECTION CLOSED", func(line string) {
		if rest, ok := strings.CutPrefix(line, `Hostname in TLS extension: "`); ok {
			name, saw = strings.TrimSuffix(rest, `"`), true
			s.named++
		}
	})
	return name, saw
}
