package health_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/health"
)

// serve serves connections on loopback until the test ends, and returns its address.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sockets.Serve(t, l, handle)
	return l.Addr().String()
}

// answer returns a server that sends one answer after the first bytes.
func answer(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, text)
	}
}

// wait keeps a connection silently until the client closes it.
func wait(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// probe makes a probe once.
func probe(t *testing.T, cfg *health.ProbeConfig, timeout time.Duration) error {
	t.Helper()
	p, err := health.NewProbe(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return p.Probe(ctx)
}

const brief = 100 * time.Millisecond // for those that end by it

// TestSourceOfAUnixSocket: a unix socket is probed although other endpoints of the upstream have a source address.
func TestSourceOfAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	sockets.Serve(t, l, func(net.Conn) {})
	if err := probe(t, &health.ProbeConfig{Address: "unix:" + path, Source: netip.MustParseAddr("127.0.0.1"), End: true}, condition.Patience); err != nil {
		t.Error(err)
	}
}

// TestOtherFamily: a check whose source_address has another family than the endpoint says so.
func TestOtherFamily(t *testing.T) {
	err := probe(t, &health.ProbeConfig{Address: "[::1]:1", Source: netip.MustParseAddr("127.0.0.1")}, condition.Patience)
	if err == nil || !strings.HasSuffix(err.Error(), "source_address 127.0.0.1 is IPv4, and cannot connect to an IPv6 address") {
		t.Error(err)
	}
}

// TestProbes makes each kind of probe of good and of bad servers.
func TestProbes(t *testing.T) {
	pong := func(c net.Conn) {
		got := make([]byte, 6)
		if _, err := io.ReadFull(c, got); err == nil && string(got) == "PING\r\n" {
			for _, part := range []string{"+P", "ON", "G\r\n"} { // split
				_, _ = io.WriteString(c, part)
			}
		}
		wait(c)
	}
	ping := health.ProbeConfig{Send: "PING\r\n", Expect: "+PONG"}
	login := health.ProbeConfig{Send: "\x00\x00\x00\x0a\x00\x03\x00\x00\x00\x00", Expect: "in_hot_standby"}
	get := health.ProbeConfig{HTTP: &health.HTTPProbe{}}
	body := health.ProbeConfig{HTTP: &health.HTTPProbe{Body: "ready"}}
	long := strings.Repeat("x", 100_000)
	unknown := func(net.Conn) []byte { return []byte("PROXY UNKNOWN\r\n") }
	over := make(chan struct{}) // closed to end the servers that do not close a connection
	tests := map[string]struct {
		address string
		cfg     health.ProbeConfig
		timeout time.Duration
		err     string // "": the probe succeeds
	}{
		"tcp":                      {serve(t, wait), health.ProbeConfig{}, condition.Patience, ""},
		"tcp refused":              {sockets.Refusing(t), health.ProbeConfig{}, condition.Patience, "connect: connection refused"},
		"tcp silence":              {sockets.Silent(t), health.ProbeConfig{}, brief, "connect: i/o timeout"},
		"exchange":                 {serve(t, pong), ping, condition.Patience, ""},
		"exchange, another answer": {serve(t, answer("-LOADING it is\r\n")), ping, condition.Patience, "not the expected answer: 16 bytes, then the end"},
		"exchange, and waits":      {serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "-NOAUTH\r\n"); wait(c) }), ping, brief, "not the expected answer: 9 bytes, then nothing"},
		"postgres, a password": {serve(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "R\x00\x00\x00\x17\x00\x00\x00\nSCRAM-SHA-256\x00\x00")
			wait(c)
		}), login, condition.Patience, "the server asks for a password"},
		"postgres, no password":     {serve(t, answer("R\x00\x00\x00\x08\x00\x00\x00\x00")), login, condition.Patience, "not the expected answer: 9 bytes, then the end"},
		"exchange, no answer":       {serve(t, func(net.Conn) {}), ping, condition.Patience, ""},
		"exchange, silence":         {serve(t, wait), ping, brief, "read the answer: i/o timeout"},
		"exchange, too much":        {serve(t, answer(long)), ping, condition.Patience, "not the expected answer: 16384 bytes, later bytes are not checked"},
		"greeting":                  {serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail\r\n") }), health.ProbeConfig{Expect: "220 "}, condition.Patience, ""},
		"http":                      {serve(t, answer("HTTP/1.1 200 OK\r\n\r\n")), get, condition.Patience, ""},
		"http, after an early hint": {serve(t, answer("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")), get, condition.Patience, ""},
		"http, another status":      {serve(t, answer("HTTP/1.1 503 No\r\n\r\n")), get, condition.Patience, "status 503 instead of 200"},
		"http, a redirect":          {serve(t, answer("HTTP/1.1 302 No\r\nLocation: /x\r\n\r\n")), get, condition.Patience, "status 302 instead of 200"},
		"http, two good ones": {
			serve(t, answer("HTTP/1.1 500 No\r\n\r\n")),
			health.ProbeConfig{HTTP: &health.HTTPProbe{Status: []int{200, 204}}},
			condition.Patience, "status 500 instead of 200 or 204",
		},
		"http, body":              {serve(t, answer("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nI ready!")), body, condition.Patience, ""},
		"http, chunked body":      {serve(t, answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nre\r\n3\r\nady\r\n0\r\n\r\n")), body, condition.Patience, ""},
		"http, another body":      {serve(t, answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno.")), body, condition.Patience, "status 200, but not the expected body: 3 bytes, then the end"},
		"http, long body":         {serve(t, answer("HTTP/1.1 200 OK\r\n\r\n"+long)), body, condition.Patience, "status 200, but not the expected body: 65536 bytes, later bytes are not checked"},
		"http, no HTTP":           {serve(t, answer("+OK\r\n\r\n")), get, condition.Patience, "read the answer: the answer is not HTTP"},
		"http, nothing":           {serve(t, answer("")), get, condition.Patience, "read the answer: the connection ended before it was complete"},
		"http, header of no end":  {serve(t, answer("HTTP/1.1 200 OK\r\nX: "+long)), get, condition.Patience, "the answer's header is longer than 65536 bytes"},
		"http, hints of no end":   {serve(t, answer(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 5000))), get, condition.Patience, "the answer's header is longer than 65536 bytes"},
		"http, silence":           {serve(t, wait), get, brief, "read the answer: i/o timeout"},
		"end":                     {serve(t, wait), health.ProbeConfig{End: true}, condition.Patience, ""},
		"end, after a header":     {serve(t, wait), health.ProbeConfig{End: true, Preface: unknown}, condition.Patience, ""},
		"end, a reset":            {serve(t, func(c net.Conn) { wait(c); _ = c.(*net.TCPConn).SetLinger(0) }), health.ProbeConfig{End: true}, condition.Patience, ""},
		"end, a greeting":         {serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail\r\n"); <-over }), health.ProbeConfig{End: true}, condition.Patience, ""},
		"end, silence":            {serve(t, func(net.Conn) { <-over }), health.ProbeConfig{End: true}, brief, "wait for its end: i/o timeout"},
		"tls to who speaks none":  {serve(t, answer("HTTP/1.1 400 Bad Request\r\n\r\n")), health.ProbeConfig{TLS: &tls.Config{InsecureSkipVerify: true}}, condition.Patience, "TLS handshake: tls: first record does not look like a TLS handshake"},
		"tls to who says nothing": {serve(t, wait), health.ProbeConfig{TLS: &tls.Config{InsecureSkipVerify: true}}, brief, "TLS handshake: "},
	}
	t.Cleanup(func() { close(over) }) // before the servers end
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := test.cfg
			cfg.Address = test.address
			err := probe(t, &cfg, test.timeout)
			switch {
			case name == "exchange, no answer": // an end of file or a reset, by chance
				if err == nil {
					t.Error("well without an answer")
				}
			case test.err == "" && err != nil:
				t.Errorf("got %v", err)
			case test.err != "" && (err == nil || !strings.HasPrefix(err.Error(), test.err)):
				t.Errorf("got %v, want %s", err, test.err)
			}
			if err == nil {
				return
			}
			if no := errors.Is(err, health.ErrAnswer); no != answersNo[name] {
				t.Errorf("%v: that it is an answer is %v", err, no)
			}
		})
	}
}

