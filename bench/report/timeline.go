package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// A Timeline is a picture of several contestants in the course of time: rows of panels side by
// side, with a line for each contestant in each.
type Timeline struct {
	Title string
	About []string // lines below the title
	Lines []string // the contestants, in the order of the lines of every panel
	Rows  []TimelineRow
	Foot  string
}

// TimelineRow is one course of events.
type TimelineRow struct {
	Title    string
	From, To float64 // the part that is shaded, in seconds
	End      float64 // of the axis
	Panels   []TimelinePanel
}

// TimelinePanel is one figure.
type TimelinePanel struct {
	Title string
	// Low and High bound its axis, which is logarithmic if Low is above 0. Values beyond it
	// are drawn at its edge.
	Low, High float64
	Ticks     []float64
	Label     func(float64) string
	Lines     [][]Number  // by second; an unknown value leaves a gap
	Marks     [][]float64 // moments, by line
}

// The picture's measures in pixels, beside those of the other.
const (
	timelineGap    = 64.0 // between panels, for the labels of an axis
	timelineHeight = 150.0
	timelineHead   = 58.0
	timelineFoot   = 34.0
	shadeColor     = "#f3ede2"
)

// timelineColors are those of the lines.
var timelineColors = []string{"#b4532a", otherColor, ourColor, "#c9a227"}

// WriteSVG draws it. The picture needs nothing but itself.
func (t *Timeline) WriteSVG(w io.Writer) error {
	s := new(svg)
	s.text(margin, 36, t.Title, style{20, inkColor, "start", true})
	y := 58.0
	for _, about := range t.About {
		for _, line := range Wrap(about, fitting(12, pictureWidth-2*margin)) {
			s.text(margin, y, line, style{12, quietColor, "start", false})
			y += 17
		}
	}
	x := margin
	for i, name := range t.Lines {
		if end := x + 28 + float64(len(name))*12*glyph; end > pictureWidth-margin && i > 0 {
			x, y = margin, y+18
		}
		s.line(x, y+8, x+22, y+8, timelineColors[i%len(timelineColors)], 3, false)
		s.text(x+28, y+12, name, style{12, inkColor, "start", false})
		x += 28 + float64(len(name))*12*glyph + 24
	}
	y += 30
	for i := range t.Rows {
		t.Rows[i].draw(s, y)
		y += timelineHead + timelineHeight + timelineFoot
	}
	for _, line := range Wrap(t.Foot, fitting(11, pictureWidth-2*margin)) {
		s.text(margin, y+14, line, style{11, quietColor, "start", false})
		y += 15
	}
	_, err := w.Write(s.document(pictureWidth, y+20, t.Title))
	return err
}

func (r *TimelineRow) draw(s *svg, y float64) {
	s.line(margin, y, pictureWidth-margin, y, gridColor, 1, false)
	s.text(margin, y+20, r.Title, style{14, inkColor, "start", true})
	width := (pictureWidth-2*margin)/float64(len(r.Panels)) - timelineGap
	for i := range r.Panels {
		r.panel(s, &r.Panels[i], margin+float64(i)*(width+timelineGap)+timelineGap-8, y+timelineHead, width)
	}
}

func (r *TimelineRow) panel(s *svg, p *TimelinePanel, x, y, width float64) {
	at := func(second float64) float64 { return x + second/r.End*width }
	bottom := y + timelineHeight
	s.rect(at(r.From), y, at(r.To)-at(r.From), timelineHeight, shadeColor)
	s.text(x, y-12, p.Title, style{12, inkColor, "start", false})
	for _, tick := range p.Ticks {
		s.line(x, p.height(tick, bottom), x+width, p.height(tick, bottom), gridColor, 1, false)
		s.text(x-6, p.height(tick, bottom)+4, p.Label(tick), style{11, quietColor, "end", false})
	}
	for tick := 0.0; tick <= r.End+1e-9; tick += timelineStep(r.End) {
		s.text(at(tick), bottom+15, strconv.FormatFloat(tick, 'f', -1, 64)+" s", style{11, quietColor, "middle", false})
	}
	for i, line := range p.Lines {
		p.line(s, line, timelineColors[i%len(timelineColors)], at, bottom)
	}
	for i, marks := range p.Marks {
		for _, m := range marks {
			s.line(at(m), y, at(m), y+14, timelineColors[i%len(timelineColors)], 2, false)
		}
	}
}

// line draws the value of each second in its middle.
func (p *TimelinePanel) line(s *svg, line []Number, color string, at func(float64) float64, bottom float64) {
	var points bytes.Buffer
	for i, n := range line {
		if !n.Known() {
			s.polyline(points.String(), color)
			points.Reset()
			continue
		}
		fmt.Fprintf(&points, "%s,%s ", num(at(float64(i)+0.5)), num(p.height(float64(n), bottom)))
	}
	s.polyline(points.String(), color)
}

func (s *svg) polyline(points, color string) {
	if points != "" {
		fmt.Fprintf(&s.body, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.8" stroke-linejoin="round"/>`+"\n", strings.TrimSpace(points), color)
	}
}

// height is the place of a value on the axis.
func (p *TimelinePanel) height(v, bottom float64) float64 {
	share := (v - p.Low) / (p.High - p.Low)
	if p.Low > 0 {
		share = math.Log(max(v, p.Low)/p.Low) / math.Log(p.High/p.Low)
	}
	return bottom - timelineHeight*min(max(share, 0), 1)
}

// timelineStep is the distance of ticks on an axis of time that ends there.
func timelineStep(end float64) float64 {
	for _, step := range []float64{1, 2, 5, 10, 20, 30, 60} {
		if end/step <= 6 {
			return step
		}
	}
	return math.Ceil(end / 6)
}
