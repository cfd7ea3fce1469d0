package page

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

var update = flag.Bool("update", false, "write the kept screenshots, and that of the README")

// readme is the screenshot of the README.
const readme = "../../../docs/page.png"

// TestScreenshots: the page looks as it is kept, in both themes and at three widths, with data, a clock and fonts that
// are always the same. A failure names the share of blocks that differ, and the files to look at;
//
//	go test ./proxy/test/page -run Screenshots -update
//
// keeps what the page looks like now.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(fontFolder); err != nil && os.Getenv("CI") == "" {
		t.Skipf("%v (Debian package fonts-liberation)", err)
	}
	s := &stage{endpoints: 240, sessions: 8412, at: began.Add(time.Hour)}
	s.denied = []admin.Denial{{Source: "203.0.113.0/24", Until: s.at.Add(48 * time.Minute), Since: s.at.Add(-12 * time.Minute), By: "uid=1000"}}
	url := s.serve(t)
	b := startBrowser(t)
	b.before(recorded(s))
	b.open(url)
	b.until("the last event", fmt.Sprintf(`document.documentElement.dataset.event >= %d`, recordedEvents))
	for _, width := range []int64{1440, 820, 390} {
		b.size(width, 900)
		if over := eval[int64](b, `document.documentElement.scrollWidth`); over > width {
			t.Errorf("the page is %d pixels wide on a screen of %d", over, width)
		}
		eval[bool](b, `(document.getElementById("sessions-refresh").click(), true)`)
		b.until("sessions", `document.getElementById("t-sessions").dataset.loaded === "100"`)
		b.size(width, eval[int64](b, `document.documentElement.scrollHeight`)) // all of it is on the screen
		for _, dark := range []bool{false, true} {
			name := fmt.Sprintf("%d-%s.png", width, map[bool]string{true: "dark", false: "light"}[dark])
			t.Run(name, func(t *testing.T) {
				b.colours(dark)
				b.until("charts of the size of their places", `[...document.querySelectorAll(".chart")].every((c) => c.querySelector("canvas").clientWidth === c.clientWidth && c.querySelector("canvas").clientHeight === c.clientHeight)`)
				eval[bool](b, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
				png := settled(t, b, width, filepath.Join("testdata", name))
				compare(t, filepath.Join("testdata", name), png)
				if width == 1440 && !dark && *update {
					must(t, os.WriteFile(readme, shrunk(t, png, 1440, 900), 0o644))
				}
			})
		}
	}
}

// settled takes screenshots until one is as the kept one, and no longer than a page takes to settle after its size has changed on
// a busy machine. It returns the last.
func settled(t *testing.T, b *browser, width int64, path string) []byte {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; {
		png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		must(t, err)
		kept, err := os.ReadFile(path)
		if *update || err != nil || time.Now().After(end) {
			return png
		}
		if _, share := difference(decoded(t, kept), decoded(t, png)); share <= tolerated {
			return png
		}
		b.size(width, eval[int64](b, `document.documentElement.scrollHeight`))
		eval[bool](b, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
	}
}

// compare compares a screenshot with a kept one, or keeps it.
func compare(t *testing.T, path string, png []byte) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(path, shrunk(t, png, math.MaxInt, math.MaxInt), 0o644))
		return
	}
	kept, err := os.ReadFile(path)
	must(t, err)
	differ, share := difference(decoded(t, kept), decoded(t, png))
	if share <= tolerated {
		return
	}
	dir := t.ArtifactDir()
	must(t, os.WriteFile(filepath.Join(dir, "got.png"), png, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "difference.png"), encoded(t, differ), 0o644))
	t.Errorf("%.2f %% of the blocks differ from %s, at most %.2f %% may: see got.png and difference.png in %s (with go test -artifacts they stay); -update keeps the new one",
		100*share, path, 100*tolerated, dir)
}

const recordedEvents = 301

