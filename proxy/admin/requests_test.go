package admin_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

func refused(t *testing.T, err error, code int, text string) {
	t.Helper()
	var r *admin.Refusal
	if !errors.As(err, &r) || r.Code != code || !strings.Contains(r.Line, text) || strings.Contains(r.Line, "\n") {
		t.Errorf("%v, want %d, %q", err, code, text)
	}
}

// TestRequestsThatCannotBeMeant: invalid requests change nothing. Above all, a misspelled
// condition does not make a reload without one, and an empty name not a drain of the whole
// process.
func TestRequestsThatCannotBeMeant(t *testing.T) {
	r := newRig(t, "127.0.0.1:0")
	for query, want := range map[string]string{
		"v1/reload?confrim=2m":                                               `/v1/reload has no parameter "confrim": write /v1/reload, or /v1/reload?confirm=TIME, or /v1/reload?confirm=TIME&rollback_if=COUNTER>N`,
		"v1/reload?confirm=2":                                                `confirm: "2" is not a time: write 30s or 2m`,
		"v1/reload?confirm=-2m":                                              "write a time from 1s to 24h",
		"v1/reload?confirm=0":                                                "write a time from 1s to 24h",
		"v1/reload?confirm=1ns":                                              "write a time from 1s to 24h, such as 2m",
		"v1/reload?confirm=999ms":                                            "write a time from 1s to 24h",
		"v1/reload?confirm=":                                                 "confirm has no value: write confirm=",
		"v1/reload?confirm":                                                  "confirm has no value: write confirm=",
		"v1/reload?confirm=1m&rollback_if=":                                  "rollback_if has no value: write rollback_if=",
		"v1/reload?confirm=1m&confirm=2m":                                    "confirm: it is written 2 times: write it once",
		"v1/reload?confirm=1m&confirm=1m":                                    "write it once",
		"v1/reload?confirm=25h":                                              "write a time from 1s to 24h",
		"v1/reload?Confirm=1m":                                               `no parameter "Confirm"`,
		"v1/reload?rollback_if=failures>5":                                   "a parameter is missing, or cannot be used with the others: write /v1/reload, or /v1/reload?confirm=TIME, or",
		"v1/reload?confirm=1m&rollback_if=failures":                          "there is no '>'",
		"v1/reload?confirm=1m&rollback_if=tears>1":                           `no counter "tears"`,
		"v1/reload?a;b":                                                      "query: invalid semicolon",
		"v1/reload?confirm=%zz":                                              "query: invalid URL escape",
		"v1/reload?":                                                         "no parameter follows '?'",
		"v1/reload?&":                                                        "no parameter follows '?' or '&': leave the '?' or '&' out",
		"v1/reload?confirm=1m&":                                              "no parameter follows",
		"v1/reload?=1m":                                                      `/v1/reload has no parameter ""`,
		"v1/confirm?really=yes":                                              `no parameter "really"`,
		"v1/confirm?generation=":                                             "generation has no value: write generation=",
		"v1/confirm?generation=0":                                            "write a whole number, 1 or more",
		"v1/confirm?generation=two":                                          "write a whole number, 1 or more",
		"v1/rollback?generation=1":                                           `/v1/rollback has no parameter "generation": write /v1/rollback`,
		"v1/plan?config=":                                                    "config has no value: write config=",
		"v1/plan?config=penstock.yaml":                                       "not an absolute path",
		"v1/listener/drain?listener=":                                        "listener has no value: write listener=",
		"v1/listener/drain?listener":                                         "listener has no value: write listener=",
		"v1/process/drain?":                                                  "no parameter follows '?'",
		"v1/listener/drain?listener=web&listener=web":                        "write it once",
		"v1/endpoint/drain?endpoint=a":                                       "write /v1/endpoint/drain?upstream=NAME&endpoint=NAME",
		"v1/endpoint/drain?upstream=&endpoint=":                              "endpoint has no value: write endpoint=",
		"v1/endpoint/drain?upstream=shop&endpoint=":                          "endpoint has no value: write endpoint=",
		"v1/listener/drain?listener=web&upstream=shop":                       `/v1/listener/drain has no parameter "upstream"`,
		"v1/endpoint/weight?upstream=shop&endpoint=a&weight=":                "weight has no value: write weight=",
		"v1/endpoint/weight?upstream=shop&endpoint=a&weight=-1":              "write a whole number, 0 or more",
		"v1/endpoint/weight?upstream=shop&endpoint=a&weight=%2B1":            "write a whole number, 0 or more",
		"v1/endpoint/weight?upstream=shop&endpoint=a&weight=07":              "write a whole number, 0 or more",
		"v1/endpoint/weight?upstream=shop&endpoint=a&weight=1e1":             "write a whole number, 0 or more",
		"v1/endpoint/weight?upstream=shop&endpoint=a&weight=4294967297":      "write a whole number, 0 or more",
		"v1/endpoint/weight?upstream=shop&weight=1":                          "write /v1/endpoint/weight?upstream=NAME&endpoint=NAME&weight=N",
		"v1/endpoint/weight?upstream=shop&endpoint=a":                        "write /v1/endpoint/weight?upstream=NAME&endpoint=NAME&weight=N",
		"v1/endpoint/weight":                                                 "write /v1/endpoint/weight?upstream=NAME&endpoint=NAME&weight=N",
		"v1/split/set?listener=web&percent=a:100":                            "write /v1/split/set?listener=NAME&route=N&percent=NAME:N",
		"v1/split/set?listener=web&route=0":                                  "write /v1/split/set?listener=NAME&route=N&percent=NAME:N",
		"v1/split/set?listener=web&route=&percent=a:100":                     "route has no value: write route=",
		"v1/split/set?listener=&route=0&percent=a:100":                       "listener has no value: write listener=",
		"v1/split/set?listener=web&route=-1&percent=a:100":                   "write a whole number, 0 or more",
		"v1/split/set?listener=web&route=0&percent=a:60":                     "add up to 60: write percentages that add up to 100",
		"v1/split/set?listener=web&route=0&percent=a:100&percent=":           "percent has no value: write percent=",
		"v1/split/set?listener=web&route=0&percent=a:0.125&percent=b:99.875": "such as shop:95",
		"v1/split/set?listener=web&route=0&percent=a:NaN":                    "such as shop:95",
		"v1/split/set?listener=web&route=0&percent=a:1e2":                    "such as shop:95",
		"v1/split/set?listener=web&route=0&percent=a:0x64":                   "such as shop:95",
		"v1/split/set?listener=web&route=0&percent=a:%2B100":                 "such as shop:95",
		"v1/split/set?listener=web&route=0&percent=a:1e309":                  "such as shop:95",
		"v1/split/set?listener=web&route=0&percent=a:60.5&percent=b:39.4":    "add up to 99.9: write percentages that add up to 100",
		"v1/split/set?listener=web&route=0&percent=a":                        "such as shop:95",
		"v1/split/set?listener=web&route=0&percent=:100":                     "such as shop:95",
		"v1/split/set?listener=web&route=0&percent=a:50&percent=a:50":        "duplicate upstream a",
		"v1/split/set?listener=web&route=0&percent=a:101&percent=b:-1":       "such as shop:95",
		"v1/sessions/end":                                                    "say which sessions: use at least one of id, listener, upstream,",
		"v1/sessions/end?verdict=any":                                        "say which sessions",
		"v1/sessions/end?all=true&listener=web":                              "say which sessions",
		"v1/sessions/end?all=true&now=true&grace=1s":                         "cannot be used with now",
		"v1/sessions/end?all=true&now=true&quiet=1m":                         "cannot be used with now",
		"v1/sessions/end?state=waiting":                                      "have no session yet",
		"v1/sessions/end?state=open":                                         "is unknown",
		"v1/sessions/end?all=true&quiet=1ms":                                 "write 1s or more",
		"v1/sessions/end?all=true&over=168h":                                 "write at most 24h",
		"v1/deny/add?source=10.0.0.7&for=1ms":                                "write a time from 1s",
		"v1/deny/add?source=10.0.0.7&for=1h1h":                               "is not a time", // may be meant as 1h1m
		"v1/deny/add?source=10.0.0.7&for=1m1h":                               "is not a time",
		"v1/deny/add?source=10.0.0.7&for=1ms1s":                              "is not a time",
		"v1/deny/add?source=10.0.0.7&for=1h0s0s":                             "is not a time",
		"v1/reload?confirm=1m1m":                                             "is not a time",
		"GET v1/sessions?sort=x":                                             "is unknown",
		"GET v1/sessions?top=1048576":                                        "write at most 10000",
		"GET v1/sources?prefix=33":                                           "at most 32 and 128 bits",
	} {
		code, body := r.post(t, query, http.Header{admin.Header: {"1"}}, "")
		if code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %s, want %q", query, code, body, want)
		}
	}
	if n := r.reloader.Status().Current; n != 1 || r.balancer.last() != "" || len(r.stopped) > 0 {
		t.Errorf("generation %d, the balancer's last call is %q", n, r.balancer.last())
	}
}

