package admin_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// TestProbes: clients without a token are answered in plain text, whether the process lives, and whether it is
// ready.
func TestProbes(t *testing.T) {
	r := newRig(t, "")
	r.end(t)
	var starts time.Time
	var leaves bool
	var stuck error
	r.Server = admin.New(admin.Config{
		Balancer: &r.balancer, Reloader: &r.reloader,
		Leaving: func() (time.Time, bool) { return starts, leaves },
		Alive:   func(context.Context) error { return stuck },
	})
	r.move(t, "127.0.0.1:0")
	get := func(path string) (int, string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || path[1] != 'v' && !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %v, %v", path, answer.Header, err)
		}
		return answer.StatusCode, string(text)
	}
	want := func(path string, code int, text string) {
		t.Helper()
		if got, body := get(path); got != code || !strings.Contains(body, text) {
			t.Errorf("%s: %d %q, want %d %q", path, got, body, code, text)
		}
	}
	want("/livez", http.StatusOK, "ok\n")
	want("/readyz", http.StatusOK, "ok\n")
	want("/v1/status", http.StatusUnauthorized, "a token is needed")
	stuck = errors.New("stuck")
	want("/livez", http.StatusServiceUnavailable, "not every loop has responded")
	starts, leaves = time.Now().Add(time.Hour), true
	want("/readyz", http.StatusServiceUnavailable, "the process is about to drain, and accepts until then\n")
	starts = time.Now().Add(-time.Hour)
	want("/readyz", http.StatusServiceUnavailable, "the process drains\n")
}
