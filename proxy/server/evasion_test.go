package server_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// names is a TLS server that notes the names that its clients ask for, however it goes on.
type names struct {
	mu   sync.Mutex
	list []string
}

func (n *names) note(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, name)
}

func (n *names) seen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

// naming returns the address of a server that sends its own name to clients that have shaken hands.
func naming(t *testing.T, own string) (address string, asked *names) {
	t.Helper()
	cert, key := certificate.New(t, "admin.example")
	pair := pairOf(t, cert, key)
	asked = new(names)
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		asked.note(h.ServerName)
		return nil, nil
	}}
	return sockets.Server(t, func(c net.Conn) {
		s := tls.Server(c, cfg)
		fmt.Fprintf(s, "%s\n", own)
		sockets.Echo(s)
	}), asked
}

// guarded is a listener as an operator writes it for whom admin.example is for some sources alone.
const guarded = `
listeners:
  - name: web
    bind: "127.0.0.1:0"
    timeouts: {preread: %[3]s}
    routes:
      - {match: {sni: [admin.example], source: [10.0.0.0/8]}, upstream: admin}
      - {match: {sni: [admin.example]}, upstream: nowhere}
    upstream: rest
upstreams: [{name: admin, endpoints: [%[1]q]}, {name: nowhere, endpoints: ["127.0.0.1:1"], health_check: off}, {name: rest, endpoints: [%[2]q]}]`

// rewritten is a connection whose first written bytes are changed, in pieces that are written one after the other.
type rewritten struct {
	net.Conn
	change func(hello []byte) [][]byte
	done   bool
}