// answersNo are the cases of TestProbes with a bad answer.
var answersNo = map[string]bool{
	"exchange, another answer": true, "exchange, and waits": true, "postgres, a password": true, "postgres, no password": true, "exchange, too much": true,
	"http, another status": true, "http, a redirect": true, "http, two good ones": true,
	"http, another body": true, "http, long body": true, "http, no HTTP": true,
	"http, header of no end": true, "http, hints of no end": true,
}

// TestResetConnect: a connection that is reset before any look at it was made. A probe that waits for no answer finds
// that well, as it would have later, and the failure of another one is none of connecting.
func TestResetConnect(t *testing.T) {
	t.Parallel()

	connects, get := health.ProbeConfig{}, health.ProbeConfig{HTTP: &health.HTTPProbe{}}
	for name, test := range map[string]struct {
		cfg             health.ProbeConfig
		by              error
		well, unreached bool
	}{
		"only connects, reset":   {connects, syscall.ECONNRESET, true, false},
		"only connects, ended":   {connects, syscall.EPIPE, true, false},
		"only connects, refused": {connects, syscall.ECONNREFUSED, false, true},
		"only connects, late":    {connects, os.ErrDeadlineExceeded, false, true},
		"end, reset":             {health.ProbeConfig{End: true}, syscall.ECONNRESET, true, false},
		"end, refused":           {health.ProbeConfig{End: true}, syscall.ECONNREFUSED, false, true},
		"http, reset":            {get, syscall.ECONNRESET, false, false},
		"http, refused":          {get, syscall.ECONNREFUSED, false, true},
		"expect, reset":          {health.ProbeConfig{Expect: "220 "}, syscall.ECONNRESET, false, false},
		"tls, reset":             {health.ProbeConfig{TLS: &tls.Config{}}, syscall.ECONNRESET, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			test.cfg.Address = "127.0.0.1:1"
			p, err := health.NewProbe(&test.cfg)
			must.Do(t, err)
			p.FailConnect(test.by)
			err = p.Probe(t.Context())
			if well, unreached := err == nil, errors.Is(err, health.ErrConnect); well != test.well || unreached != test.unreached {
				t.Errorf("%v; it could not connect: %v", err, unreached)
			}
		})
	}
}

