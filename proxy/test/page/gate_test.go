package page

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestGate: penstock page serves one browser alone: the one that shows the token first.
func TestGate(t *testing.T) {
	s := &stage{endpoints: 1, sessions: 1, at: began}
	first := s.serve(t)
	u, err := url.Parse(first)
	must(t, err)
	home := "http://" + u.Host
	ask := func(method, at string, change func(*http.Request)) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, at, nil)
		must(t, err)
		if change != nil {
			change(r)
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		must(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		must(t, err)
		return answer, string(body)
	}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	refused := func(what, method, at string, change func(*http.Request)) {
		t.Helper()
		if answer, body := ask(method, at, change); answer.StatusCode != http.StatusForbidden || strings.Contains(body, "endpoint") {
			t.Errorf("%s: %s, %q", what, answer.Status, body)
		} else if again := strings.HasPrefix(what, "the token again"); strings.Contains(body, "another browser") != again { // whoever reads that looks for a thief
			t.Errorf("%s: %q", what, body)
		}
	}
	refused("no token", "GET", home+"/", nil)
	refused("no token, for the API", "GET", home+"/v1/generations", nil)
	refused("a wrong token", "GET", home+"/?token=ABCDEFGHIJKLMNOPQRSTUVWXYZ", nil)
	refused("another host", "GET", first, func(r *http.Request) { r.Host = "evil.example:" + u.Port() })
	refused("localhost", "GET", first, func(r *http.Request) { r.Host = "localhost:" + u.Port() })
	refused("the token in another path", "GET", home+"/v1/generations?"+u.RawQuery, nil)
	refused("the token by POST", "POST", first, nil)

	answer, body := ask("GET", first, nil)
	if answer.StatusCode != http.StatusOK || len(answer.Cookies()) != 1 || strings.Contains(body, u.Query().Get("token")) {
		t.Fatalf("the token: %s, %q, %q", answer.Status, answer.Cookies(), body)
	}
	cookie := answer.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || !strings.HasSuffix(cookie.Name, u.Port()) {
		t.Errorf("the cookie is %v", cookie)
	}
	refused("the token again", "GET", first, nil)

	known := func(r *http.Request) { r.AddCookie(cookie) }
	for _, path := range []string{"/", "/page/main.js", "/v1/generations", "/?" + u.RawQuery} {
		if answer, _ := ask("GET", home+path, known); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"another cookie": func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookie.Name, Value: "x"}) },
		"another host":   func(r *http.Request) { known(r); r.Host = "evil.example" },
		"another site":   func(r *http.Request) { known(r); r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"an origin":      func(r *http.Request) { known(r); r.Header.Set("Origin", "http://evil.example") },
		"no origin":      func(r *http.Request) { known(r); r.Header.Set("Origin", "null") },
		"two origins":    func(r *http.Request) { known(r); r.Header["Origin"] = []string{home, "http://127.0.0.1"} },
		"origin by TLS":  func(r *http.Request) { known(r); r.Header.Set("Origin", "https://"+u.Host) },
		"another port":   func(r *http.Request) { known(r); r.Header.Set("Sec-Fetch-Site", "same-site") },
	} {
		refused(name, "GET", home+"/v1/generations", change)
		refused(name, "POST", home+"/v1/rollback", func(r *http.Request) { change(r); r.Header.Set("Penstock-Admin", "1") })
	}
	refused("a change without the header of the API", "POST", home+"/v1/rollback", known)
	if answer, _ := ask("POST", home+"/v1/rollback", func(r *http.Request) { known(r); r.Header.Set("Penstock-Admin", "1"); r.Header.Set("Origin", home) }); answer.StatusCode == http.StatusForbidden {
		t.Errorf("a change: %s", answer.Status)
	}
}

// TestHeaders: every file of the page comes with its policy, and nothing else is served.
func TestHeaders(t *testing.T) {
	s := &stage{endpoints: 1, sessions: 1, at: began}
	first := s.serve(t)
	u, _ := url.Parse(first)
	jar := []*http.Cookie{}
	get := func(path string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+u.Host+path, nil)
		must(t, err)
		for _, c := range jar {
			r.AddCookie(c)
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		must(t, err)
		answer.Body.Close()
		return answer
	}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	jar = get("/?" + u.RawQuery).Cookies()
	for path, kind := range map[string]string{"/": "text/html", "/page/main.js": "text/javascript", "/page/base.css": "text/css", "/page/icon.svg": "image/svg+xml"} {
		answer := get(path)
		h := answer.Header
		if answer.StatusCode != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), kind) || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Referrer-Policy") != "no-referrer" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self';") {
			t.Errorf("%s: %s, %v", path, answer.Status, h)
		}
	}
	for _, path := range []string{"/page/", "/page/nothing", "/page/../page.go", "/page/..%2fpage.go", "/index.html", "/page/files"} {
		if answer := get(path); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}