// recorded returns a script that has the page's stream send five minutes of events at once, and its clock stand at their end.
func recorded(s *stage) string {
	var events []string
	for i := range recordedEvents {
		s.turn = int64(i)
		events = append(events, s.event(began.Add(time.Hour+time.Duration(i)*time.Second), i == 0))
	}
	s.turn = 0
	last := began.Add(time.Hour + (recordedEvents-1)*time.Second)
	return fmt.Sprintf(`{
	Date.now = () => %d;
	window.EventSource = class extends EventTarget {
		constructor() {
			super();
			setTimeout(() => [%s].forEach((data, i) => this.dispatchEvent(new MessageEvent(i ? "changes" : "state", { data: JSON.stringify(data), lastEventId: String(i + 1) }))));
		}
	};
}`, last.UnixMilli(), strings.Join(events, ","))
}

// event returns the data of an event with everything that may change.
func (s *stage) event(at time.Time, first bool) string {
	st := s.Status()
	turn := float64(s.turn)
	wave := math.Sin(turn/25) + 0.3*math.Sin(turn/7)
	st.PID, st.Version, st.Started, st.Generation = 4711, "v1.2.3", began.Add(-26*time.Hour), 3
	st.Connections.Active += int64(360 * wave)
	st.Pending = &rollback.Waiting{Generation: 3, Until: began.Add(time.Hour + 7*time.Minute), RollbackIf: "failures>50", Increase: 4}
	problems := []admin.Problem{
		{Severity: admin.Warning, Text: "generation 3 will be rolled back at 10:07:00 unless it is confirmed", Since: began.Add(time.Hour)},
		{Severity: admin.Warning, Text: "endpoint shop-00/app-0005 is down: connection refused (3 checks in a row)", Since: began.Add(50 * time.Minute)},
	}
	rows := map[string]map[string]any{"process": {}, "problems": {"": problems}, "listeners": {}, "upstreams": {}}
	for _, l := range st.Listeners {
		l.Connections.Active = st.Connections.Active
		rows["listeners"][l.Name] = l
	}
	endpoints := map[string]any{}
	var numbers []int64
	for _, u := range st.Upstreams {
		for _, e := range u.Endpoints {
			n := int64(len(endpoints) + 1)
			endpoints[fmt.Sprint(n)] = row(u.Name, &e)
			numbers = admin.AppendNumbers(append(numbers, n), &e)
		}
		u.Endpoints = nil
		u.Connects.SumUs = int64(float64(u.Connects.Made)*1900 - 9e6*math.Cos(turn/25))
		rows["upstreams"][u.Name] = u
	}
	st.Listeners, st.Upstreams = nil, nil
	st.Bytes.EndpointToClient.Spliced += int64(-2.4e9 * math.Cos(turn/25))
	st.Bytes.EndpointToClient.Copied += int64(70e6*turn - 9e8*math.Cos(turn/11))
	rows["process"][""] = st
	event := map[string]any{"at": at.UnixMilli(), "rows": rows, "numbers": numbers}
	if first {
		event["endpoints"], event["number_names"] = endpoints, admin.NumberNames
	}
	var out bytes.Buffer
	_ = json.NewEncoder(&out).Encode(event) // it has no value that JSON lacks
	return strings.TrimSpace(out.String())
}

// row returns an endpoint as an event has it.
func row(upstream string, e *admin.Endpoint) map[string]any {
	level, why := "ok", e.Why
	switch {
	case e.State == admin.Down, e.State == admin.Ejected:
		level = "down"
	case e.State == admin.Draining:
		level = "off"
	case e.LastFailure != nil:
		level, why = "warning", e.LastFailure.Cause
	}
	r := map[string]any{"upstream": upstream, "name": e.Name, "address": e.Address, "zone": e.Zone, "weight": e.Weight, "state": e.State, "level": level, "why": why, "by_hand": e.ByHand}
	if !e.Until.IsZero() {
		r["until"] = e.Until
	}
	return r
}