// TestProbeSays checks the bytes that a server receives.
func TestProbeSays(t *testing.T) {
	unix := filepath.Join(t.TempDir(), "s")
	unknown := func(net.Conn) []byte { return []byte("PROXY UNKNOWN\r\n") }
	for name, test := range map[string]struct {
		cfg  health.ProbeConfig
		want string
	}{
		"http": {
			health.ProbeConfig{HTTP: &health.HTTPProbe{Path: "/primary?lag=1", Host: "db.example"}},
			"GET /primary?lag=1 HTTP/1.1\r\nHost: db.example\r\nUser-Agent: penstock\r\nConnection: close\r\n\r\n",
		},
		"unix": {
			health.ProbeConfig{Address: "unix:" + unix, HTTP: &health.HTTPProbe{}},
			"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: penstock\r\nConnection: close\r\n\r\n",
		},
		"preface": {
			health.ProbeConfig{Preface: unknown, Send: "PING\r\n"},
			"PROXY UNKNOWN\r\nPING\r\n",
		},
		"preface alone": {health.ProbeConfig{Preface: unknown}, "PROXY UNKNOWN\r\n"},
		"tcp":           {health.ProbeConfig{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			network, address := "tcp", "127.0.0.1:0"
			if test.cfg.Address != "" {
				network, address = "unix", unix
			}
			l, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan string, 1)
			sockets.Serve(t, l, func(c net.Conn) {
				buf := make([]byte, 4096)
				n, _ := io.ReadFull(c, buf[:len(test.want)])
				if test.cfg.HTTP != nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				} else {
					m, _ := io.ReadFull(c, buf[n:]) // to the end
					n += m
				}
				got <- string(buf[:n])
			})
			cfg := test.cfg
			if network == "tcp" {
				_, port, _ := net.SplitHostPort(l.Addr().String())
				cfg.Address = "127.0.0.1:1"
				if _, err := fmt.Sscan(port, &cfg.Port); err != nil {
					t.Fatal(err)
				}
			}
			if err := probe(t, &cfg, condition.Patience); err != nil {
				t.Fatal(err)
			}
			if said := <-got; said != test.want {
				t.Errorf("the server read %q, want %q", said, test.want)
			}
		})
	}
}