// TestPagesOfBrowsers: a web page cannot make a request: neither by a form, which cannot set the
// header, nor by a name that resolves to this machine.
func TestPagesOfBrowsers(t *testing.T) {
	r := newRig(t, "127.0.0.1:0")
	for _, path := range []string{"reload", "confirm", "rollback", "process/drain", "endpoint/weight", "split/set", "plan"} {
		if code, body := r.post(t, "v1/"+path, http.Header{"Content-Type": {"text/plain"}}, ""); code != http.StatusForbidden || !strings.Contains(body, admin.Header) {
			t.Errorf("without the header %s gets %d, %s", path, code, body)
		}
	}
	for host, want := range map[string]int{
		"evil.example": http.StatusForbidden, "evil.example:80": http.StatusForbidden, "10.0.0.1": http.StatusForbidden,
		"127.0.0.1.evil.example": http.StatusForbidden, "localhost": http.StatusOK, "localhost:81": http.StatusOK, "[::1]:5": http.StatusOK,
		"[::1]": http.StatusOK, "LOCALHOST": http.StatusOK, "LocalHost:81": http.StatusOK, "localhost.": http.StatusOK, "localhost.:81": http.StatusOK,
		"127.1.2.3": http.StatusOK, "[localhost]": http.StatusForbidden, "localhost..": http.StatusForbidden, "a.localhost": http.StatusForbidden,
		"[::2]": http.StatusForbidden, "[fe80::1]:5": http.StatusForbidden, "0.0.0.0": http.StatusForbidden,
	} {
		if code, _ := r.post(t, "v1/reload", http.Header{admin.Header: {"1"}}, host); code != want {
			t.Errorf("with host %s a reload gets %d, want %d", host, code, want)
		}
	}
	for _, probe := range []string{"/livez", "/readyz"} { // a balancer's check has any host
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Addr()+probe, nil)
		must(t, err)
		req.Host = "balancer.example"
		answer, err := client.Do(req)
		must(t, err)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", probe, answer.Status)
		}
	}
	// A browser's preflight request for the header is not answered.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, "http://"+r.Addr()+"/v1/reload", nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+changeToken)
	req.Header.Set("Origin", "http://evil.example")
	req.Header.Set("Access-Control-Request-Method", "POST")
	answer, err := client.Do(req)
	must(t, err)
	answer.Body.Close()
	allows := slices.ContainsFunc([]string{"Access-Control-Allow-Origin", "Access-Control-Allow-Headers"}, func(h string) bool { return answer.Header.Get(h) != "" })
	if answer.StatusCode != http.StatusForbidden || allows {
		t.Errorf("the preflight gets %d, %v", answer.StatusCode, answer.Header)
	}
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// post sends a request as it is, by POST unless it says GET.
func (r *rig) post(t *testing.T, query string, h http.Header, host string) (code int, body string) {
	t.Helper()
	method := http.MethodPost
	if rest, reads := strings.CutPrefix(query, "GET "); reads {
		method, query = http.MethodGet, rest
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.Addr()+"/"+query, http.NoBody)
	must(t, err)
	req.Header, req.Host = h.Clone(), host
	req.Header.Set("Authorization", "Bearer "+changeToken)
	answer, err := client.Do(req)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	if kind := answer.Header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("%s is answered as %s", query, kind)
	}
	var said struct{ Error string }
	if err := json.Unmarshal(text, &said); err != nil {
		t.Errorf("%s is answered with %q: %v", query, text, err)
	}
	return answer.StatusCode, said.Error
}

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
	"/v1/deny/add?source=10.0.0.7&for=1.5h", "/v1/deny/add?for=1h1m1s&source=unix&listener=web&end=true", "/v1/deny/remove?source=10.0.0.7", "/v1/deny/remove?source=unix&listener=web",
	"/v1/mirrors/reset", "/v1/mirrors/reset?listener=web",
	"/v1/lane/on", "/v1/lane/off", "/v1/lane/return", "/v1/lane/flush",
	"/v1/leave", // for good, so it is the last
}

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

