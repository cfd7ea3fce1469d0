package admin_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// TestMetrics: the handler of the metrics answers GET /metrics alone, and where there is none it is unknown.
func TestMetrics(t *testing.T) {
	r := newRig(t, "127.0.0.1:0")
	get := func(method, path string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.Addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+changeToken)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	if response := get("GET", "/metrics"); response.StatusCode != http.StatusNotFound {
		t.Errorf("without a handler: %s", response.Status)
	}
	r.end(t)
	r.Server = admin.New(admin.Config{
		Balancer: &r.balancer, Reloader: &r.reloader,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil { // by which a scraper is cut
				t.Error(err)
			}
			fmt.Fprint(w, "penstock 1\n")
		}),
	})
	r.move(t, "127.0.0.1:0")
	response := get("GET", "/metrics")
	if response.StatusCode != http.StatusOK || response.Header.Get(admin.Header) != "1" || response.ContentLength != 11 {
		t.Errorf("%s, %v", response.Status, response.Header)
	}
	for path, want := range map[string]int{"/metrics?x=1": http.StatusBadRequest, "/metrics/": http.StatusNotFound} {
		if response := get("GET", path); response.StatusCode != want {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
	if response := get("POST", "/metrics"); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", response.Status)
	}
}
