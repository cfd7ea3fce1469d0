package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

// TestWhyCommand: flags that exclude each other, and bounds, are errors; no session is none.
func TestWhyCommand(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	at := "unix:" + filepath.Join(r.dir, "admin.sock")
	out, _ := r.tells(cli.ExitOK, "why", "--admin", at, "--for", "0")
	if !strings.Contains(out, "no session is joined") {
		t.Errorf("it says %q", out)
	}
	out, _ = r.tells(cli.ExitOK, "why", "--admin", at, "--for", "0", "--json", "--source", "10.0.0.0/8")
	if !strings.Contains(out, `"count": 0`) {
		t.Errorf("it says %q", out)
	}
	for _, args := range [][]string{{"--for", "2m"}, {"--source", "x"}, {"10.0.0.1:5", "--upstream", "u"}, {"--upstream", "u", "--listener", "l"}} {
		r.tells(cli.ExitUsage, append([]string{"why", "--admin", at}, args...)...)
	}
}

// TestWriteWhy: the verdict comes first, and the advice.
func TestWriteWhy(t *testing.T) {
	t.Parallel()

	var out strings.Builder
	err := writeWhy(&out, &admin.Why{
		Count: 30, Adopted: 4, Verdict: "endpoint_network", Advice: "look there", Shares: map[string]float64{"endpoint_network": 0.72, "idle": 0.28},
		Verdicts: map[string]int64{"endpoint_network": 20, "idle": 10},
		Most:     &admin.EndpointWhy{Upstream: "app\x1b", Endpoint: "10.0.0.2:80", Name: "two", Sessions: 17, Limited: 16, Share: 0.92},
		Endpoints: []admin.EndpointWhy{
			{Upstream: "app\x1b", Endpoint: "10.0.0.2:80", Name: "two", Sessions: 17, Limited: 16, Share: 0.92, Shares: map[string]float64{"endpoint_network": 0.95, "idle": 0.05}},
			{Upstream: "app", Endpoint: "10.0.0.3:80", Name: "10.0.0.3:80", Sessions: 13, Limited: 4, Share: 0.08, Shares: map[string]float64{"endpoint_network": 0.1, "idle": 0.9}},
		},
		Sessions: []admin.SessionWhy{{Client: "10.0.0.1:5", Endpoint: "10.0.0.2:80", Verdict: "endpoint_network", Why: "lost\x1b"}},
	})
	want := `endpoint_network: 72 % of the time of 30 sessions
of adopted sessions, which are 4 of these, the time in the lane alone is known
endpoint two (10.0.0.2:80) of app\x1b: 16 of 17 sessions, 92 % of that time
look there

endpoint_network  72 %  verdict of 20
idle              28 %  verdict of 10

endpoint_network, by endpoint          sessions  of that time  of its own time
endpoint two (10.0.0.2:80) of app\x1b  16 of 17  92 %          95 %
endpoint 10.0.0.3:80 of app            4 of 13   8 %           10 %

10.0.0.1:5 -> 10.0.0.2:80  endpoint_network
    lost\x1b
... and 29 more
`
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
}
