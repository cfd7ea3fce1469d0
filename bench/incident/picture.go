package incident

import (
	"fmt"
	"math"

	"github.com/penstock/penstock/bench/report"
)

// Picture is the report as a picture: the mean, the 99th percentile and the failed requests,
// by second. about are lines below its title.
func (r *Report) Picture(about ...string) *report.Timeline {
	t := &report.Timeline{
		Title: fmt.Sprintf("An incident: %d of %d endpoints fail", r.Failing, r.Endpoints), About: about,
		Foot: `Shaded: the incident. A request counts in the second in which it began, with the time until it was answered or failed. A stroke at
			the upper edge: an endpoint is found out, by a check, its connections or a circuit breaker.`,
	}
	for i := range r.Incidents {
		if in := &r.Incidents[i]; len(in.Modes) > 0 {
			t.Rows = append(t.Rows, in.row(r))
			if len(in.Modes) > len(t.Lines) {
				t.Lines = t.Lines[:0]
				for _, m := range in.Modes {
					t.Lines = append(t.Lines, m.Mode+": "+m.About)
				}
			}
		}
	}
	return t
}

func (in *Incident) row(r *Report) report.TimelineRow {
	row := report.TimelineRow{
		Title: fmt.Sprintf("%s: %d of %d endpoints %s", in.Failure, r.Failing, r.Endpoints, in.Failure.About()),
		From:  in.Modes[0].Began, To: in.Modes[0].Ended, End: float64(len(in.Modes[0].Seconds)),
	}
	times := report.TimelinePanel{Low: 1e-3, High: 10, Ticks: []float64{1e-3, 1e-2, 1e-1, 1, 10}, Label: report.Seconds}
	row.Panels = append(row.Panels,
		in.panel(times, "mean", func(f *Figures) report.Number { return f.Mean }),
		in.panel(times, "99th percentile", func(f *Figures) report.Number { return f.P99 }),
		in.panel(in.shares(), "failed", (*Figures).FailedShare),
	)
	return row
}

// shares is a panel for shares, that holds all there are.
func (in *Incident) shares() report.TimelinePanel {
	most := 0.1
	for i := range in.Modes {
		for j := range in.Modes[i].Seconds {
			if share := float64(in.Modes[i].Seconds[j].FailedShare()); share > most {
				most = share
			}
		}
	}
	step := 0.1
	if most > 0.5 {
		step = 0.25
	}
	p := report.TimelinePanel{High: math.Ceil(most/step-1e-9) * step, Label: percent}
	for tick := 0.0; tick <= p.High+1e-9; tick += step {
		p.Ticks = append(p.Ticks, tick)
	}
	return p
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }

// panel is a figure of every mode.
func (in *Incident) panel(p report.TimelinePanel, title string, of func(*Figures) report.Number) report.TimelinePanel {
	p.Title = title
	for i := range in.Modes {
		t := &in.Modes[i]
		line := make([]report.Number, len(t.Seconds))
		for j := range t.Seconds {
			line[j] = of(&t.Seconds[j])
		}
		var marks []float64
		for _, e := range t.Events {
			if e.Bad && e.Seconds >= 0 {
				marks = append(marks, t.Began+e.Seconds)
			}
		}
		p.Lines, p.Marks = append(p.Lines, line), append(p.Marks, marks)
	}
	return p
}