func (r *rewritten) Write(b []byte) (int, error) {
	if r.done {
		return r.Conn.Write(b)
	}
	r.done = true
	for _, piece := range r.change(b) {
		if _, err := r.Conn.Write(piece); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// cutHello cuts the message of a hello into records of n bytes.
func cutHello(b []byte, n int) (all []byte) {
	for piece := range slices.Chunk(b[5:], n) {
		all = append(binary.BigEndian.AppendUint16(append(all, 22, 3, 1), uint16(len(piece))), piece...)
	}
	return all
}

// TestNamesAreNotEvaded: no client that asks for a name with a route of its own gets to the upstream of those that no route matches, whatever
// its hello looks like: it has the route, or is refused.
func TestNamesAreNotEvaded(t *testing.T) {
	t.Parallel()
	rest, asked := naming(t, "rest")
	r := start(t, fmt.Sprintf(guarded, named(t, "admin"), rest, "1s"))
	long := slices.Repeat([]string{strings.Repeat("p", 250)}, 70) // more than 16 KiB
	whole := func(b []byte) [][]byte { return [][]byte{b} }
	for name, c := range map[string]struct {
		protocols []string
		change    func(b []byte) [][]byte
	}{
		"as it is":     {nil, whole},
		"17 records":   {nil, func(b []byte) [][]byte { return [][]byte{cutHello(b, (len(b)-5)/17)} }},
		"one byte":     {nil, func(b []byte) [][]byte { return [][]byte{cutHello(b, 1)} }},
		"above 16 KiB": {long, whole},
		"a warning":    {nil, func(b []byte) [][]byte { return [][]byte{append([]byte{21, 3, 1, 0, 2, 1, 90}, b...)} }},
		"version 2":    {nil, func(b []byte) [][]byte { b = slices.Clone(b); b[1] = 2; return [][]byte{b} }},
		"a dot": {nil, func(b []byte) [][]byte {
			return [][]byte{bytes.Replace(b, []byte("admin.example"), []byte("admin.exampl."), 1)}
		}},
		"a port": {nil, func(b []byte) [][]byte {
			return [][]byte{bytes.Replace(b, []byte("admin.example"), []byte("admin.exam:44"), 1)}
		}},
		"cut": {nil, func(b []byte) [][]byte { return [][]byte{b[:60]} }},
		"two names": {nil, func(b []byte) [][]byte {
			return [][]byte{bytes.Replace(b, []byte("\x00\x10\x00\x00\x0dadmin.example"), []byte("\x00\x10\x01\x00\x02xy\x00\x00\x08admin.ex"), 1)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := tls.Client(&rewritten{Conn: client(t, r.At("web")), change: c.change}, &tls.Config{ServerName: "admin.example", NextProtos: c.protocols, InsecureSkipVerify: true})
			if err := conn.Handshake(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("it is served: %v", err)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		t.Parallel()
		c := client(t, r.At("web"))
		_ = gone(t, c)
	})
	t.Cleanup(func() {
		for _, name := range asked.seen() {
			if strings.HasPrefix(name, "admin") {
				t.Errorf("the upstream of all others was asked for %q", name)
			}
		}
	})
}

// TestSilenceByLeave: a client that says nothing gets to the upstream of those that no route matches after preread_silence, if that is set
// and no route is for silence, and to no route by its first bytes.
func TestSilenceByLeave(t *testing.T) {
	t.Parallel()
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: leave, bind: "127.0.0.1:0", preread_silence: 20ms, routes: [{match: {sni: ["*"]}, upstream: b}], upstream: a}
  - {name: by-source, bind: "127.0.0.1:0", preread_silence: 20ms, routes: [{match: {sni: ["*"]}, upstream: b}, {match: {source: [127.0.0.0/8]}, upstream: a}, {match: {protocol: [ssh]}, upstream: b}]}
  - {name: none, bind: "127.0.0.1:0", timeouts: {preread: 1s}, routes: [{match: {sni: ["*"]}, upstream: b}], upstream: a}
  - {name: another, bind: "127.0.0.1:0", preread_silence: 20ms, timeouts: {preread: 1s}, routes: [{match: {sni: ["*"]}, upstream: b}, {match: {protocol: [silence], source: [10.0.0.0/8]}, upstream: b}], upstream: a}
upstreams: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}]`, named(t, "a"), named(t, "b")))
	for _, at := range []string{"leave", "by-source"} {
		servedBy(t, r.At(at), "a")
	}
	for _, at := range []string{"none", "another"} {
		gone(t, client(t, r.At(at)))
		r.Until("it is refused", func() bool { return r.Refused(at, "preread") == 1 })
	}
}

// TestMalformedTLS: clients whose bytes begin as TLS and show no valid hello are refused, or get to a route that names them, and to no other.
func TestMalformedTLS(t *testing.T) {
	t.Parallel()
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: refuses, bind: "127.0.0.1:0", routes: [{match: {sni: [a.test]}, upstream: b}], upstream: b}
  - {name: by-name, bind: "127.0.0.1:0", routes: [{match: {sni: [a.test]}, upstream: b}, {match: {source: [10.0.0.0/8]}, upstream: b}, {match: {protocol: [tls_malformed]}, upstream: a}], upstream: b}
  - {name: elsewhere, bind: "127.0.0.1:0", routes: [{match: {sni: [a.test]}, upstream: b}, {match: {protocol: [tls_malformed], source: [10.0.0.0/8]}, upstream: b}], upstream: b}
upstreams: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}]`, greeted(t, "a"), greeted(t, "b")))
	for i, sent := range []string{"\x16\x03\x01\x00\x00", "\x15\x03\x01\x00\x02\x01\x5a", "\x16\x02\x00\x01\x00\x01\x00\x00\xfc"} {
		for _, at := range []string{"refuses", "elsewhere"} {
			c := client(t, r.At(at))
			_, _ = io.WriteString(c, sent)
			gone(t, c)
			r.Until("it is counted", func() bool { return r.Refused(at, "hello") == int64(i+1) })
		}
		c := client(t, r.At("by-name"))
		_, _ = io.WriteString(c, sent)
		if got, want := line(t, c), fmt.Sprintf("a %q", sent[:1]); got != want {
			t.Errorf("%q gets to %s, want %s", sent, got, want)
		}
	}
	if got := r.Listener("by-name").Protocols["tls_malformed"]; got != 3 {
		t.Errorf("%d are counted", got)
	}
}

