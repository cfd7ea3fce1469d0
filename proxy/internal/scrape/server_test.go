package scrape

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/admission"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/sockopt"
)

// loopback is an address at which the kernel chooses the port.
var loopback = sockopt.Address{Network: "tcp", Name: "127.0.0.1:0"}

func allow(prefixes ...string) *source.Set {
	var rules []source.Rule
	for _, p := range prefixes {
		rules = append(rules, source.Prefix(netip.MustParsePrefix(p)))
	}
	return source.NewSet(rules)
}

// start starts a server of a text, whose timeouts are a part of those of the program.
func start(t *testing.T, cfg *Config, part time.Duration) *Server {
	t.Helper()
	s := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "penstock 1\n") }), nil, part)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), condition.Patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	change(t, s, cfg)
	return s
}

func change(t *testing.T, s *Server, cfg *Config) {
	t.Helper()
	move, err := s.Prepare(t.Context(), cfg)
	must(t, err)
	move.Commit()
}

func get(t *testing.T, s *Server, method, path, authorization string, roots *x509.CertPool) int {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "metrics.test"}}
	scheme := "http"
	if roots != nil {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(t.Context(), method, scheme+"://"+s.Addr()+path, nil)
	must(t, err)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// TestSources: only the allowed sources get an answer, also after a change of them at the same address.
func TestSources(t *testing.T) {
	s := start(t, &Config{Address: loopback, Allow: allow("127.0.0.0/8")}, 1)
	at := sockopt.Address{Network: "tcp", Name: s.Addr()}
	if code := get(t, s, "GET", "/metrics", "", nil); code != http.StatusOK {
		t.Errorf("got %d", code)
	}
	for path, want := range map[string]int{"/": 404, "/status": 404, "/metrics/": 404} {
		if code := get(t, s, "GET", path, "", nil); code != want {
			t.Errorf("%s: %d", path, code)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if code := get(t, s, method, "/metrics", "", nil); code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, code)
		}
	}
	for name, set := range map[string]*source.Set{"another source": allow("10.0.0.0/8"), "none": allow()} {
		s := start(t, &Config{Address: loopback, Allow: set}, 1)
		if code := get(t, s, "GET", "/metrics", "", nil); code != 0 {
			t.Errorf("%s: %d", name, code)
		}
	}
	change(t, s, &Config{Address: loopback, Allow: allow("10.0.0.0/8")})
	if got := s.Addr(); got != at.Name {
		t.Errorf("it has moved from %s to %s", at.Name, got)
	}
	if code := get(t, s, "GET", "/metrics", "", nil); code != 0 {
		t.Errorf("after the change: %d", code)
	}
}

// TestHosts: at an address of the loopback, without TLS, a request for another host is refused: it comes from a page of a site
// that resolves to this machine. Scrapers over the network may use any name.
func TestHosts(t *testing.T) {
	for bind, want := range map[string]int{loopback.Name: http.StatusForbidden, "0.0.0.0:0": http.StatusOK} {
		s := start(t, &Config{Address: sockopt.Address{Network: "tcp", Name: bind}, Allow: allow("127.0.0.0/8")}, 1)
		_, port, err := net.SplitHostPort(s.Addr())
		must(t, err)
		for host, want := range map[string]int{"localhost:" + port: http.StatusOK, "127.0.0.1:" + port: http.StatusOK, "site.example:" + port: want} {
			request, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:"+port+"/metrics", nil)
			must(t, err)
			request.Host = host
			response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
			must(t, err)
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("at %s, for %s: %d, want %d", bind, host, response.StatusCode, want)
			}
		}
	}
}

// TestUnknownSource: a connection without an address is of no source that may scrape.
func TestUnknownSource(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if from := sourceOf(a); from.Known() || source.NewSet([]source.Rule{source.All()}).Contains(from) {
		t.Errorf("%v may scrape", from)
	}
}

func TestToken(t *testing.T) {
	s := start(t, &Config{Address: loopback, Allow: allow("127.0.0.0/8"), Token: "s3cret"}, 1)
	for authorization, want := range map[string]int{
		"Bearer s3cret": 200, "bearer s3cret": 200, "": 401, "Bearer": 401, "Bearer ": 401, "Bearer s3cre": 401, "Basic s3cret": 401, "s3cret": 401,
	} {
		if code := get(t, s, "GET", "/metrics", authorization, nil); code != want {
			t.Errorf("%q: %d", authorization, code)
		}
	}
	if code := get(t, s, "GET", "/none", "", nil); code != 401 {
		t.Errorf("without a token the paths are known: %d", code)
	}
}

// TestTLS: a certificate that is replaced is used without a reload; one that cannot be used is not.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(cert, key string) *x509.CertPool {
		t.Helper()
		must(t, errors.Join(os.WriteFile(path("c"), []byte(cert), 0o600), os.WriteFile(path("k"), []byte(key), 0o600)))
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(cert))
		return roots
	}
	first := write(certificate.New(t, "metrics.test"))
	s := start(t, &Config{Address: loopback, Allow: allow("127.0.0.0/8"), Cert: path("c"), Key: path("k")}, 1)
	if code := get(t, s, "GET", "/metrics", "", first); code != 200 {
		t.Errorf("got %d", code)
	}
	if code := get(t, s, "GET", "/metrics", "", nil); code == 200 {
		t.Error("an answer without TLS")
	}
	write("no certificate", "no key")
	if code := get(t, s, "GET", "/metrics", "", first); code != 200 {
		t.Errorf("with broken files: %d", code)
	}
	second := write(certificate.New(t, "metrics.test", "other.test"))
	if code := get(t, s, "GET", "/metrics", "", second); code != 200 {
		t.Errorf("with another certificate: %d", code)
	}
	must(t, errors.Join(os.Remove(path("c")), syscall.Mkfifo(path("c"), 0o600)))
	if code := get(t, s, "GET", "/metrics", "", second); code != 200 {
		t.Errorf("with a pipe instead of the certificate: %d", code)
	}
	if _, _, refused := s.Pair().State(); refused == nil {
		t.Error("a pipe was not refused")
	}
	must(t, os.Remove(path("c")))
	write("no certificate", "no key")
	if _, err := s.Prepare(t.Context(), &Config{Address: loopback, Allow: allow(), Cert: path("k"), Key: path("c")}); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("other files, which are broken: %v", err)
	}
}