// TestProbeTLS probes a TLS server by name, with and without verification.
func TestProbeTLS(t *testing.T) {
	var asked atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.TLS.ServerName)
		_, _ = io.WriteString(w, "ready")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	ask := func(c *tls.Config) error {
		return probe(t, &health.ProbeConfig{
			Address: server.Listener.Addr().String(), TLS: c, HTTP: &health.HTTPProbe{Body: "ready"},
		}, condition.Patience)
	}
	if err := ask(&tls.Config{RootCAs: roots, ServerName: "example.com"}); err != nil {
		t.Error(err)
	}
	if err := ask(&tls.Config{InsecureSkipVerify: true, ServerName: "other.example"}); err != nil || asked.Load() != "other.example" {
		t.Errorf("not verified: %v, requested %v", err, asked.Load())
	}
	if err := ask(&tls.Config{RootCAs: roots, ServerName: "other.example"}); err == nil || !strings.Contains(err.Error(), "TLS handshake: tls: failed to verify") {
		t.Errorf("of another name: %v", err)
	}
}

// TestNewProbeSaysWhatIsWrong checks the messages for invalid configurations.
func TestNewProbeSaysWhatIsWrong(t *testing.T) {
	for want, cfg := range map[string]health.ProbeConfig{
		`"10.0.0.1" is neither host:port nor unix:/path`: {Address: "10.0.0.1"},
		"unix:/s has no port that 80 could replace":      {Address: "unix:/s", Port: 80},
		"or sends bytes":                     {Address: "a:1", HTTP: &health.HTTPProbe{}, Expect: "x"},
		`"a b" is not the path of a request`: {Address: "a:1", HTTP: &health.HTTPProbe{Path: "a b"}},
		`"a\r\nX: y" is not a host`:          {Address: "a:1", HTTP: &health.HTTPProbe{Host: "a\r\nX: y"}},
	} {
		if p, err := health.NewProbe(&cfg); err == nil || !strings.Contains(err.Error(), want) || p != nil {
			t.Errorf("%+v: %v, %v; want %s", cfg, p, err, want)
		}
	}
}

// TestProbesLeaveNothing makes many probes at once and cancels them; TestMain finds leaks.
func TestProbesLeaveNothing(t *testing.T) {
	k := health.NewScheduler(&health.SchedulerConfig{})
	defer k.Close()
	checker := health.NewChecker(k, new(health.CheckerConfig))
	mute := serve(t, wait)
	for i := range 50 {
		p, err := health.NewProbe(&health.ProbeConfig{Address: mute, Expect: "x"})
		if err != nil {
			t.Fatal(err)
		}
		checker.Watch(fmt.Sprint(i), new(target), &health.CheckConfig{
			Probe: p, Interval: time.Millisecond, FastInterval: time.Millisecond, Timeout: time.Hour, Rise: 1, Fall: 1,
		})
	}
	eventually(t, func() bool { _, running := checker.Left(); return running == 50 })
	checker.Close()
}

