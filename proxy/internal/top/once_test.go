package top_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/top"
)

// TestOnce writes a picture without styles: rates between two looks, with the verdicts on the time between.
func TestOnce(t *testing.T) {
	p := &process{statuses: []admin.Status{status(0), status(2)}, why: verdicts()}
	var out strings.Builder
	if err := top.Once(t.Context(), top.Config{Source: p, Interval: 3 * time.Second, Output: &out}); err != nil {
		t.Fatal(err)
	}
	if len(p.asked) != 1 || p.asked[0] != (admin.WhyQuery{For: 3 * time.Second}) {
		t.Errorf("asked for %v", p.asked)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("styles in %q", out.String())
	}
	for _, want := range []string{
		`^pid 4711, serving, generation 3, for [0-9hdms]+; up [0-9hdms]+\n`, `\nclients 42/10000  new [0-9.]+[kM]?/s`, `\noutage +[0-9]+d[0-9]+h +upstream shop`, `\nlistener +state +active`, `\nweb +serving +30/5000`,
		`\napp +1/3 `, `\napp +two +ejected .* 5 failures in a row.*looks like here\n`, `\n +loop +active`, `\nthe time of 30 sessions: client 75 %, endpoint 20 %, idle 5 %\n`, `\n192\.0\.2\.7:51234 +one +client +12\.3s +300 B +1\.20 MB +for 97 %`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if err := top.Once(t.Context(), top.Config{Source: p, Output: &out}); !errors.Is(err, errGone) {
		t.Errorf("without a process: %v", err)
	}
}
