package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

// TestSilentServer: a request that is accepted and never answered ends by itself.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts into its queue
	must(t, err)
	defer l.Close()
	c, err := admin.NewClient(l.Addr().String())
	must(t, err)
	c.Hurry(20*time.Millisecond, 1<<20)
	for name, ask := range map[string]func() error{
		"status": func() error { _, err := c.Status(t.Context()); return err },
		"sessions": func() error {
			_, err := c.Sessions(t.Context(), admin.SessionQuery{}, admin.SessionOrder{})
			return err
		},
		"generations": func() error { _, err := c.Generations(t.Context()); return err },
		"drain":       func() error { return c.Drain(t.Context()) },
		"weight":      func() error { return weighed(t, c) },
	} {
		if err := ask(); !errors.Is(err, admin.ErrSilent) || !strings.HasPrefix(err.Error(), l.Addr().String()+": no answer in time (20ms)") {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Reload(ctx, rollback.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestLookThatTakesTime: a look of some time is waited for so much longer than a quick answer, and not for ever.
func TestLookThatTakesTime(t *testing.T) {
	const quick = 50 * time.Millisecond
	var asked atomic.Pointer[http.Request]
	patient := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r)
		time.Sleep(4 * quick) // it is the server's script: later than a quick answer may come
		w.Header().Set(admin.Header, "1")
		fmt.Fprint(w, `{"count": 7}`)
	}))
	defer patient.Close()
	c, err := admin.NewClient(patient.Listener.Addr().String())
	must(t, err)
	c.Hurry(quick, 1<<20)
	if w, err := c.Why(t.Context(), admin.WhyQuery{Upstream: "u", For: admin.MaxWhy}); err != nil || w.Count != 7 {
		t.Errorf("a minute's look: %+v, %v", w, err)
	}
	if q := asked.Load().URL.Query(); q.Get("for") != "1m0s" || q.Get("upstream") != "u" || len(q) != 2 {
		t.Errorf("it asked %v", q)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	c, err = admin.NewClient(silent.Addr().String())
	must(t, err)
	c.Hurry(quick, 1<<20)
	for window, want := range map[time.Duration]string{0: "(50ms)", 100 * time.Millisecond: "(150ms)"} {
		if _, err := c.Why(t.Context(), admin.WhyQuery{For: window}); !errors.Is(err, admin.ErrSilent) || !strings.Contains(err.Error(), want) {
			t.Errorf("a look of %v: %v", window, err)
		}
	}
}

// TestCutConnections: a server closes connections before it answers, as one does whose places are all taken.
// What only reads is asked again, and what changes something is not.
func TestCutConnections(t *testing.T) {
	for _, reset := range []bool{false, true} {
		var asked atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) < 4 {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				if reset {
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
				conn.Close()
				return
			}
			w.Header().Set(admin.Header, "1")
			fmt.Fprint(w, `{"state": "serving", "pid": 1}`)
		}))
		c, err := admin.NewClient(s.Listener.Addr().String())
		must(t, err)
		if _, err := c.Status(t.Context()); err != nil || asked.Load() != 4 {
			t.Errorf("reset %v: %v after %d requests", reset, err, asked.Load())
		}
		asked.Store(0)
		if err := c.Drain(t.Context()); err == nil || asked.Load() != 1 || !strings.Contains(err.Error(), "closed before the answer") {
			t.Errorf("reset %v: a drain: %v after %d requests", reset, err, asked.Load())
		}
		asked.Store(-10)
		if _, err := c.Status(t.Context()); err == nil || asked.Load() != -10+7 || !strings.Contains(err.Error(), "closed before the answer") {
			t.Errorf("reset %v: %v after %d requests", reset, err, asked.Load()+10)
		}
		s.Close()
	}
}

