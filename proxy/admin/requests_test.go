package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

func TestStatus(t *testing.T) {
	r := newRig(t, "")
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.PID != os.Getpid() || s.Version != "v1" || s.Generation != 1 || time.Since(s.Started) > time.Minute || s.Started.IsZero() {
		t.Errorf("of the process: %+v", s)
	}
	want := r.balancer.Status()
	if s.Connections != want.Connections || s.Counters["failures"] != 7 || s.Listeners[0].State != admin.Paused || s.Upstreams[0].Endpoints[0].Active != 3 {
		t.Errorf("%+v", s)
	}
}

func TestReloadConfirmRollback(t *testing.T) {
	r := newRig(t, "")
	done, err := r.Reload(t.Context(), rollback.Options{Confirm: 2 * time.Minute, RollbackIf: "failures>50"})
	if err != nil || done.Generation != 2 || done.Pending == nil || done.Pending.RollbackIf != "failures>50" || len(done.Changes) != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if left := time.Until(done.Pending.Until); left > 2*time.Minute || left < time.Minute {
		t.Errorf("the reload waits for %v", left)
	}
	_, err = r.Reload(t.Context(), rollback.Options{})
	refused(t, err, http.StatusConflict, "generation 2 waits to be confirmed")
	if s, err := r.Confirm(t.Context(), 0); err != nil || s.Generation != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = r.Confirm(t.Context(), 0)
	refused(t, err, http.StatusConflict, "nothing waits to be confirmed")
	if s, err := r.Rollback(t.Context(), 0); err != nil || s.Generation != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = r.Rollback(t.Context(), 0)
	refused(t, err, http.StatusConflict, "nothing to return to")
	_, err = r.Reload(t.Context(), rollback.Options{Confirm: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Confirm(t.Context(), 2)
	refused(t, err, http.StatusConflict, "too late to confirm generation 2: it is generation 3 that waits to be confirmed")
	if s, err := r.Confirm(t.Context(), 3); err != nil || s.Generation != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	g, err := r.Generations(t.Context())
	if err != nil || g.Current != 3 || g.History[1].State != rollback.RolledBack || g.History[1].By != fmt.Sprintf("uid=%d pid=%d", os.Geteuid(), os.Getpid()) {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestWordsOfMistakes: an error of a request says what to write, in a line that can be read.
func TestWordsOfMistakes(t *testing.T) {
	r := newRig(t, "")
	for request, want := range map[string]string{
		"GET /v1/nothing":        `path "/v1/nothing": not found: GET /v1/openapi.json describes all`,
		"GET /status":            `path "/status": not found: write GET /v1/status`,
		"POST /v1/sessions/end":  `invalid: write which sessions: one of id, listener, upstream, endpoint, source,`,
		"POST /v1/endpoint/kill": `path "/v1/endpoint/kill": not found: GET /v1/openapi.json describes all`,
	} {
		method, path, _ := strings.Cut(request, " ")
		req, answer := httptest.NewRequest(method, "http://localhost"+path, nil), httptest.NewRecorder()
		req.Header.Set(admin.Header, "1")
		r.Handler().ServeHTTP(answer, req)
		var got struct{ Error string }
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || !strings.HasPrefix(got.Error, want) || len(got.Error) > 250 {
			t.Errorf("%s: %q, %v, want %q", request, got.Error, err, want)
		}
	}
}

// refused checks an error answer.
func refused(t *testing.T, err error, code int, text string) {
	t.Helper()
	var r *admin.Refusal
	if !errors.As(err, &r) || r.Code != code || !strings.Contains(r.Line, text) || strings.Contains(r.Line, "\n") {
		t.Errorf("%v, want %d, %q", err, code, text)
	}
}

func TestProblemsOfAConfiguration(t *testing.T) {
	r := newRig(t, "")
	r.reloader.bad = &admin.ConfigError{Path: "p.yaml", Problems: []string{"one", "two"}, Text: "p.yaml:1:2: one\np.yaml:3:4: two\n"}
	_, err := r.Reload(t.Context(), rollback.Options{})
	refused(t, err, http.StatusUnprocessableEntity, "p.yaml: 2 problems, nothing was changed")
	var f *admin.Refusal
	if errors.As(err, &f) && f.Details != "p.yaml:1:2: one\np.yaml:3:4: two\n" {
		t.Errorf("details are %q", f.Details)
	}
	_, err = r.Plan(t.Context(), "")
	refused(t, err, http.StatusUnprocessableEntity, "2 problems")
}

func TestPlan(t *testing.T) {
	r := newRig(t, "")
	p, err := r.Plan(t.Context(), "/etc/a b&c.yaml")
	if err != nil || p.Connections != 3 || !reflect.DeepEqual(p.Changes[0], admin.PlannedChange{What: "/etc/a b&c.yaml", Connections: 2}) {
		t.Errorf("%+v, %v", p, err)
	}
	if n := r.reloader.Status().Current; n != 1 {
		t.Errorf("a plan made generation %d", n)
	}
}

func TestLiveChanges(t *testing.T) {
	r := newRig(t, "")
	change := func(_ admin.EndpointChanged, err error) error { return err }
	for want, change := range map[string]func() error{
		"drain listener web":             func() error { return r.DrainListener(t.Context(), "web") },
		"drain a of shop: 0 by ":         func() error { return r.DrainEndpoint(t.Context(), "shop", "a", true) },
		"ready a of shop: 0 by ":         func() error { return r.DrainEndpoint(t.Context(), "shop", "a", false) },
		"weight [::1]:1 of shop: 12 by ": func() error { return r.SetWeight(t.Context(), "shop", "[::1]:1", 12) },
		"add 127.0.0.1:80 of shop: 0bz by ": func() error {
			return change(r.ChangeEndpoint(t.Context(), &admin.EndpointChange{What: admin.EndpointAdd, Upstream: "shop", Endpoint: "127.0.0.1:80", Name: "b", Zone: "z"}))
		},
		"remove /b of shop: 0 by ": func() error {
			return change(r.ChangeEndpoint(t.Context(), &admin.EndpointChange{What: admin.EndpointRemove, Upstream: "shop", Endpoint: "/b"}))
		},
		"ready listener web by ": func() error { return r.ReadyListener(t.Context(), "web") },
		"split 3 of web: map[shop:99.75 shop:8080:0.25]": func() error {
			return r.SetSplit(t.Context(), "web", 3, map[string]float64{"shop": 99.75, "shop:8080": 0.25})
		},
	} {
		if err := change(); err != nil || !strings.HasPrefix(r.balancer.last(), want) {
			t.Errorf("the balancer's last call is %q, %v, want %q", r.balancer.last(), err, want)
		}
	}
	refused(t, r.DrainListener(t.Context(), "wob"), http.StatusNotFound, `listener "wob": not found`)
	refused(t, r.SetWeight(t.Context(), "shap", "a", 1), http.StatusNotFound, `upstream "shap"`)
	if err := r.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	<-r.stopped
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
		"v1/reload?confirm=1m&confirm=2m":                                    "confirm: it is there 2 times: write it once",
		"v1/reload?confirm=1m&confirm=1m":                                    "write it once",
		"v1/reload?confirm=25h":                                              "write a time from 1s to 24h",
		"v1/reload?Confirm=1m":                                               `no parameter "Confirm"`,
		"v1/reload?rollback_if=failures>5":                                   "a parameter is missing, or is not for those beside it: write /v1/reload, or /v1/reload?confirm=TIME, or",
		"v1/reload?confirm=1m&rollback_if=failures":                          "there is no '>'",
		"v1/reload?confirm=1m&rollback_if=tears>1":                           `no counter "tears"`,
		"v1/reload?a;b":                                                      "query: invalid semicolon",
		"v1/reload?confirm=%zz":                                              "query: invalid URL escape",
		"v1/reload?":                                                         "there is no parameter after '?'",
		"v1/reload?&":                                                        "there is no parameter after '?' or '&': leave it out",
		"v1/reload?confirm=1m&":                                              "there is no parameter after",
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
		"v1/process/drain?":                                                  "there is no parameter after '?'",
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
	// A browser's preflight request for the header is not answered.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, "http://"+r.Addr()+"/v1/reload", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+changeToken)
	req.Header.Set("Origin", "http://evil.example")
	req.Header.Set("Access-Control-Request-Method", "POST")
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	allows := slices.ContainsFunc([]string{"Access-Control-Allow-Origin", "Access-Control-Allow-Headers"}, func(h string) bool { return answer.Header.Get(h) != "" })
	if answer.StatusCode != http.StatusForbidden || allows {
		t.Errorf("the preflight gets %d, %v", answer.StatusCode, answer.Header)
	}
}

// client keeps no connection.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// post sends a request as it is.
func (r *rig) post(t *testing.T, query string, h http.Header, host string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Addr()+"/"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header, req.Host = h.Clone(), host
	req.Header.Set("Authorization", "Bearer "+changeToken)
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if kind := answer.Header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("%s is answered as %s", query, kind)
	}
	var said struct{ Error string }
	if err := json.Unmarshal(text, &said); err != nil {
		t.Errorf("%s is answered with %q: %v", query, text, err)
	}
	return answer.StatusCode, said.Error
}
