package admin_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

// A wire is a request as sent, any part of which may be wrong.
type wire struct {
	method, target string
	header         string // lines
	body           string
}

// marked is the header of a request that may change something.
const marked = admin.Header + ": 1\r\n"

// send sends a request and returns the code, and whether it changed anything or tried to. The
// code is 0 if it is no request at all.
func (r *rig) send(w wire) (code int, changes bool) {
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n", w.method, w.target)
	if w.body != "" { // before the header's own lines, the last of which may have no end
		text += fmt.Sprintf("Content-Length: %d\r\n", len(w.body))
	}
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text + w.header + "\r\n" + w.body)))
	if err != nil {
		return 0, false
	}
	before, at := r.reloader.Status(), r.Addr()
	r.balancer.forget()
	answer := httptest.NewRecorder()
	r.Handler().ServeHTTP(answer, req)
	after := r.reloader.Status()
	changes = r.balancer.last() != "" || before.Current != after.Current || (before.Pending == nil) != (after.Pending == nil) || r.Addr() != at
	select {
	case <-r.stopped:
		changes = true
	default:
	}
	return answer.Code, changes
}

// settle leaves no reload pending, and one to return to.
func (r *rig) settle(t *testing.T) {
	t.Helper()
	if r.reloader.Status().Pending != nil {
		if _, err := r.reloader.Confirm(t.Context(), 0, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if r.reloader.Status().Previous == 0 {
		if _, err := r.reloader.Apply(t.Context(), 0, rollback.Options{}); err != nil {
			t.Fatal(err)
		}
	}
}

// pend leaves a reload pending.
func (r *rig) pend(t *testing.T) {
	t.Helper()
	r.settle(t)
	if _, err := r.reloader.Apply(t.Context(), 0, rollback.Options{Confirm: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// goods are valid requests of every kind.
var goods = []string{
	"/v1/plan", "/v1/plan?config=/etc/penstock.yaml",
	"/v1/reload", "/v1/reload?confirm=2m", "/v1/reload?confirm=1h30m&rollback_if=failures%3E50", "/v1/reload?rollback_if=failures>=1&confirm=1s",
	"/v1/confirm", "/v1/rollback",
	"/v1/process/drain", "/v1/listener/drain?listener=web", "/v1/endpoint/drain?upstream=shop&endpoint=a", "/v1/endpoint/ready?endpoint=[::1]:80&upstream=shop",
	"/v1/endpoint/weight?upstream=shop&endpoint=a&weight=0", "/v1/endpoint/weight?weight=256&endpoint=a%20b&upstream=shop",
	"/v1/split/set?listener=web&route=0&percent=shop:95&percent=next:5", "/v1/split/set?percent=a:b:99.75&listener=web&percent=b:0.25%25&route=12",
	"/v1/endpoint/add?upstream=shop&address=127.0.0.1:80", "/v1/endpoint/add?upstream=shop&address=127.0.0.1:80&name=b&weight=0&zone=z",
	"/v1/endpoint/remove?upstream=shop&endpoint=a", "/v1/endpoint/maint?upstream=shop&endpoint=a", "/v1/listener/ready?listener=web",
	"/v1/sessions/end?all=true", "/v1/sessions/end?endpoint=a&now=true&over=5m", "/v1/sessions/end?older=5m&grace=1m&quiet=5s&then_reset=true&bytes=1MiB", "/v1/sessions/keep",
	"/v1/deny/add?source=10.0.0.7&for=1h", "/v1/deny/add?for=1h30m&source=unix&listener=web&end=true", "/v1/deny/remove?source=10.0.0.7", "/v1/deny/remove?source=unix&listener=web",
	"/v1/mirrors/reset", "/v1/mirrors/reset?listener=web",
	"/v1/lane/on", "/v1/lane/off", "/v1/lane/return", "/v1/lane/flush",
	"/v1/leave", // for good, so it is the last
}

// mutations are a good request with one thing wrong with it.
func mutations(target string) (list []wire) {
	add := func(w wire) { list = append(list, w) }
	for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post", "POSTS"} {
		add(wire{method, target, marked, ""})
	}
	for _, header := range []string{"", admin.Header + ":\r\n", admin.Header + ": 0\r\n", admin.Header + ": true\r\n", marked + marked, "X-" + marked} {
		add(wire{"POST", target, header, ""})
	}
	path, query, _ := strings.Cut(target, "?")
	for _, body := range []string{"x", "{}", query + "&", "listener=web"} {
		add(wire{"POST", target, marked, body})
		add(wire{"POST", target, marked + "Content-Type: application/x-www-form-urlencoded\r\n", body})
	}
	add(wire{"POST", target, marked + "Transfer-Encoding: chunked\r\n", ""})
	for _, wrong := range []string{path + "/", "/" + path, path + "x", "/." + path, path + ";a", strings.ToUpper(path), fmt.Sprintf("/%%%02x%s", path[1], path[2:])} {
		add(wire{"POST", strings.Replace(target, path, wrong, 1), marked, ""})
	}
	joint := "?"
	if query != "" {
		joint = "&"
	}
	for _, more := range []string{"", "x", "x=1", "=", "=1", "%00=1", "listener", "listener=", "undo", "confirm=", "endpoint=", "generation=", "config=", ";"} {
		add(wire{"POST", target + joint + more, marked, ""})
	}
	if query == "" {
		return list
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		with := func(one ...string) {
			add(wire{"POST", path + "?" + strings.Join(slices.Replace(slices.Clone(pairs), i, i+1, one...), "&"), marked, ""})
		}
		with(key)
		with(key + "=")
		with(strings.ToUpper(key) + "=" + value)
		with("%20" + key + "=" + value)
		with(pair, pair)
		with(pair, key+"=")
		with("", pair)
		with(pair + "%")
		if !slices.Contains([]string{"listener", "upstream", "endpoint", "config", "address", "name", "zone", "source"}, key) { // which may be any text
			with(pair + "x")
			with(pair + "%0a")
		}
		if slices.Contains([]string{"confirm", "generation", "weight", "route"}, key) {
			with(key + "=%20" + value)
			with(key + "=-" + value)
		}
	}
	return list
}

// TestOneThingWrong: a request with any one thing wrong changes nothing. A valid request has
// its effect.
func TestOneThingWrong(t *testing.T) {
	r := newRig(t, "")
	tried := make(map[string]bool)
	for _, target := range goods {
		path, _, _ := strings.Cut(target, "?")
		tried[path] = true
		prepare := r.settle
		r.balancer.drain(path == "/v1/leave")
		if path == "/v1/confirm" {
			prepare = r.pend
		}
		for _, w := range mutations(target) {
			prepare(t)
			if code, changes := r.send(w); changes || code > 0 && code < 400 {
				t.Errorf("%q gets %d, changes %v", w, code, changes)
			}
		}
		prepare(t)
		want := http.StatusOK
		if code, changes := r.send(wire{"POST", target, marked, ""}); code != want || changes != (path != "/v1/plan") {
			t.Errorf("%s gets %d, changes %v", target, code, changes)
		}
	}
	for _, path := range admin.Posts() {
		if !tried[path] {
			t.Errorf("%s is not tried", path)
		}
	}
}

// patterns are all requests that change something, with their parameters sorted and decoded.
// They follow the page about them, and not the server.
var patterns = []*regexp.Regexp{
	regexp.MustCompile(`(?s)^/v1/(reload|confirm|rollback|process/drain|plan|leave|sessions/keep|mirrors/reset|lane/(on|off|return|flush))$`),
	regexp.MustCompile(`(?s)^/v1/plan\?config=/.*$`),
	regexp.MustCompile(`(?s)^/v1/reload\?confirm=[^\n&]+(\nrollback_if=[^\n&]+)?$`),
	regexp.MustCompile(`(?s)^/v1/confirm\?generation=[0-9]+$`),
	regexp.MustCompile(`(?s)^/v1/mirrors/reset\?listener=.+$`),
	regexp.MustCompile(`(?s)^/v1/listener/(drain|ready)\?listener=.+$`),
	regexp.MustCompile(`(?s)^/v1/endpoint/(remove|drain|ready|maint)\?endpoint=.+\nupstream=.+$`),
	regexp.MustCompile(`(?s)^/v1/endpoint/weight\?endpoint=.+\nupstream=.+\nweight=[0-9]+$`),
	regexp.MustCompile(`(?s)^/v1/split/set\?listener=.+\n(percent=.+:[0-9.]+%?\n)+route=[0-9]+$`),
	regexp.MustCompile(`(?s)^/v1/endpoint/add\?address=.+\n(name=.+\n)?upstream=.+(\nweight=[0-9]+)?(\nzone=.+)?$`),
	regexp.MustCompile(`(?s)^/v1/sessions/end\?((all|bytes|dry_run|endpoint|grace|id|idle|listener|now|older|over|quiet|source|state|then_reset|upstream|verdict)=.+)+$`),
	regexp.MustCompile(`(?s)^/v1/deny/add\?(end=(true|false)\n)?for=.+\n(listener=.+\n)?source=.+$`),
	regexp.MustCompile(`(?s)^/v1/deny/remove\?(listener=.+\n)?source=.+$`),
}

// mayChange reports whether a request may change anything.
func mayChange(w wire) bool {
	header := regexp.MustCompile(`(?im)^content-length: *0+ *\r?$`).ReplaceAllString(w.header, "") // which is no body
	if w.method != "POST" || w.body != "" || regexp.MustCompile(`(?im)^[ \t]*(content-length|transfer-encoding)[ \t]*:`).MatchString(header) ||
		len(regexp.MustCompile(`(?im)^`+admin.Header+`:`).FindAllString(w.header, -1)) != 1 || !regexp.MustCompile(`(?im)^`+admin.Header+`: *1 *\r?$`).MatchString(w.header) {
		return false
	}
	target := regexp.MustCompile(`^(?i:https?://[^/?]*)`).ReplaceAllString(w.target, "")
	path, query, found := strings.Cut(target, "?")
	if !found {
		return patterns[0].MatchString(path)
	}
	var pairs []string
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		key, err1 := url.QueryUnescape(key)
		value, err2 := url.QueryUnescape(value)
		if err1 != nil || err2 != nil || value == "" || slices.ContainsFunc(pairs, func(p string) bool { return key != "percent" && strings.HasPrefix(p, key+"=") }) {
			return false
		}
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return slices.ContainsFunc(patterns[1:], func(p *regexp.Regexp) bool { return p.MatchString(path + "?" + strings.Join(pairs, "\n")) })
}

// FuzzRequests: a request causes a change only if no part of it is wrong.
func FuzzRequests(f *testing.F) {
	for _, target := range goods {
		f.Add("POST", target, marked, "")
		for _, w := range mutations(target) {
			f.Add(w.method, w.target, w.header, w.body)
		}
	}
	f.Add("GET", "/v1/status", "", "")
	f.Add("POST", "/v1/plan", marked+"Transfer-Encoding`: chunked\r\n", "") // a header of another name
	f.Add("POST", "http://localhost/v1/listener/dr%61in?listener=web", marked, "")
	f.Fuzz(func(t *testing.T, method, target, header, body string) {
		r := newQuietRig(t)
		r.pend(t)
		w := wire{method, target, header, body}
		code, changes := r.send(w)
		if changes && !mayChange(w) {
			t.Errorf("%q causes a change, and gets %d", w, code)
		}
		if !changes && method == "POST" && code == http.StatusOK && !mayChange(w) {
			t.Errorf("%q gets the answer of a valid request", w)
		}
	})
}
