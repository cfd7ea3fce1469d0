package admin_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/admission"
)

// asking is the text of a request of a client of a rank. One of root needs no token.
func asking(rank admission.Rank, request string) string {
	text := request + " HTTP/1.1\r\nHost: localhost\r\nPenstock-Admin: 1\r\n"
	switch rank {
	case admission.Reads:
		text += "Authorization: Bearer " + readToken + "\r\n"
	case admission.Changes:
		text += "Authorization: Bearer " + changeToken + "\r\n"
	}
	return text + "\r\n"
}

// lasting are requests that last, or are left half done, or whose answer nobody reads.
var lasting = map[string]func(rank admission.Rank) string{
	"nothing":        func(admission.Rank) string { return "" },
	"half a request": func(rank admission.Rank) string { return strings.TrimSuffix(asking(rank, "GET /v1/status"), "\r\n") },
	"why":            func(rank admission.Rank) string { return asking(rank, "GET /v1/why?for=1m") },
	"profile":        func(rank admission.Rank) string { return asking(rank, "GET /v1/profile?seconds=60") },
	"events":         func(rank admission.Rank) string { return asking(rank, "GET /v1/events") },
	"unread status":  func(rank admission.Rank) string { return asking(rank, "GET /v1/status") },
	"unread metrics": func(rank admission.Rank) string { return asking(rank, "GET /metrics") },
	"unread list":    func(rank admission.Rank) string { return asking(rank, "GET /v1/sessions") },
	"two at once":    func(rank admission.Rank) string { return strings.Repeat(asking(rank, "GET /livez"), 2) },
	"stuck probes":   func(admission.Rank) string { return asking(admission.Nobody, "GET /livez") },
}

// inSaturation starts a server in a bubble, with that many requests of a rank.
func inSaturation(t *testing.T, by admission.Rank, n int, text string, stuck bool, f func(t *testing.T, r room)) {
	synctest.Test(t, func(t *testing.T) {
		r := room{newQuietRig(t), make(chan struct{}, 64)}
		r.end(t)
		alive := make(chan struct{})
		if !stuck {
			close(alive)
		}
		r.balancer.waits = true
		if strings.Contains(text, "/v1/status") || strings.Contains(text, "/v1/sessions") {
			r.balancer.more, r.balancer.sessions = 600, 2000
		}
		r.Server = admin.New(admin.Config{
			Balancer: &r.balancer, Reloader: &r.reloader, Alive: func(ctx context.Context) error {
				select {
				case <-alive:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
			Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range 10 {
					_, _ = w.Write(make([]byte, 100_000)) // the client may have gone
				}
			}),
		})
		r.SampleNothing()
		for range n {
			c := r.connectAs(t, by, text)
			if strings.Contains(text, "/v1/events") { // one that is not read ends by itself
				go func() { _, _ = io.Copy(io.Discard, c) }()
			}
		}
		f(t, r)
	})
}

// TestLesserRight: 100 requests of any kind of a client of lesser right keep no client of greater right out, and no
// probe, by more than the time that a client has when others wait. The same holds for short requests of equal right.
func TestLesserRight(t *testing.T) {
	const free, slow = 60 * time.Millisecond, time.Second
	for name, make := range lasting {
		for by, greater := range map[admission.Rank][]admission.Rank{
			admission.Reads: {admission.Reads, admission.Changes, admission.Own}, admission.Changes: {admission.Changes, admission.Own},
		} {
			t.Run(fmt.Sprint(name, by), func(t *testing.T) {
				t.Parallel()
				inSaturation(t, by, 100, make(by), name == "stuck probes", func(t *testing.T, r room) {
					for _, rank := range greater {
						for request, least := range map[string]time.Duration{
							"GET /readyz": 0, "GET /v1/generations": 0, "GET /v1/status": 0, "GET /metrics": 0,
							"POST /v1/deny/add?source=10.0.0.7&for=1h": 0, "GET /v1/why?for=1s": time.Second, "GET /v1/events": 0, "GET /v1/profile?seconds=1": time.Second,
						} {
							if rank == by && (least > 0 || strings.HasSuffix(request, "events") || strings.HasSuffix(request, "metrics") || strings.HasSuffix(request, "status")) {
								continue // those of equal right share places of these kinds
							}
							code := http.StatusOK
							if rank == admission.Reads && strings.HasPrefix(request, "POST") {
								code = http.StatusForbidden
							}
							took := r.first(t, rank, request, code) - least
							t.Logf("%-45s rank %d: %v", request, rank, took)
							bound := free
							if name != "nothing" && name != "half a request" { // refusals that nobody reads are among them
								bound = slow
							}
							if took > bound {
								t.Errorf("%s of rank %d is answered after %v", request, rank, took)
							}
						}
					}
				})
			})
		}
	}
}

// first returns how long the beginning of the answer to a request of a rank takes.
func (r room) first(t *testing.T, rank admission.Rank, request string, code int) time.Duration {
	t.Helper()
	began := time.Now()
	c := r.connectAs(t, rank, asking(rank, request))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != code {
		t.Errorf("%s of rank %d: %v, %v", request, rank, answer, err)
	}
	took := time.Since(began)
	c.Close()
	synctest.Wait()
	return took
}

// TestDisplaced: a request that loses its place is answered, and says so, and one for which there is no place says when
// to ask again.
func TestDisplaced(t *testing.T) {
	for name, asked := range map[string]func(admission.Rank) string{
		"why": lasting["why"], "profile": lasting["profile"],
	} {
		inSaturation(t, admission.Reads, 0, "", false, func(t *testing.T, r room) {
			bodies := make(chan string, 16)
			most := map[string]int{"why": 16, "profile": 1}[name]
			for range most {
				c := r.connectAs(t, admission.Reads, asked(admission.Reads))
				go func() { b, _ := io.ReadAll(c); bodies <- string(b) }()
			}
			synctest.Wait()
			if took := r.asked(t, asked(admission.Reads), http.StatusServiceUnavailable); took > 0 {
				t.Errorf("%s: one too many of equal right is refused after %v", name, took)
			}
			defer r.connectAs(t, admission.Changes, asked(admission.Changes)).Close()
			got := <-bodies
			if !strings.Contains(got, "503") || !strings.Contains(got, "Retry-After: 1") || !strings.Contains(got, "another request has taken the place") {
				t.Errorf("%s: it ends with %q", name, got)
			}
		})
	}
}
