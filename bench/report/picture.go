package report

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// The sizes in the picture, in pixels.
const (
	pictureWidth = 1000.0
	margin       = 24.0
	nameWidth    = 150.0 // for the contestants' names
	betweenPanes = 36.0
	valueWidth   = 48.0 // for the ratio after a bar
	barPitch     = 18.0
	barHeight    = 11.0
	paneHead     = 56.0 // for the titles of the scenario and of its panes
	paneFoot     = 30.0 // for the axis
	headHeight   = 92.0
	footHeight   = 50.0
	// farthest is the largest end of an axis. A longer bar is cut, but its value is still written.
	farthest = 4.0
)

// pane shows one figure of a scenario, with a bar for each contestant.
type pane struct {
	figure *Figure
	bars   []bar
}

// bar is a ratio to the baseline.
type bar struct {
	name  string
	role  Role
	ours  bool
	ratio *Band // nil if unknown
}

// WriteSVG draws the ratios of the document: the two main figures of each scenario, with a bar for each
// contestant, and whiskers for the spread. The picture refers to no other file.
func (d *Document) WriteSVG(w io.Writer) error {
	_, err := w.Write(d.picture())
	return err
}

func (d *Document) picture() []byte {
	s := new(svg)
	s.text(margin, 36, "penstock-bench: ratios to "+d.Method.Baseline, style{20, inkColor, "start", true})
	m := &d.Machine
	about := []string{fmt.Sprintf("%s, %d CPUs, %s, %s; %s; %s", cmp.Or(m.CPU, Unknown), m.CPUs, m.Kernel, m.Go, d.Began.Format("2006-01-02"), d.network())}
	about = append(about, Wrap(d.method(), fitting(12, pictureWidth-2*margin))...)
	for i, text := range about {
		s.text(margin, 58+17*float64(i), clip(text, 12, pictureWidth-2*margin), style{12, quietColor, "start", false})
	}
	y := headHeight + 17*float64(len(about)-2)
	for _, sc := range d.Scenarios {
		y = d.drawScenario(s, sc, y)
	}
	s.text(margin, y+20, "Bar: median of the ratios of the rounds. Whisker: how far they stray. Dashed: the baseline. Grey: the baseline beside itself, which is the noise. Cut: the bar is longer.",
		style{11, quietColor, "start", false})
	return s.document(pictureWidth, y+footHeight, "penstock-bench: ratios to "+d.Method.Baseline)
}

// lost returns why there is nothing to compare with, if the baseline has failed.
func (s *Scenario) lost() string {
	for _, c := range s.Cells {
		if c.Role == Baseline {
			return c.Failed
		}
	}
	return ""
}

// drawScenario draws a scenario, and returns where the next one begins. If the scenario has no ratios because the
// baseline failed, it draws the reason. Without ratios for another reason, it draws nothing.
func (d *Document) drawScenario(s *svg, sc *Scenario, y float64) float64 {
	panes, lost := sc.panes(), sc.lost()
	if len(panes) == 0 && lost == "" {
		return y
	}
	s.line(margin, y, pictureWidth-margin, y, gridColor, 1, false)
	s.text(margin, y+22, clip(sc.Name+": "+sc.Title, 14, pictureWidth-2*margin), style{14, inkColor, "start", true})
	if len(panes) == 0 {
		s.text(margin, y+42, clip("No ratios: "+d.Method.Baseline+", the baseline, failed: "+lost, 12, pictureWidth-2*margin), style{12, inkColor, "start", false})
		return y + paneHead
	}
	top := y + paneHead
	width := (pictureWidth - 2*margin - nameWidth - betweenPanes) / 2
	for i, b := range panes[0].bars {
		st := style{12, inkColor, "end", b.ours}
		s.text(margin+nameWidth-8, top+float64(i)*barPitch+13, clip(b.name, 12, nameWidth-8), st)
	}
	for i := range panes {
		panes[i].draw(s, margin+nameWidth+float64(i)*(width+betweenPanes), top, width-valueWidth)
	}
	return top + float64(len(panes[0].bars))*barPitch + paneFoot
}

// panes returns the first two figures of the scenario that have ratios.
func (s *Scenario) panes() []pane {
	var panes []pane
	figures := Figures(s.Workload)
	for i := range figures {
		if len(panes) == 2 || !figures[i].Main {
			continue
		}
		p := pane{figure: &figures[i]}
		found := false
		for _, c := range s.Cells {
			if c.Role == Baseline {
				continue
			}
			ratio := c.Figures[p.figure.Name].Ratio
			found = found || ratio != nil
			p.bars = append(p.bars, bar{name: c.pictured(), role: c.Role, ours: c.ours(), ratio: ratio})
		}
		if found {
			panes = append(panes, p)
		}
	}
	return panes
}

func (c *Cell) pictured() string {
	if c.Role == Again {
		return c.Contestant + " again"
	}
	return c.Contestant
}