// TestThereAndBack: the next reload can have an address again that the one before gave up, even
// at once.
func TestThereAndBack(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := startUpstream(t, `endpoints: [%q]`, a)
	at := net.JoinHostPort("127.0.0.1", sockets.Port(t)) // connections of other tests do not get it
	with := fmt.Sprintf(`
listeners: [{name: l, bind: %q, upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, at, a)
	without := fmt.Sprintf(`
listeners: [{name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, a)
	r.Reload(without)
	failed := 0
	for range 50 {
		if err := r.Apply(t.Context(), r.Load(with)); err != nil {
			failed++
			time.Sleep(time.Millisecond)
			continue
		}
		servedBy(t, at, "a")
		r.Reload(without)
	}
	if failed > 0 {
		t.Errorf("%d of 50 times the address was not available again", failed)
	}
}

// TestRefusedAtTheEnd: a client accepted before its listener was drained is still counted when it is refused.
func TestRefusedAtTheEnd(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{match: {sni: [a.test]}, upstream: u}]}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	c := client(t, r.At("l"))
	r.Until("the client was accepted", func() bool { return r.Summary().Connections.Active == 1 })
	must(t, r.DrainListener("l", "test"))
	sends(t, c, "GET / HTTP/1.1\r\n\r\n")
	gone(t, c)
	r.Until("the refusal is counted", func() bool { return r.Refused("l", "no_route") == 1 })
}

// TestRefusedAtTheEndOfTheDrain: when the drain of a listener ends, because the listener was drained by hand or removed, its clients
// without a session are refused, wherever they have got to with their first bytes.
func TestRefusedAtTheEndOfTheDrain(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "a.test")
	near, far := net.Pipe()
	defer near.Close()
	go func() { _ = tls.Client(near, &tls.Config{ServerName: "a.test"}).Handshake() }()
	hello := make([]byte, 4096)
	n, err := far.Read(hello)
	must(t, err)
	const ends = "tls: {certificates: [{cert: c.pem, key: k.pem}]}"
	for _, c := range []struct{ at, keys, sent string }{
		{"header", "accept_proxy: {timeout: 1h}", "PROXY TCP4 "},
		{"routed", "routes: [{match: {sni: [a.test]}, upstream: u}]", string(hello[:n/2])},
		{"silent", "connect: on_data", ""},
		{"hello", ends, string(hello[:n/2])},
		{"handshake", ends, string(hello[:n])},
		{"decrypted", "connect: on_data, " + ends, ""},
	} {
		for how, drain := range map[string]func(r *rig, rest string){
			"by hand": func(r *rig, _ string) { must(t, r.DrainListener("l", "test")) },
			"removed": func(r *rig, rest string) { r.Reload(rest) },
		} {
			t.Run(c.at+"/"+how, func(t *testing.T) {
				t.Parallel()
				const other = `listeners: [{name: other, bind: "127.0.0.1:0", upstream: u}`
				upstreams := fmt.Sprintf("]\nupstreams: [{name: u, endpoints: [%q], drain_timeout: 0}]", named(t, "a"))
				r := start(t, other+`, {name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {preread: 1h}, `+c.keys+"}"+upstreams, "c.pem", cert, "k.pem", key)
				comes := func() (conn, spoken net.Conn) {
					conn = client(t, r.At("l"))
					sends(t, conn, c.sent)
					switch c.at {
					case "handshake":
						_, err := io.ReadFull(conn, make([]byte, 5)) // the answer to its hello
						must(t, err)
					case "decrypted":
						secure := tls.Client(conn, &tls.Config{ServerName: "a.test", RootCAs: trusting(cert)})
						must(t, secure.Handshake())
						return conn, secure
					}
					return conn, conn
				}
				clients := int64(1)
				if c.sent == "" { // another one has a session
					_, early := comes()
					sends(t, early, "x")
					hears(t, early, "a")
					clients++
				}
				late, _ := comes()
				r.Until("the client was accepted", func() bool { return r.Summary().Connections.Active == clients })
				drain(r, other+upstreams)
				r.Until("its clients are gone", func() bool { return r.Summary().Connections.Active == 0 })
				if _, err := io.Copy(io.Discard, late); errors.Is(err, errTimeout) { // the rest of the answer to its hello may come first
					t.Error(err)
				}
				if how == "by hand" && r.Refused("l", "preread") != 1 {
					t.Error("the refusal is not counted")
				}
			})
		}
	}
}

