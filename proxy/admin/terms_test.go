package admin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

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
		{r.Handler(), "GET", "/v1/statsu", 404, `path "/v1/statsu": not found: write GET /v1/status; GET /v1/openapi.json describes all`},
		{r.Handler(), "GET", "/status", 404, "write GET /v1/status; "},
		{r.Handler(), "POST", "/v1/drain", 404, "write POST /v1/process/drain or POST /v1/listener/drain or POST /v1/endpoint/drain; "},
		{r.Handler(), "POST", "/v1/session/end", 404, "write POST /v1/sessions/end; "},
		{r.Handler(), "GET", "/v1/" + strings.Repeat("x", 4000), 404, "not found: GET /v1/openapi.json describes all"},
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