// draw draws the bars at x, y with this width.
func (p *pane) draw(s *svg, x, y, width float64) {
	end := p.axisEnd()
	at := func(ratio float64) float64 { return x + min(max(ratio, 0), end)/end*width }
	bottom := y + float64(len(p.bars))*barPitch
	better := "less is better"
	if p.figure.More {
		better = "more is better"
	}
	s.text(x, y-12, p.figure.Label+" ("+better+")", style{12, inkColor, "start", false})
	for tick := 0.0; tick <= end+1e-9; tick += axisStep(end) {
		s.line(at(tick), y-2, at(tick), bottom+3, gridColor, 1, false)
		s.text(at(tick), bottom+16, Digits(tick), style{11, quietColor, "middle", false})
	}
	for i := range p.bars {
		p.bars[i].draw(s, x, y+float64(i)*barPitch, at)
	}
	s.line(at(1), y-4, at(1), bottom+4, inkColor, 1.2, true)
}

// draw draws one bar. at returns the place of a ratio.
func (b *bar) draw(s *svg, x, y float64, at func(float64) float64) {
	if b.ratio == nil {
		s.text(x+4, y+13, Unknown, style{12, quietColor, "start", false})
		return
	}
	color := otherColor
	switch {
	case b.role == Again:
		color = floorColor
	case b.ours:
		color = ourColor
	}
	median, low, high := float64(b.ratio.Median), float64(b.ratio.Low), float64(b.ratio.High)
	middle := y + barPitch/2
	s.rect(x, middle-barHeight/2, at(median)-x, barHeight, color)
	if far := x + (at(1)-x)*median; far > at(median)+1 { // the axis ends before the bar ends
		for _, back := range []float64{10, 15} {
			s.line(at(median)-back-3, middle+barHeight/2, at(median)-back+3, middle-barHeight/2, groundColor, 2, false)
		}
	}
	if b.ratio.Values > 1 {
		s.line(at(low), middle, at(high), middle, whiskColor, 1.2, false)
		s.line(at(low), middle-3, at(low), middle+3, whiskColor, 1.2, false)
		s.line(at(high), middle-3, at(high), middle+3, whiskColor, 1.2, false)
	}
	s.text(max(at(high), at(median), at(1))+6, y+13, Ratio(median), style{12, inkColor, "start", b.ours})
}

// axisEnd returns a whole number of steps that is long enough for all bars, but not longer than farthest.
func (p *pane) axisEnd() float64 {
	far := 1.2
	for _, b := range p.bars {
		if b.ratio != nil {
			far = max(far, float64(b.ratio.High))
		}
	}
	far = min(far, farthest)
	step := axisStep(far)
	return math.Ceil(far/step-1e-9) * step
}

// axisStep returns the distance between the ticks of an axis with this end.
func axisStep(end float64) float64 {
	switch {
	case end <= 1.25:
		return 0.25
	case end <= 2.5:
		return 0.5
	}
	return 1
}

// svg is a picture that is being drawn: elements at absolute places. Text is escaped only here.
type svg struct{ body bytes.Buffer }

// The colors and fonts of the picture.
const (
	inkColor    = "#1f2933"
	quietColor  = "#66727f"
	gridColor   = "#e3e7eb"
	whiskColor  = "#39434d"
	ourColor    = "#1b7f79"
	floorColor  = "#b9c1c9"
	otherColor  = "#7b93b5"
	groundColor = "#ffffff"
	fonts       = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
)

// glyph is the approximate width of a character, as a share of the font size.
const glyph = 0.56

// style is the style of a text.
type style struct {
	size   float64
	color  string
	anchor string // start, middle, end
	bold   bool
}

func (s *svg) text(x, y float64, text string, st style) {
	weight := ""
	if st.bold {
		weight = ` font-weight="600"`
	}
	fmt.Fprintf(&s.body, `<text x="%s" y="%s" font-size="%s" fill="%s" text-anchor="%s"%s>`,
		num(x), num(y), num(st.size), st.color, st.anchor, weight)
	_ = xml.EscapeText(&s.body, []byte(text)) // a bytes.Buffer returns no error
	s.body.WriteString("</text>\n")
}

func (s *svg) rect(x, y, width, height float64, color string) {
	fmt.Fprintf(&s.body, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`+"\n",
		num(x), num(y), num(max(width, 0)), num(height), color)
}

func (s *svg) line(x1, y1, x2, y2 float64, color string, width float64, dashed bool) {
	dashes := ""
	if dashed {
		dashes = ` stroke-dasharray="4 3"`
	}
	fmt.Fprintf(&s.body, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s" stroke-width="%s"%s/>`+"\n",
		num(x1), num(y1), num(x2), num(y2), color, num(width), dashes)
}

// document wraps the elements into a picture of this size.
func (s *svg) document(width, height float64, title string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]s" height="%[2]s" viewBox="0 0 %[1]s %[2]s" font-family="%[3]s" role="img">`+"\n<title>",
		num(width), num(height), fonts)
	_ = xml.EscapeText(&b, []byte(title))
	fmt.Fprintf(&b, "</title>\n"+`<rect width="%s" height="%s" fill="%s"/>`+"\n", num(width), num(height), groundColor)
	b.Write(s.body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func num(x float64) string {
	text := strconv.FormatFloat(x, 'f', 1, 64)
	if n := len(text) - 2; text[n:] == ".0" {
		return text[:n]
	}
	return text
}

func fitting(size, width float64) int { return max(int(width/(size*glyph)), 1) }

func clip(text string, size, width float64) string {
	most := fitting(size, width)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
