package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/software"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/admin"
)

// TestMetrics: the handler of the metrics answers GET /metrics alone, and where there is none it is unknown.
func TestMetrics(t *testing.T) {
	bare := newRig(t, "127.0.0.1:0")
	r := newRigWith(t, access("127.0.0.1:0"), func(c *admin.Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil { // by which a scraper is cut
				t.Error(err)
			}
			fmt.Fprint(w, "penstock 1\n")
		})
	})
	get := func(r *rig, method, path string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.Addr()+path, nil)
		must(t, err)
		request.Header.Set("Authorization", "Bearer "+changeToken)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	if response := get(bare, "GET", "/metrics"); response.StatusCode != http.StatusNotFound {
		t.Errorf("without a handler: %s", response.Status)
	}
	response := get(r, "GET", "/metrics")
	if response.StatusCode != http.StatusOK || response.Header.Get(admin.Header) != "1" || response.ContentLength != 11 {
		t.Errorf("%s, %v", response.Status, response.Header)
	}
	for path, want := range map[string]int{"/metrics?x=1": http.StatusBadRequest, "/metrics/": http.StatusNotFound} {
		if response := get(r, "GET", path); response.StatusCode != want {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
	if response := get(r, "POST", "/metrics"); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", response.Status)
	}
}

// TestProbes: clients without a token are answered in plain text, whether the process lives, and whether it is
// ready.
func TestProbes(t *testing.T) {
	var starts time.Time
	var leaves bool
	var stuck error
	r := newRigWith(t, access("127.0.0.1:0"), func(c *admin.Config) {
		c.Leaving = func() (time.Time, bool) { return starts, leaves }
		c.Alive = func(context.Context) error { return stuck }
	})
	get := func(path string) (int, string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Addr()+path, nil)
		must(t, err)
		answer, err := client.Do(q)
		must(t, err)
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
	want("/readyz", http.StatusServiceUnavailable, "the process is about to drain, and accepts clients until then\n")
	starts = time.Now().Add(-time.Hour)
	want("/readyz", http.StatusServiceUnavailable, "the process drains\n")
	r.balancer.drain(true)
	stuck = nil
	st, err := r.Status(t.Context())
	if !slices.ContainsFunc(st.Problems, func(p admin.Problem) bool { return p.Kind == "draining" && p.Since.Equal(starts) }) {
		t.Errorf("the drain began at %v: %+v, %v", starts, st.Problems, err)
	}
}

// TestProcessReport: a client gets the report of the process as it is; a server that has none says so.
func TestProcessReport(t *testing.T) {
	_, err := newRig(t, "").Process(t.Context())
	refused(t, err, http.StatusNotFound, "process: not found")
	report := &doctor.Report{Checks: []doctor.Check{{Name: "pipes", State: doctor.Degraded, Found: "few", Cost: "copying", Mend: []string{"more"}}}, Place: "in no container", Able: true, PID: 7}
	r := newRigWith(t, access("127.0.0.1:0"), func(c *admin.Config) { c.Process = func() *doctor.Report { return report } })
	got, err := r.Process(t.Context())
	if err != nil || got.PID != 7 || !got.Able || got.Place != "in no container" || len(got.Checks) != 1 || got.Checks[0].State != doctor.Degraded || got.Checks[0].Mend[0] != "more" {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestProfile: a profile is one of pprof, one is taken at a time, and its time has bounds.
func TestProfile(t *testing.T) {
	r := newRig(t, "")
	type answer struct {
		profile []byte
		err     error
	}
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			p, err := r.Profile(t.Context(), 1)
			answers <- answer{p, err}
		}()
	}
	one, other := <-answers, <-answers
	if one.err == nil {
		one, other = other, one
	}
	refused(t, one.err, http.StatusServiceUnavailable, "another profile")
	if other.err != nil || !bytes.HasPrefix(other.profile, []byte{0x1f, 0x8b}) {
		t.Errorf("%v, %d bytes, want a compressed profile", other.err, len(other.profile))
	}
	for _, seconds := range []int{0, -1, admin.MaxProfile + 1} {
		_, err := r.Profile(t.Context(), seconds)
		refused(t, err, http.StatusBadRequest, "seconds: ")
	}
}

// TestDrainIsLogged: a requested drain of the process is logged with its source, once: a second request changes nothing.
func TestDrainIsLogged(t *testing.T) {
	var log software.Output
	r := newRigWith(t, access("127.0.0.1:0"), func(c *admin.Config) { c.Stop, c.Log = func() {}, slog.New(slog.NewTextHandler(&log, nil)) })
	for range 2 {
		must(t, r.Drain(t.Context()))
	}
	if n := strings.Count(log.String(), `by="token=change" what=drain from=serving to=draining`); n != 1 {
		t.Errorf("%d times: %s", n, log.String())
	}
}