// TestHangingScrapers: those that send nothing, a part of a request, or read nothing are cut; others get their
// answer meanwhile.
func TestHangingScrapers(t *testing.T) {
	s := start(t, &Config{Address: loopback, Allow: allow("127.0.0.0/8")}, 25)
	ended := make(chan struct{})
	endless := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		for piece := make([]byte, 1<<20); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	long := newServer(endless, nil, 25)
	change(t, long, &Config{Address: loopback, Allow: allow("127.0.0.0/8")})
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), condition.Patience)
		defer cancel()
		if err := long.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	silent, partial, lazy := sockets.Dial(t, s.Addr()), sockets.Dial(t, s.Addr()), sockets.Dial(t, long.Addr())
	for c, text := range map[net.Conn]string{partial: "GET /metrics HTTP/1.1\r\nHost: ", lazy: "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	if code := get(t, s, "GET", "/metrics", "", nil); code != 200 {
		t.Errorf("beside them: %d", code)
	}
	for name, c := range map[string]net.Conn{"silent": silent, "partial": partial} {
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case <-ended:
	case <-time.After(condition.Patience):
		t.Error("one that reads nothing is not cut")
	}
}

// TestScrapersOfLesserPatience: 200 half requests of an allowed source, and scrapers that read nothing, delay a scrape by
// no more than the time that each of them has when another one waits.
func TestScrapersOfLesserPatience(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"half": "GET /metrics HTTP/1.1\r\nHost: ", "unread": "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
		large := make([]byte, 64<<10)
		s := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 200 {
				if _, err := w.Write(large); err != nil {
					return
				}
			}
		}), nil, 1)
		change(t, s, &Config{Address: loopback, Allow: allow("127.0.0.0/8")})
		n := map[string]int{"half": 200, "unread": 2}[name]
		for range n {
			if _, err := io.WriteString(sockets.Dial(t, s.Addr()), text); err != nil {
				t.Fatal(err)
			}
		}
		if name == "unread" {
			condition.Await(t, "both are being answered", func() bool { return s.Conns.Held(admission.Scrape) == 2 })
		}
		began := time.Now()
		if code := get(t, s, "GET", "/metrics", "", nil); code != http.StatusOK {
			t.Errorf("%s: %d", name, code)
		}
		if took := time.Since(began); took > requestTime-time.Second { // the time after which any of them is cut
			t.Errorf("%s: a scrape took %v", name, took)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx) // at once
	}
}

// TestMoves: a change of the address leaves the old one, one that fails or is aborted leaves all as it is, and
// an address that is taken is an error.
func TestMoves(t *testing.T) {
	s := start(t, &Config{Address: loopback, Allow: allow("127.0.0.0/8")}, 1)
	first := s.Addr()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	if _, err := s.Prepare(t.Context(), &Config{Address: sockopt.Address{Network: "tcp", Name: taken.Addr().String()}, Allow: allow()}); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "ss -tanp sport = :") {
		t.Errorf("got %v", err)
	}
	other := sockopt.Address{Network: "tcp", Name: "127.0.0.2:0"}
	move, err := s.Prepare(t.Context(), &Config{Address: other, Allow: allow("127.0.0.0/8")})
	must(t, err)
	if err := move.Abort(); err != nil {
		t.Error(err)
	}
	if code := get(t, s, "GET", "/metrics", "", nil); code != 200 || s.Addr() != first {
		t.Errorf("after an abort: %d at %s", code, s.Addr())
	}
	change(t, s, &Config{Address: other, Allow: allow("127.0.0.0/8")})
	if code := get(t, s, "GET", "/metrics", "", nil); code != 200 || s.Addr() == first {
		t.Errorf("after a change: %d at %s", code, s.Addr())
	}
	if c, err := net.Dial("tcp", first); err == nil {
		c.Close()
		t.Error("the old address is open")
	}
	change(t, s, nil)
	if s.Addr() != "" {
		t.Errorf("it listens at %s", s.Addr())
	}
}

// TestMovesWithinAPort: the address may become wider or narrower at its port, and an abort leaves the former one.
func TestMovesWithinAPort(t *testing.T) {
	s := start(t, &Config{Address: loopback, Allow: allow("127.0.0.0/8")}, 1)
	_, port, err := net.SplitHostPort(s.Addr())
	must(t, err)
	scraped := func(after string) {
		t.Helper()
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://127.0.0.1:" + port + "/metrics")
		if err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("after %s: %d", after, response.StatusCode)
		}
	}
	for _, host := range []string{"", "127.0.0.1", "0.0.0.0", "127.0.0.1", "localhost"} {
		cfg := &Config{Address: sockopt.Address{Network: "tcp", Name: host + ":" + port}, Allow: allow("127.0.0.0/8")}
		before := s.Addr()
		move, err := s.Prepare(t.Context(), cfg)
		must(t, err)
		must(t, move.Abort())
		if scraped("an abort"); s.Addr() != before {
			t.Errorf("it has moved from %s to %s", before, s.Addr())
		}
		change(t, s, cfg)
		scraped("a change to " + cfg.Address.Name)
	}
}

func TestMain(m *testing.M) { leak.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
