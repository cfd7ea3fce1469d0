package firstbytes_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
)

const line = "GET /a HTTP/1.1\r\n"

// TestHost: the host of a request is known if no server can read another one.
func TestHost(t *testing.T) {
	for sent, want := range map[string]string{
		line + "Host: Shop.Example.com:8080\r\n\r\n":                    "shop.example.com",
		line + "A: b\r\nhOST:\tshop.example.com. \r\nB: c\r\n\r\nrest":  "shop.example.com",
		line + "Host: [2001:DB8::1]:80\r\n\r\n":                         "[2001:db8::1]",
		line + "Host: 192.0.2.1\r\n\r\n":                                "192.0.2.1",
		"GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n":    "a.example",
		"GET HTTP://A.example:80?x HTTP/1.0\r\n\r\n":                    "a.example",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n": "a.example",
		"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n":                 "a.example",
		line + "X-Host: b\r\nHost: a.example:\r\n\r\n":                  "a.example",
		line + "\r\n":           "none",
		line + "Host:\r\n\r\n":  "none",
		line + "Host: \r\n\r\n": "none",
		line + "Host: a.example\r\nHost: b.example\r\n\r\n":                                    "doubt",
		line + "Host: a.example\r\nhost: a.example\r\n\r\n":                                    "doubt",
		line + "Host: a.example\r\n Host: b.example\r\n\r\n":                                   "doubt",
		line + " Host: a.example\r\n\r\n":                                                      "doubt",
		line + "Host : a.example\r\n\r\n":                                                      "doubt",
		line + "Host\r\n\r\n":                                                                  "doubt",
		line + "X: a\nHost: a.example\r\n\r\n":                                                 "doubt",
		line + "X: a\rHost: a.example\r\n\r\n":                                                 "doubt",
		line + "X: a\x00\r\nHost: a.example\r\n\r\n":                                           "doubt",
		line + "X: a\x01\r\nHost: a.example\r\n\r\n":                                           "doubt",
		line + "Host: user@a.example\r\n\r\n":                                                  "doubt",
		line + "Host: a.example, b.example\r\n\r\n":                                            "doubt",
		line + "Host: a.example/b\r\n\r\n":                                                     "doubt",
		line + "Host: a..example\r\n\r\n":                                                      "doubt",
		line + "Host: a.example..\r\n\r\n":                                                     "doubt",
		line + "Host: a.example:80:80\r\n\r\n":                                                 "doubt",
		line + "Host: [::1\r\n\r\n":                                                            "doubt",
		line + "Host: b%2eexample\r\n\r\n":                                                     "doubt",
		line + "\n":                                                                            "doubt",
		"GET http://b.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n":                           "doubt",
		"GET a.example:80 HTTP/1.1\r\n\r\n":                                                    "doubt",
		"CONNECT http://a.example HTTP/1.1\r\n\r\n":                                            "doubt",
		"CONNECT a.example:80 HTTP/1.1\r\nHost: b.example\r\n\r\n":                             "doubt",
		"GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n":                                    "doubt",
		line + "X: " + strings.Repeat("a", firstbytes.MaxHead) + "\r\nHost: a.example\r\n\r\n": "doubt",
		"\r\n" + line + "Host: a.example\r\n\r\n":                                              "doubt",
		"GET /a HTTP/1.1\nHost: a.example\n\n":                                                 "doubt",
		"GET  /a HTTP/1.1\r\nHost: a.example\r\n\r\n":                                          "doubt",
		"GET\t/a HTTP/1.1\r\nHost: a.example\r\n\r\n":                                          "doubt",
		"GET /a b HTTP/1.1\r\nHost: a.example\r\n\r\n":                                         "doubt",
		"GET /a HTTP/1.2\r\nHost: a.example\r\n\r\n":                                           "doubt",
		"GET /a http/1.1\r\nHost: a.example\r\n\r\n":                                           "doubt",
		"GET /a\r\n": "doubt",
		"GET " + strings.Repeat("/", firstbytes.MaxHead): "doubt",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":               "doubt",
		"SSH-2.0-x\r\n":                                  "none",
		line + "Host: a.example\r\n":                     "open",
		line:                                             "open",
		"GET":                                            "open",
		"GET /":                                          "open",
	} {
		f, _ := look(sent)
		got := f.Host.Value
		if f.Host.Verdict != firstbytes.Yes {
			got = map[firstbytes.Verdict]string{firstbytes.No: "none", firstbytes.Doubt: "doubt", firstbytes.Open: "open"}[f.Host.Verdict]
		}
		if got != want {
			t.Errorf("%.60q: host %s (%s), want %s", sent, got, f.Why, want)
		}
		if want == "doubt" && f.Why == "" {
			t.Errorf("%.60q: nothing says why", sent)
		}
	}
}

// TestPath: the path of a request is known if no server can read another one.
func TestPath(t *testing.T) {
	for target, want := range map[string]string{
		"/":                    "/",
		"/a/b?c=/../d":         "/a/b",
		"/%61/b%20c":           "/a/b c",
		"/A":                   "/A",
		"/a/":                  "/a/",
		"/%C3%BC":              "/\u00fc",
		"http://h/a?b":         "/a",
		"http://h":             "/",
		"http://h?a":           "doubt",
		"http://h?/a":          "doubt",
		"*":                    "none",
		"h:443":                "doubt",
		"/a/../b":              "doubt",
		"/a/..":                "doubt",
		"/./a":                 "doubt",
		"/a/%2e%2e/b":          "doubt",
		"/a/.%2E/b":            "doubt",
		"//a":                  "doubt",
		"/a//b":                "doubt",
		"/a%2fb":               "doubt",
		"/a%252fb":             "doubt",
		"/a%00":                "doubt",
		"/a%0d":                "doubt",
		"/a%":                  "doubt",
		"/a%4":                 "doubt",
		"/a%zz":                "doubt",
		"/a\\b":                "doubt",
		"/a%5cb":               "doubt",
		"/a;b":                 "doubt",
		"/a/..;/b":             "doubt",
		"/a#b":                 "doubt",
		"/a%23b":               "doubt",
		"/a%3fb":               "doubt",
		"a/b":                  "doubt",
		"http://h/../a":        "doubt",
		"ftp://h/a":            "doubt",
		"/a\u00fc":             "doubt",
		"http://h#a":           "doubt",
		"/admin/%2e%2e/public": "doubt",
	} {
		f, _ := look("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")
		got := f.Path.Value
		if f.Path.Verdict != firstbytes.Yes {
			got = map[firstbytes.Verdict]string{firstbytes.No: "none", firstbytes.Doubt: "doubt", firstbytes.Open: "open"}[f.Path.Verdict]
		}
		if got != want {
			t.Errorf("%s: path %q (%s), want %q", target, got, f.Why, want)
		}
	}
}

// asRead fails unless net/http reads the same host and path in a request, where they are known.
func asRead(t *testing.T, b []byte, f *firstbytes.Facts) {
	t.Helper()
	if f.Host.Verdict != firstbytes.Yes {
		return
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(b))))
	if err != nil {
		return // it is stricter, as with a Content-Length that is none
	}
	host, v := firstbytes.CanonicalHost(r.Host)
	if v != firstbytes.Yes || host != f.Host.Value {
		t.Fatalf("%q: host %q, and net/http reads %q", b, f.Host.Value, r.Host)
	}
	if f.Path.Verdict == firstbytes.Yes && r.URL.Path != f.Path.Value && !(r.URL.Path == "" && f.Path.Value == "/") {
		t.Fatalf("%q: path %q, and net/http reads %q", b, f.Path.Value, r.URL.Path)
	}
}