// Two names of the same length. The server has both, and the client may have only the first.
const (
	publicName = "public.example"
	adminName  = "admin1.example"
)

// asksAgain is a client's connection: the names in its bytes are others from the second hello on. With early set a copy of the first hello
// for the other name goes in the segment of the first.
type asksAgain struct {
	net.Conn
	early, begun bool
}

func (c *asksAgain) Write(b []byte) (int, error) {
	other := bytes.ReplaceAll(b, []byte(publicName), []byte(adminName))
	switch {
	case c.begun:
	case c.early:
		other = append(bytes.Clone(b), other...)
	default:
		other = b
	}
	c.begun = true
	_, err := c.Conn.Write(other)
	return len(b), err
}

// heard is a server's connection that keeps what it has read.
type heard struct {
	net.Conn
	all *bytes.Buffer
}

func (h heard) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	h.all.Write(b[:n])
	return n, err
}

// TestSecondHello: a client that was asked for a second hello by a HelloRetryRequest, and asks for another name in it, is refused, and no
// byte of that reaches the server, whatever reads the first hello. Honest clients are served.
func TestSecondHello(t *testing.T) {
	t.Parallel()
	var ended, other atomic.Int64 // connections of the server, and those that have brought the other name
	cert, key := certificate.New(t, publicName)
	cfg := &tls.Config{Certificates: []tls.Certificate{pairOf(t, cert, key)}, CurvePreferences: []tls.CurveID{tls.CurveP384}} // most clients have another key share
	web := sockets.Server(t, func(c net.Conn) {
		all := new(bytes.Buffer)
		s := tls.Server(heard{c, all}, cfg)
		fmt.Fprintln(s, "web")
		_, _ = io.Copy(io.Discard, s)
		if bytes.Contains(all.Bytes(), []byte(adminName)) {
			other.Add(1)
		}
		ended.Add(1)
	})
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: plain, bind: "127.0.0.1:0", routes: [{match: {sni: [%[2]s]}, upstream: nowhere}], upstream: web}
  - {name: preface, bind: "127.0.0.1:0", accept_proxy: {from: [127.0.0.0/8]}, routes: [{match: {sni: [%[3]s]}, upstream: web}]}
  - {name: by-balance, bind: "127.0.0.1:0", upstream: hashed}