// TestRefusalsInTermsOfHTTP: a refusal says in a short line what to write in a request, and names no flag.
func TestRefusalsInTermsOfHTTP(t *testing.T) {
	r := newRig(t, "")
	for _, x := range []struct {
		handler        http.Handler
		method, target string
		code           int
		want           string
	}{
		{r.Remote(readToken, changeToken), "GET", "/v1/status", 401, "a token is needed: write the header Authorization: Bearer TOKEN"},
		{r.Handler(), "GET", "/v1/statsu", 404, `path "/v1/statsu": not found: write GET /v1/status; GET /v1/openapi.json describes all paths`},
		{r.Handler(), "GET", "/status", 404, "write GET /v1/status; "},
		{r.Handler(), "GET", "/v1/nothing", 404, `path "/v1/nothing": not found: GET /v1/openapi.json describes all paths`},
		{r.Handler(), "POST", "/v1/drain", 404, "write POST /v1/process/drain or POST /v1/listener/drain or POST /v1/endpoint/drain; "},
		{r.Handler(), "GET", "/v1/split", 404, "write POST /v1/split/set; "},
		{r.Handler(), "POST", "/v1/session/end", 404, "write POST /v1/sessions/end; "},
		{r.Handler(), "GET", "/v1/" + strings.Repeat("x", 4000), 404, "not found: GET /v1/openapi.json describes all paths"},
		{r.Handler(), "POST", "/v1/sessions/end", 400, "one of id, listener, upstream, endpoint, source, older"},
		{r.Handler(), "POST", "/v1/reload?confirm=1m&rollback_if=many", 400, "rollback_if"},
	} {
		q := httptest.NewRequestWithContext(t.Context(), x.method, x.target, nil)
		q.Host = "localhost"
		q.Header.Set(admin.Header, "1")
		w := httptest.NewRecorder()
		x.handler.ServeHTTP(w, q)
		var f struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil || w.Code != x.code {
			t.Errorf("%s %.100s: %d, %v", x.method, x.target, w.Code, err)
		}
		if !strings.Contains(f.Error, x.want) || strings.Contains(f.Error, "--") || strings.Contains(f.Error, "[") || len(f.Error) > len(x.target)+200 {
			t.Errorf("%s %.100s: %q, want %q", x.method, x.target, f.Error, x.want)
		}
	}
}

