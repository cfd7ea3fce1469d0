package lb_test

import (
	"fmt"
	"math"
	"strings"
)

// A panel is lines over the steps, drawn one below the other.
type panel struct {
	title string
	lines []line
	lo    float64
	hi    float64
	log   bool
	ticks []float64
	label func(float64) string
}

const (
	width, plotWidth    = 860, 560
	panelHeight, margin = 250, 60
)

var colours = map[string]string{
	"round_robin": "#1f77b4", "least_conn": "#d62728", "random_two": "#2ca02c", "maglev": "#9467bd",
	"source_ip": "#ff7f0e", "maglev, table": "#9467bd", "source_ip, table": "#ff7f0e", "least_conn, slow_start": "#e377c2", "ideal": "#333333", "modulo": "#8c8c8c",
}

func (s *simulation) svg() []byte {
	times := func(v float64) string { return fmt.Sprintf("%.4g×", v) }
	percent := func(v float64) string { return fmt.Sprintf("%.4g %%", v*100) }
	panels := []panel{
		{title: "Sessions of the busiest endpoint, times the mean", lines: s.spread, lo: 1, hi: 1.6, ticks: []float64{1, 1.2, 1.4, 1.6}, label: times},
		{title: fmt.Sprintf("Sessions of the %d endpoints that come at step %d, times the mean", s.tenth(), 2*s.steps/3), lines: s.share, lo: 0, hi: 1.2, ticks: []float64{0, 0.5, 1}, label: times},
		{title: "Clients sent to another endpoint than in the step before", lines: s.moved, lo: 3e-4, hi: 1, log: true, ticks: []float64{0.001, 0.01, 0.1, 1}, label: percent},
	}
	var b strings.Builder
	height := 40 + len(panels)*panelHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="15">%d nodes, %d endpoints, %d sessions: simulated</text>`+"\n", margin, s.nodes, s.endpoints, s.nodes*s.sessions)
	for i := range panels {
		panels[i].draw(&b, 40+i*panelHeight, s.steps)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func (p *panel) draw(b *strings.Builder, top, steps int) {
	const plotHeight = panelHeight - 70
	y := func(v float64) float64 {
		at := (v - p.lo) / (p.hi - p.lo)
		if p.log {
			at = math.Log(max(v, p.lo)/p.lo) / math.Log(p.hi/p.lo)
		}
		return float64(top+30+plotHeight) - plotHeight*min(max(at, 0), 1)
	}
	x := func(step int) float64 { return margin + plotWidth*float64(step)/float64(steps-1) }
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="13">%s</text>`+"\n", margin, top+18, p.title)
	for _, v := range p.ticks {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%s</text>`+"\n",
			margin, y(v), margin+plotWidth, margin-6, y(v)+4, p.label(v))
	}
	for step := 0; step < steps; step += 10 {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%d</text>`+"\n", x(step), top+46+plotHeight, step)
	}
	for i, l := range p.lines {
		var path strings.Builder
		for step := 1; step < steps; step++ {
			if p.log && l.by[step] == 0 {
				continue
			}
			fmt.Fprintf(&path, "%.1f,%.1f ", x(step), y(l.by[step]))
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"/>`+"\n", strings.TrimSpace(path.String()), colours[l.name])
		key := top + 40 + 18*i
		fmt.Fprintf(b, `<path d="M%d %dh18" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`+"\n",
			margin+plotWidth+16, key, colours[l.name], margin+plotWidth+40, key+4, l.name)
	}
}