// TestStandbyThatStaysOpen: a standby is known as soon as its bytes have come, though its answer does not end.
func TestStandbyThatStaysOpen(t *testing.T) {
	t.Parallel()
	greeting := health.ProbeConfig{Send: "INFO replication\r\n", Expect: "role:master"}
	get := health.ProbeConfig{HTTP: new(health.HTTPProbe)}
	body := health.ProbeConfig{HTTP: &health.HTTPProbe{Status: []int{503}, Body: "role:master"}}
	const chunked = "HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\na\r\nrole:slave\r\n"
	for name, test := range map[string]struct {
		says, standby string
		cfg           health.ProbeConfig
	}{
		"bytes":            {"role:slave", "role:slave", greeting},
		"a body":           {chunked, "role:slave", get},
		"a status line":    {chunked, "503 Service Unavailable", get},
		"of a good status": {chunked, "role:slave", body},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.cfg.Standby = test.standby
			test.cfg.Address = serve(t, func(c net.Conn) { answer(test.says)(c); wait(c) })
			begun := time.Now()
			err := probe(t, &test.cfg, condition.Patience)
			if took := time.Since(begun); !errors.Is(err, health.ErrStandby) || took >= condition.Patience {
				t.Errorf("after %v: %v", took, err)
			}
		})
	}
}

// TestExpectOverPieces finds the expected bytes wherever they are split.
func TestExpectOverPieces(t *testing.T) {
	text := bytes.Repeat([]byte("+"), 1021)
	text = append(text, "+PONG"...)
	for _, piece := range []int{1, 1022, 1024, 1026} {
		address := serve(t, func(c net.Conn) {
			for rest := text; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
				_, _ = c.Write(rest[:min(piece, len(rest))])
			}
			wait(c)
		})
		if err := probe(t, &health.ProbeConfig{Address: address, Expect: "+PONG"}, condition.Patience); err != nil {
			t.Errorf("in pieces of %d: %v", piece, err)
		}
	}
}

// TestProbesKeepSecrets: no error of a probe contains Send, Expect or the answer, which may
// repeat either.
func TestProbesKeepSecrets(t *testing.T) {
	const send, expect, echoed = "AUTH hunter2\r\n", "hunter3", "hunter4"
	exchange := health.ProbeConfig{Send: send, Expect: expect}
	get := health.ProbeConfig{HTTP: &health.HTTPProbe{Body: expect}}
	status := health.ProbeConfig{HTTP: &health.HTTPProbe{Status: []int{204}, Body: expect}}
	waits := func(c net.Conn) { answer(echoed)(c); wait(c) }
	for name, test := range map[string]struct {
		handle  func(net.Conn)
		cfg     health.ProbeConfig
		timeout time.Duration
		says    string
	}{
		"another answer": {answer(echoed), exchange, condition.Patience, "7 bytes"},
		"and waits":      {waits, exchange, brief, "7 bytes"},
		"too much":       {answer(strings.Repeat(echoed, 10_000)), exchange, condition.Patience, "16384 bytes"},
		"another body":   {answer("HTTP/1.1 200 " + echoed + "\r\n\r\n" + echoed), get, condition.Patience, "status 200"},
		"another status": {answer("HTTP/1.1 401 " + echoed + "\r\n\r\n" + echoed), status, condition.Patience, "status 401"},
		"no HTTP":        {answer(echoed + "\r\n\r\n"), get, condition.Patience, "not HTTP"},
		"no version":     {answer(echoed + "/1.1 200 OK\r\n\r\n"), get, condition.Patience, "not HTTP"},
		"no status":      {answer("HTTP/1.1 " + echoed + "\r\n\r\n"), get, condition.Patience, "not HTTP"},
		"no header":      {answer("HTTP/1.1 200 OK\r\n" + echoed + "\r\n\r\n"), get, condition.Patience, "not HTTP"},
		"no length":      {answer("HTTP/1.1 200 OK\r\nContent-Length: " + echoed + "\r\n\r\n"), get, condition.Patience, "not HTTP"},
		"no encoding":    {answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: " + echoed + "\r\n\r\n"), get, condition.Patience, "not HTTP"},
		"no chunk":       {answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + echoed + "\r\n"), get, condition.Patience, "not HTTP"},
		"a bad trailer":  {answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + echoed + "\r\n\r\n"), get, condition.Patience, "body: 1 byte, then"},
		"a body cut off": {answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + echoed), get, condition.Patience, "7 bytes"},
		"an answer inside": {func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, send+echoed)
		}, exchange, condition.Patience, "21 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			test.cfg.Address = serve(t, test.handle)
			err := probe(t, &test.cfg, test.timeout)
			if err == nil {
				t.Fatal("well")
			}
			if strings.Contains(err.Error(), "hunter") {
				t.Errorf("it discloses a secret: %v", err)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want it to contain %q", err, test.says)
			}
		})
	}
}

