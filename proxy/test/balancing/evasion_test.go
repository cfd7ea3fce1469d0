package balancing

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
)

// guarded has a route by path before a default upstream that would serve all paths.
const guarded = `
listeners:
  - name: guarded
    bind: "127.0.0.1:0"
    timeouts: {preread: 500ms}
    routes:
      - {match: {path: [/admin, "/admin/*"]}, upstream: admin}
      - {match: {host: [admin.test]}, upstream: admin}
    upstream: public
upstreams:
  - {name: admin, endpoints: [%q]}
  - {name: public, endpoints: [%q]}
`

// anyMethod is a server of Python's library that serves whichever method and path.
const anyMethod = `
import sys, socketserver, wsgiref.simple_server as w
class S(socketserver.ThreadingMixIn, w.WSGIServer):
    daemon_threads = True
    request_queue_size = 100
    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address
        self.setup_environ()
class H(w.WSGIRequestHandler):
    def log_message(self, *a): pass
def app(e, start):
    start('200 OK', [('Content-Type', 'text/plain')])
    return [('<public %s %s>' % (e['PATH_INFO'], e.get('HTTP_HOST'))).encode('latin-1', 'replace')]
w.make_server(sys.argv[1], int(sys.argv[2]), app, server_class=S, handler_class=H).serve_forever()
`

// testEvasion: no form of a request gets past the routes by path and host to a server that would serve it.
func testEvasion(t *testing.T) {
	for name, serve := range map[string]func(*testing.T) string{
		"net/http": func(t *testing.T) string {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "<public %s %s>", r.URL.Path, r.Host)
			}))
			t.Cleanup(s.Close)
			return s.Listener.Addr().String()
		},
		"nginx": func(t *testing.T) string {
			addr, _, _ := software.Addr(t)
			startNginx(t, software.Dir(t, nil), addr, fmt.Sprintf(`server { listen %s; return 200 "<public $uri $host>"; }`, addr))
			return addr
		},
		"Python": func(t *testing.T) string {
			addr, host, port := software.Addr(t)
			dir := software.Dir(t, nil)
			must(t, writeFile(filepath.Join(dir, "any.py"), anyMethod))
			software.Service{Command: []string{software.Need(t, "python3", "python3"), "any.py", host, port}, Dir: dir, Addr: addr, Stop: syscall.SIGTERM}.Start(t)
			return addr
		},
	} {
		t.Run(name, func(t *testing.T) { evade(t, serve(t)) })
	}
}

// evade sends each form to the server, and those that it serves through penstock.
func evade(t *testing.T, server string) {
	p := start(t, fmt.Sprintf(guarded, answering(t, "", "admin"), server))
	addr, _, _ := p.at("guarded")
	var served, tried int
	var mu sync.Mutex
	var all sync.WaitGroup
	turns := make(chan struct{}, 16)
	for _, form := range forms() {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			direct := isAdmin(ask(server, form))
			evaded := direct && isAdmin(ask(addr, form))
			mu.Lock()
			defer mu.Unlock()
			tried++
			if direct {
				served++
			}
			if evaded {
				t.Errorf("%.80q (%d bytes) evades the routes", form, len(form))
			}
		})
	}
	all.Wait()
	t.Logf("%d forms, of which the server serves %d", tried, served)
	if tried < 700 || served < 50 {
		t.Errorf("%d forms, of which the server serves %d: too few", tried, served)
	}
	if got := ask(addr, "GET /pub HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"); !bytes.Contains(got, []byte("<public /pub")) {
		t.Errorf("another path gets %q", got)
	}
}

// isAdmin reports whether the public server has served a path or host that it is not to serve.
func isAdmin(answer []byte) bool {
	_, rest, ok := bytes.Cut(answer, []byte("<public "))
	path, host, _ := bytes.Cut(rest, []byte(" "))
	return ok && (bytes.HasPrefix(path, []byte("/admin")) || bytes.HasPrefix(host, []byte("admin.test")))
}