upstreams:
  - {name: web, endpoints: [%[1]q], health_check: off}
  - {name: hashed, endpoints: [%[1]q], health_check: off, balance: maglev, balance_on: sni}
  - {name: nowhere, endpoints: ["127.0.0.1:1"], health_check: off}`, web, adminName, publicName))
	dial := func(at string) net.Conn {
		c := client(t, r.At(at))
		if at == "preface" {
			sends(t, c, "PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n")
		}
		return c
	}
	asks := func(c net.Conn) *tls.Conn {
		return tls.Client(c, &tls.Config{ServerName: publicName, InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}})
	}
	for i, at := range []string{"plain", "preface", "by-balance"} {
		c := asks(dial(at))
		hears(t, c, "web")
		if !c.ConnectionState().HelloRetryRequest {
			t.Fatal("the server does not ask for a second hello: the test does not test its claim")
		}
		for n, early := range []bool{false, true} {
			if err := asks(&asksAgain{Conn: dial(at), early: early}).Handshake(); err == nil {
				t.Errorf("%s, early %v: it is served", at, early)
			}
			r.Until("it is refused", func() bool { return r.Refused(at, "second_hello") == int64(n+1) })
		}
		c.Close()
		r.Until("the server has seen them end", func() bool { return ended.Load() == 3*int64(i+1) })
		if n := other.Load(); n > 0 {
			t.Errorf("%s: the server was asked for the other name %d times", at, n)
		}
	}
}

// TestChangedWhileQueued: a client that sends pages and changes them while they are queued, after they were looked at, changes nothing of what
// its endpoint gets: what has decided its way.
func TestChangedWhileQueued(t *testing.T) {
	t.Parallel()
	startup := func(user string) string {
		b := "\x00\x03\x00\x00user\x00" + user + "\x00\x00"
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(b)+4))) + b
	}
	http := "GET /public HTTP/1.1\r\nHost: public.example\r\n\r\n"
	greeting := string(clienthello.Of(t, &tls.Config{ServerName: publicName, InsecureSkipVerify: true}))
	long := string(clienthello.Of(t, &tls.Config{ServerName: publicName, InsecureSkipVerify: true, NextProtos: slices.Repeat([]string{strings.Repeat("p", 250)}, 20)}))
	cert, key := certificate.New(t, publicName)
	for name, x := range map[string]struct{ listener, says, after string }{
		"path":         {`routes: [{match: {path: [/secret]}, upstream: nowhere}]`, http, strings.Replace(http, "public", "secret", 1)},
		"host":         {`routes: [{match: {host: [secret.example]}, upstream: nowhere}]`, http, strings.ReplaceAll(http, "public", "secret")},
		"bytes":        {`routes: [{match: {bytes: [{hex: "736563726574"}]}, upstream: nowhere}]`, "public", "secret"},
		"protocol":     {`routes: [{match: {protocol: [ssh]}, upstream: nowhere}]`, "publ", "SSH-"},
		"redis":        {`routes: [{match: {protocol: [redis]}, upstream: rest}]`, "PING\r\n", "GET /1"},
		"user":         {`routes: [{match: {user: [secret]}, upstream: nowhere}]`, startup("public"), startup("secret")},
		"terminate":    {`postgres: terminate, tls: {certificates: [{cert: c.pem, key: k.pem}]}, routes: [{match: {user: [secret]}, upstream: nowhere}]`, startup("public"), startup("secret")},
		"pass through": {`postgres: passthrough, routes: [{match: {user: [secret]}, upstream: nowhere}]`, startup("public"), startup("secret")},
		"sni":          {`routes: [{match: {sni: [admin1.example]}, upstream: nowhere}]`, greeting, strings.ReplaceAll(greeting, publicName, adminName)},
		"long hello":   {`routes: [{match: {sni: [admin1.example]}, upstream: nowhere}]`, long, strings.ReplaceAll(long, publicName, adminName)},
		"filter":       {`routes: [{upstream: rest, filter: {wasm: f.wasm, preread: 16, upstreams: [nowhere]}}]`, "public", "denied"},
	} {
		for _, network := range []string{"tcp", "unix", "preface"} {
			t.Run(name+" "+network, func(t *testing.T) {
				t.Parallel()
				got := make(chan string, 2)
				rest := sockets.Server(t, func(c net.Conn) {
					b := make([]byte, len(x.says))
					n, _ := io.ReadFull(c, b)
					got <- string(b[:n])
					_, _ = io.Copy(io.Discard, c)
				})
				path := sockets.Dir(t) + "/l"
				accept := ""
				if network == "preface" {
					accept = ", accept_proxy: {from: [127.0.0.0/8]}"
				}
				r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: ["127.0.0.1:0", "unix:%s"]%s, upstream: rest, %s}]
upstreams:
  - {name: rest, endpoints: [{address: %q, connections: 1}], health_check: off, queue: {timeout: 1m}}
  - {name: nowhere, endpoints: ["127.0.0.1:1"], health_check: off}`, path, accept, x.listener, rest), "c.pem", cert, "k.pem", key, "f.wasm", filterModule("1"))
				dial := func() net.Conn {
					if network == "unix" {
						return dialUnix(t, path)
					}
					c := client(t, r.At("l"))
					if accept != "" {
						sends(t, c, "PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n")
					}
					return c
				}
				holds := dial()
				sends(t, holds, x.says)
				condition.Receive(t, "the endpoint's only place is taken", got)
				c := dial()
				change := sockets.SendPages(t, c.(syscall.Conn), []byte(x.says))
				r.Until("the client waits", func() bool { return r.Status().Upstreams[1].Pending == 1 })
				change([]byte(x.after))
				holds.Close()
				if b := condition.Receive(t, "the endpoint has the bytes", got); b != x.says {
					t.Errorf("the endpoint got other bytes: %.100q", b)
				}
			})
		}
	}
}