// TestCausesNameTheLastFailure: whatever comes between that and the verdict, and with the
// system's text.
func TestCausesNameTheLastFailure(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		FailurePercentage: 50, Window: time.Second, MinVolume: 4, BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: 1,
	})
	row := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: 2, BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: 1,
	}).Add("c", new(target))
	m := o.Add("a", new(target))
	b := health.NewBreaker(k, "b", nil, &health.BreakerConfig{
		FailurePercentage: 50, Window: time.Second, MinVolume: 4, Open: time.Second, TrialConnections: 1,
	})
	for range 2 {
		m.SetCause(syscall.ECONNREFUSED.Error())
		m.Report(health.ConnectFailed, c.Now())
		m.Reached(c.Now()) // in the second iteration the fourth, of MinVolume 4
		m.Report(health.OK, c.Now())
		row.SetCause(syscall.ECONNREFUSED.Error()) // of one before
		row.Report(health.HungUp, c.Now())
		b.Reached()
		b.SetCause(syscall.EHOSTUNREACH.Error())
		b.Report(0, health.ConnectFailed, c.Now())
	}
	c.advance(time.Second)
	k.Step()
	p, _ := b.Begin()
	b.SetCause("")
	b.Report(p, health.ConnectFailed, c.Now())
	c.advance(time.Second)
	k.Step()
	p, _ = b.Begin()
	b.SetCause(syscall.ECONNREFUSED.Error())
	b.Report(p, health.ConnectFailed, c.Now())
	var causes []string
	for _, told := range k.Told() {
		if told.Bad {
			causes = append(causes, told.Subject+": "+told.Cause)
		}
	}
	want := []string{
		"c: for 1s: 2 failures in a row, the last: ended before its first byte",
		"a: for 1s: 2 of 4 connections failed, the last: connect failed: connection refused",
		"b: 2 of 4 connections failed, the last: connect failed: no route to host",
		"b: a trial connection was not made",
		"b: a trial connection was not made: connection refused",
	}
	slices.Sort(causes)
	slices.Sort(want)
	if !slices.Equal(causes, want) {
		t.Errorf("reported %q, want %q", causes, want)
	}
}

// rig is a Checker that probes as often as it may, and its reports.
type rig struct {
	*health.Checker
	probes atomic.Int64
	mu     sync.Mutex
	told   []health.Transition
}

func newRig(t *testing.T) *rig {
	r := new(rig)
	k := health.NewScheduler(&health.SchedulerConfig{Report: func(tr health.Transition) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, tr)
	}})
	r.Checker = health.NewChecker(k, new(health.CheckerConfig))
	t.Cleanup(func() { r.Close(); k.Close() })
	return r
}

// watch adds an endpoint to the Checker.
func (r *rig) watch(t *testing.T, name string, cfg *health.ProbeConfig, timeout time.Duration) *target {
	t.Helper()
	p, err := health.NewProbe(cfg)
	if err != nil {
		t.Fatal(err)
	}
	told := new(target)
	r.Watch(name, told, &health.CheckConfig{
		Probe:    proberFunc(func(ctx context.Context) error { r.probes.Add(1); return p.Probe(ctx) }),
		Interval: 20 * time.Millisecond, FastInterval: 10 * time.Millisecond, Timeout: timeout, Jitter: 0.2, Rise: 2, Fall: 2,
	})
	return told
}

