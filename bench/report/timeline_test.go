package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestTimeline(t *testing.T) {
	panel := TimelinePanel{
		Title: "99th percentile", Low: 0.001, High: 10, Ticks: []float64{0.1}, Label: Seconds,
		Lines: [][]Number{{0.001, 0.1, Unmeasured(), 10, 1000}, {0, 0, 0, 0, 0}}, Marks: [][]float64{{2.5}, nil},
	}
	line := Timeline{
		Title: "An <incident>", About: []string{"here"}, Lines: []string{"off", strings.Repeat("a very long name ", 8)}, Foot: "foot",
		Rows: []TimelineRow{{Title: "silent", From: 1, To: 3, End: 5, Panels: []TimelinePanel{panel, panel, panel}}},
	}
	var b bytes.Buffer
	if err := line.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for want, n := range map[string]int{
		"An &lt;incident&gt;": 2, ">here<": 1, ">foot<": 1, ">silent<": 1, ">100 ms<": 3,
		"<polyline ": 9, // an unknown value splits a line
		`stroke="` + timelineColors[0] + `" stroke-width="2"`: 3, // the marks
	} {
		if got := strings.Count(text, want); got != n {
			t.Errorf("%q occurs %d times, want %d", want, got, n)
		}
	}
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// A value beyond the axis is at its edge. One of four decades is a quarter of the height.
func TestTimelineHeight(t *testing.T) {
	logarithmic, linear := TimelinePanel{Low: 0.001, High: 10}, TimelinePanel{High: 0.5}
	for _, x := range []struct {
		panel *TimelinePanel
		value float64
		share float64
	}{
		{&logarithmic, 0, 0},
		{&logarithmic, 0.01, 0.25},
		{&logarithmic, 0.1, 0.5},
		{&logarithmic, 100, 1},
		{&linear, 0, 0},
		{&linear, 0.25, 0.5},
		{&linear, 1, 1},
	} {
		if got := (200 - x.panel.height(x.value, 200)) / timelineHeight; got < x.share-1e-9 || got > x.share+1e-9 {
			t.Errorf("%v: %v, want %v", x.value, got, x.share)
		}
	}
}

func TestTimelineStep(t *testing.T) {
	for end, want := range map[float64]float64{3: 1, 11: 2, 55: 10, 120: 20, 6000: 1000} {
		if got := timelineStep(end); got != want {
			t.Errorf("%v: %v, want %v", end, got, want)
		}
	}
}