// TestWhy: a query arrives as it was asked, and its bounds are kept.
func TestWhy(t *testing.T) {
	r := newRig(t, "")
	w, err := r.Why(t.Context(), admin.WhyQuery{For: 2 * time.Second, Upstream: "shop"})
	if err != nil || w.WindowUs != 2_000_000 || w.Verdict != "shop" {
		t.Errorf("%+v, %v", w, err)
	}
	for _, q := range []admin.WhyQuery{
		{Session: "10.0.0.1:5"}, {Listener: "l"}, {Endpoint: "e"}, {Source: netip.MustParsePrefix("10.0.0.0/8")}, {},
	} {
		if _, err := r.Why(t.Context(), q); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	_, err = r.Why(t.Context(), admin.WhyQuery{For: admin.MaxWhy + 1})
	refused(t, err, http.StatusBadRequest, "write a time up to 1m0s")
	_, err = r.Why(t.Context(), admin.WhyQuery{Upstream: "a", Listener: "b"})
	refused(t, err, http.StatusBadRequest, "cannot be used with the others")
	for _, text := range []string{"", "x", "10.0.0.1:80", "10.0.0.0/40", "10.0.0.1/8"} {
		if p, err := admin.ParseSource(text); err == nil {
			t.Errorf("%q is %v", text, p)
		}
	}
}

// TestSessions: all sessions are listed with their names, and the list says whether there are more.
func TestSessions(t *testing.T) {
	many := 30_000
	if race.Enabled {
		many /= 3
	}
	for n, more := range map[int]bool{0: false, 3: true, many: false} {
		r := newRig(t, "")
		r.balancer.sessions, r.balancer.moreSessions = n, more
		s, err := r.Sessions(t.Context(), admin.SessionQuery{}, admin.SessionOrder{})
		if err != nil || s.Sessions == nil || len(s.Sessions) != n || s.More != more {
			t.Errorf("%d sessions: %d are listed, more %v, %v", n, len(s.Sessions), s.More, err)
		}
		for _, one := range s.Sessions {
			if one.Name != endpointName {
				t.Errorf("%d sessions: the endpoint of %s is %q", n, one.Client, one.Name)
			}
		}
	}
}

// TestLiveChanges: the balancer is asked for what the client was asked for, with its author, and an unknown name is an error.
func TestLiveChanges(t *testing.T) {
	r := newRig(t, "")
	all := admin.SessionQuery{
		ID: "0.1.2", Listener: "web", Upstream: "u", Endpoint: "[::1]:80", Source: "10.0.0.0/8", Older: time.Minute, Idle: time.Second, Bytes: 1 << 20, State: "joined", Verdict: "client_network",
	}
	me := fmt.Sprintf("uid=%d pid=%d", os.Geteuid(), os.Getpid())
	endpoint := func(c admin.EndpointChange) func() error {
		return func() error { _, err := r.ChangeEndpoint(t.Context(), &c); return err }
	}
	changed := func(done admin.Changed, err error) error {
		if !done.Changed {
			t.Errorf("it was so before: %v", err)
		}
		return err
	}
	asBefore := func(done admin.Changed, err error) error {
		if done.Changed {
			t.Error("it was not so before")
		}
		return err
	}
	const words = "--id 0.1.2 --listener web --upstream u --endpoint [::1]:80 --source 10.0.0.0/8 --older 1m0s --idle 1s --bytes 1048576 --state joined --verdict client_network"
	for want, ask := range map[string]func() error{
		"drain listener web by " + me: func() error {
			done, err := r.DrainListener(t.Context(), "web")
			return changed(admin.Changed{Changed: done.Changed}, err)
		},
		"ready listener web by " + me: func() error { return asBefore(r.ReadyListener(t.Context(), "web")) },
		"split 3 of web: map[shop:99.75 shop:8080:0.25] by " + me: func() error {
			return changed(r.SetSplit(t.Context(), "web", 3, map[string]float64{"shop": 99.75, "shop:8080": 0.25}))
		},
		"drain a of shop: 0 by " + me:            endpoint(admin.EndpointChange{What: admin.EndpointDrain, Upstream: "shop", Endpoint: "a"}),
		"ready a of shop: 0 by " + me:            endpoint(admin.EndpointChange{What: admin.EndpointReady, Upstream: "shop", Endpoint: "a"}),
		"weight [::1]:1 of shop: 12 by " + me:    endpoint(admin.EndpointChange{What: admin.EndpointWeight, Upstream: "shop", Endpoint: "[::1]:1", Weight: 12}),
		"add 127.0.0.1:80 of shop: 0bz by " + me: endpoint(admin.EndpointChange{What: admin.EndpointAdd, Upstream: "shop", Endpoint: "127.0.0.1:80", Name: "b", Zone: "z"}),
		"remove /b of shop: 0 by " + me:          endpoint(admin.EndpointChange{What: admin.EndpointRemove, Upstream: "shop", Endpoint: "/b"}),
		"sessions " + words + ` by "bytes", 7`: func() error {
			_, err := r.Sessions(t.Context(), all, admin.SessionOrder{By: "bytes", Top: 7})
			return err
		},
		"end " + words + " now false over 5m0s grace 10s quiet 20s reset true dry false by " + me: func() error {
			e, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: all, Over: 5 * time.Minute, Grace: 10 * time.Second, Quiet: 20 * time.Second, ThenReset: true})
			if e.Touched != 3 || e.Ended != 2 || e.Kept != 1 || !e.Done {
				t.Errorf("%+v", e)
			}
			return err
		},
		"end --all now true over 0s grace 0s quiet 0s reset false dry true by " + me: func() error {
			_, err := r.EndSessions(t.Context(), admin.EndQuery{All: true, Now: true, DryRun: true})
			return err
		},
		"stop by " + me: func() error { _, err := r.StopEnding(t.Context()); return err },
		"sources {By:rate Top:3 Prefix4:24 Prefix6:56}": func() error {
			_, err := r.Sources(t.Context(), admin.SourceQuery{By: "rate", Top: 3, Prefix4: 24, Prefix6: 56})
			return err
		},
		`deny 10.0.0.7 at "web" for 1h0m0s by ` + me: func() error { _, err := r.Deny(t.Context(), "10.0.0.7", "web", time.Hour, false); return err },
		`undeny 10.0.0.7 at "" by ` + me:             func() error { return changed(r.Undeny(t.Context(), "10.0.0.7", "")) },
		"end --listener web --source 10.0.0.7 now true over 0s grace 0s quiet 0s reset false dry false by " + me: func() error {
			d, err := r.Deny(t.Context(), "10.0.0.7", "web", time.Hour, true)
			if d.Ended == nil {
				t.Error("it is not said how many sessions were ended")
			}
			return err
		},
	} {
		r.balancer.forget()
		if err := ask(); err != nil || r.balancer.last() != want {
			t.Errorf("the last call is %q, want %q, %v", r.balancer.last(), want, err)
		}
	}
	if d, err := r.Denied(t.Context()); err != nil || len(d.Denied) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	_, err := r.DrainListener(t.Context(), "wob")
	refused(t, err, http.StatusNotFound, `listener "wob": not found`)
	refused(t, endpoint(admin.EndpointChange{What: admin.EndpointDrain, Upstream: "shap", Endpoint: "a"})(), http.StatusNotFound, `upstream "shap"`)
	if err := r.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	<-r.stopped
}

// TestDeniedButNotEnded: the error of a denial whose sessions cannot be ended says that the denial is in force.
func TestDeniedButNotEnded(t *testing.T) {
	t.Parallel()

	r := newRig(t, "")
	r.balancer.endingIs = admin.ErrEndings
	_, err := r.Deny(t.Context(), "10.0.0.7", "", time.Hour, true)
	if refused := (*admin.Refusal)(nil); !errors.As(err, &refused) || refused.Code != http.StatusConflict || !strings.HasPrefix(refused.Line, "10.0.0.7 is denied, but its sessions were not ended: too many ") {
		t.Error(err)
	}
}