// last returns the cause of an endpoint's state.
func (r *rig) last(name string) (cause string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tr := range r.told {
		if tr.Subject == name {
			cause = tr.Cause
		}
	}
	return cause
}

// TestRoleCheck has two databases that change places. A server beside each of them reports
// over HTTP whether it is the primary, as Patroni does.
func TestRoleCheck(t *testing.T) {
	r := newRig(t)
	var primary atomic.Int32
	var told [2]*target
	for i := range told {
		role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path != "/primary" || int(primary.Load()) != i {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, `{"state": "running"}`)
		}))
		t.Cleanup(role.Close)
		_, port, _ := net.SplitHostPort(role.Listener.Addr().String())
		n, _ := strconv.Atoi(port)
		told[i] = r.watch(t, strconv.Itoa(i), &health.ProbeConfig{
			Address: serve(t, wait), Port: n, HTTP: &health.HTTPProbe{Path: "/primary", Body: "running"},
		}, condition.Patience)
	}
	for _, now := range []int32{0, 1, 0} {
		primary.Store(now)
		eventually(t, func() bool { return !told[now].ill.Load() && told[1-now].ill.Load() })
	}
	eventually(t, func() bool {
		return strings.HasPrefix(r.last("1"), "2 checks in a row failed, the last: status 503 instead of 200") &&
			r.last("0") == "2 checks in a row succeeded"
	})
}

// TestAnswerStops: an answer that stops before it is the expected one is reported once, with the time.
func TestAnswerStops(t *testing.T) {
	r := newRig(t)
	stops := serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "-NOAUTH\r\n"); wait(c) })
	r.watch(t, "stops", &health.ProbeConfig{Address: stops, Expect: "+PONG"}, brief)
	eventually(t, func() bool {
		return strings.HasSuffix(r.last("stops"), "not the expected answer: 9 bytes, then nothing within 100ms")
	})
}

// TestRedis checks a real server, which is stopped, continued, and killed.
func TestRedis(t *testing.T) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("redis-server is not installed (Debian package redis-server)")
		}
		t.Skip("redis-server is not installed (Debian package redis-server)")
	}
	address, server := redis(t, program)
	r := newRig(t)
	ping := r.watch(t, "ping", &health.ProbeConfig{Address: address, Send: "PING\r\n", Expect: "+PONG"}, time.Second)
	connect := r.watch(t, "connect", &health.ProbeConfig{Address: address}, time.Second)
	eventually(t, func() bool { return r.probes.Load() > 20 })
	if ping.told.Load() != 0 || connect.told.Load() != 0 {
		t.Fatalf("a healthy server is reported: %q, %q", r.last("ping"), r.last("connect"))
	}
	signal(t, server, syscall.SIGSTOP)
	eventually(t, ping.ill.Load)
	eventually(t, func() bool {
		return strings.Contains(r.last("ping"), "no answer within 1s")
	})
	if connect.ill.Load() {
		t.Error("the kernel accepts for a process that is stopped, but the check that only connects fails:", r.last("connect"))
	}
	signal(t, server, syscall.SIGCONT)
	eventually(t, func() bool { return !ping.ill.Load() })
	signal(t, server, syscall.SIGKILL)
	eventually(t, func() bool { return ping.ill.Load() && connect.ill.Load() })
	eventually(t, func() bool { return strings.HasSuffix(r.last("connect"), "connect: connection refused") })
}

func signal(t *testing.T, p *os.Process, s os.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// redis runs a server until the test ends.
func redis(t *testing.T, program string) (address string, server *os.Process) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.7.2:0") // its ports are not local ports of any connect
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close()
	host, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(program, "--bind", host, "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, exited := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(exited)
		announce := sync.OnceFunc(func() { close(ready) })
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				announce()
			}
		}
		_ = cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	select {
	case <-ready:
	case <-exited:
		t.Fatal("redis-server ended before it served")
	case <-time.After(condition.Patience):
		t.Fatal("redis-server does not serve")
	}
	return address, cmd.Process
}