// ask returns the answer to some bytes, after which the client has no more to send.
func ask(addr, sent string) []byte {
	c, err := net.DialTimeout("tcp", addr, condition.Patience)
	if err != nil {
		return nil
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	_, _ = io.WriteString(c, sent)
	_ = c.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(io.LimitReader(c, 1<<16))
	return answer
}

// forms returns requests for the guarded path, and for the guarded host, of which servers serve some.
func forms() (list []string) {
	line := func(first string) {
		list = append(list, first+"\r\nHost: a.test\r\nConnection: close\r\n\r\n")
		if strings.Contains(first, "/admin/x") {
			list = append(list, strings.Replace(first, "/admin/x", "/pub", 1)+"\r\nHost: admin.test\r\nConnection: close\r\n\r\n")
		}
	}
	for c := range 256 {
		b := string([]byte{byte(c)})
		line("GE" + b + "T /admin/x HTTP/1.1")
		line(b + "GET /admin/x HTTP/1.1")
		if isSeparator := c <= ' ' || c >= 0x7f; isSeparator {
			line("GET" + b + "/admin/x HTTP/1.1")
			line("GET" + b + "/admin/x" + b + "HTTP/1.1")
			line("GET /admin/x" + b + "HTTP/1.1")
			line("GET" + b + " /admin/x HTTP/1.1")
			line("GET " + b + "/admin/x HTTP/1.1")
			line("GET /admin/x HTTP/1.1" + b)
			line("GET /admin/x " + b + "HTTP/1.1")
		}
	}
	for _, n := range []int{1, 8, 17, 31, 32, 33, 64, 65, 128, 1000, 4000, 7000, 8100, 8191, 8192, 9000, 60_000} {
		line(strings.Repeat("A", n) + " /admin/x HTTP/1.1")
		line("GET " + strings.Repeat(" ", n) + "/admin/x HTTP/1.1")
		line(strings.Repeat("\r\n", n) + "GET /admin/x HTTP/1.1")
		line(strings.Repeat("\n", n) + "GET /admin/x HTTP/1.1")
		line(strings.Repeat(" ", n) + "GET /admin/x HTTP/1.1")
		line("GET /admin/x?" + strings.Repeat("a", n) + " HTTP/1.1")
	}
	for _, first := range []string{
		"get /admin/x HTTP/1.1", "CONNECT /admin/x HTTP/1.1", "OPTIONS /admin/x HTTP/1.1", "PRI /admin/x HTTP/1.1", "SSH-2.0 /admin/x HTTP/1.1", "*1 /admin/x HTTP/1.1",
		"PING /admin/x HTTP/1.1", "GET http://a.test/admin/x HTTP/1.1", "GET HTTP://a.test/admin/x HTTP/1.1", "GET http://admin.test/pub HTTP/1.1", "GET //a.test/admin/x HTTP/1.1",
		"\xef\xbb\xbfGET /admin/x HTTP/1.1", "\x16\x03\x01 /admin/x HTTP/1.1", "\x00\x03\x00\x00 /admin/x HTTP/1.1", "GET /admin/x HTTP/1.0", "GET /admin/x HTTP/1.9",
		"GET /admin/x http/1.1", "GET /x/../admin/x HTTP/1.1", "GET /%61dmin/x HTTP/1.1", "GET /admin%2fx HTTP/1.1", "GET ./admin/x HTTP/1.1", "GET admin/x HTTP/1.1",
		"\x00\x00\x00\x08\x04\xd2\x16\x2f /admin/x HTTP/1.1", "CONNECT admin.test:80 HTTP/1.1", "\x80\x2e\x01 /admin/x HTTP/1.1",
	} {
		line(first)
	}
	for _, end := range []string{"\r\n", "\n", "\r", " \r\n", " \n", "\r\r\n", "\n\n"} {
		for _, method := range []string{"GET", "get", "HEAD", "POST", "A", "\tGET"} {
			list = append(list, method+" /admin/x"+end, method+" /admin/x HTTP/1.0"+end+end, method+" /pub HTTP/1.0"+end+"Host: admin.test"+end+end)
		}
	}
	return list
}