// TestStrangeServers: a client follows no redirect, and reads no more than its limit.
func TestStrangeServers(t *testing.T) {
	asked, stranger := 0, false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !stranger {
			w.Header().Set(admin.Header, "1")
		}
		switch asked++; r.URL.Path {
		case "/v1/status":
			http.Redirect(w, r, "/v1/generations", http.StatusTemporaryRedirect)
		case "/v1/generations":
			fmt.Fprintf(w, `{"current": 1%1000s}`, "")
		default:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, strings.Repeat("x", 2<<20))
		}
	}))
	defer s.Close()
	c, err := admin.NewClient(strings.TrimPrefix(s.URL, "http://"))
	must(t, err)
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "307 Temporary Redirect") || asked != 1 {
		t.Errorf("redirected: %v, after %d requests", err, asked)
	}
	if _, err := c.Generations(t.Context()); err != nil {
		t.Errorf("an answer: %v", err)
	}
	if err := c.Drain(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "longer than 1048576 bytes") {
		t.Errorf("a long refusal: %v", err)
	}
	c.Hurry(time.Minute, 1000)
	if _, err := c.Generations(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "longer than 1000 bytes") {
		t.Errorf("a long answer: %v", err)
	}
	stranger = true
	if _, err := c.Generations(t.Context()); !errors.Is(err, admin.ErrStranger) {
		t.Errorf("an answer of another program: %v", err)
	}
	if err := c.Drain(t.Context()); !errors.Is(err, admin.ErrStranger) {
		t.Errorf("a drain by another program: %v", err)
	}
}

// TestAnswersAreWhole: an answer that lacks a member, without which it would say something else, is an error.
func TestAnswersAreWhole(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(admin.Header, "1")
		fmt.Fprint(w, `{"source": "10.0.0.7", "until": null}`)
	}))
	defer s.Close()
	c, err := admin.NewClient(s.Listener.Addr().String())
	must(t, err)
	ctx := t.Context()
	for want, ask := range map[string]func() error{
		"no until":    func() error { _, err := c.Deny(ctx, "10.0.0.7", "", time.Hour, false); return err },
		"no denied":   func() error { _, err := c.Denied(ctx); return err },
		"no state":    func() error { _, err := c.Status(ctx); return err },
		"no current":  func() error { _, err := c.Generations(ctx); return err },
		"no requests": func() error { _, err := c.StopEnding(ctx); return err },
		"no touched":  func() error { _, err := c.EndSessions(ctx, admin.EndQuery{All: true}); return err },
		"no endpoint": func() error {
			_, err := c.ChangeEndpoint(ctx, &admin.EndpointChange{What: admin.EndpointDrain})
			return err
		},
		"no count": func() error { _, err := c.Why(ctx, admin.WhyQuery{}); return err },
	} {
		if err := ask(); !errors.Is(err, admin.ErrStranger) || !strings.Contains(err.Error(), "its answer has "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestSessionsOfAnotherProgram: a list of sessions may be long, but of an answer that no process of Penstock gives the client reads little.
func TestSessionsOfAnotherProgram(t *testing.T) {
	t.Parallel()

	const one = `{"id": "a", "listener": "l"}`
	ends := `], "later": {"x": [1]}, "more": true}`
	for name, tc := range map[string]struct{ begin, again, end, want string }{
		"no session":      {`{"sessions": [`, "", ends, ""},
		"many sessions":   {`{"sessions": [` + one, "," + one, ends, ""},
		"spaces":          {`{"sessions": [`, strings.Repeat(" ", 1000), "", "too long"},
		"spaces between":  {`{"sessions": [` + one, strings.Repeat("\n", 1000), "", "too long"},
		"a long name":     {`{"sessions": [{"id": "`, strings.Repeat("x", 1000), "", "too long"},
		"spaces before":   {"", strings.Repeat(" ", 1000), "", "too long"},
		"another member":  {`{"x": "`, strings.Repeat("x", 1000), "", "too long"},
		"a list":          {"[", one, "]", "no object"},
		"nothing":         {"", "", "", "EOF"},
		"no list":         {"{", "", "}", "another program"},
		"null":            {`{"sessions": null`, "", "}", "no list of sessions"},
		"the end is lost": {`{"sessions": [` + one, "", "", "EOF"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(admin.Header, "1")
			fmt.Fprint(w, tc.begin)
			for range 10_000 {
				if _, err := fmt.Fprint(w, tc.again); err != nil {
					return
				}
			}
			fmt.Fprint(w, tc.end)
		}))
		c, err := admin.NewClient(strings.TrimPrefix(s.URL, "http://"))
		must(t, err)
		list, err := c.Sessions(t.Context(), admin.SessionQuery{}, admin.SessionOrder{})
		s.CloseClientConnections()
		s.Close()
		switch {
		case tc.want == "" && (err != nil || !list.More || len(list.Sessions) != strings.Count(tc.begin+strings.Repeat(tc.again, 10_000), one)):
			t.Errorf("%s: %d, %v", name, len(list.Sessions), err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}
