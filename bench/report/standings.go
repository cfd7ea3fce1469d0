package report

import (
	"fmt"
	"slices"
)

// standings writes how Penstock compares with its worst peer.
func (d *Document) standings(p *Page) {
	if len(d.Standings) == 0 {
		return
	}
	p.Heading("Penstock beside the peer against which it does worst")
	t := new(Table)
	t.Row("", "worst beside", "Penstock", "must", "aim", "verdict", "no proxy")
	for i := range d.Standings {
		st := &d.Standings[i]
		title := st.title()
		if st.Among != "" {
			title += " of " + st.Among
		}
		t.Row(title, known(st.Peer), st.reached(), st.bound(st.Must), st.bound(st.Aim), string(st.Verdict), band(st.Limit, false))
	}
	p.Table(t)
	p.Prose("%s", d.standingsLegend())
}

// title returns the name of the judged figure.
func (st *Standing) title() string {
	text := st.Scenario + ": " + st.figure().Title
	if st.Subject != subject {
		text += ", " + st.Subject
	}
	return text
}

// reached returns the ratio, or the figure itself for an absolute goal.
func (st *Standing) reached() string {
	if st.Absolute {
		return st.figure().Write(float64(st.Value))
	}
	return band(st.Ratio, true)
}

// bound writes a goal, with ≥ or ≤.
func (st *Standing) bound(x Number) string {
	f := st.figure()
	side := "≤ "
	if f.More {
		side = "≥ "
	}
	switch {
	case !x.Known():
		return Unknown
	case st.Absolute:
		return side + f.Write(float64(x))
	}
	return side + Ratio(float64(x))
}

// band writes a median. If wide is set, it adds the spread of the values.
func band(b *Band, wide bool) string {
	switch {
	case b == nil:
		return Unknown
	case wide && b.Values > 1:
		return fmt.Sprintf("%s (%s–%s)", Ratio(float64(b.Median)), Ratio(float64(b.Low)), Ratio(float64(b.High)))
	}
	return Ratio(float64(b.Median))
}

// standingsLegend says how the ratios were computed.
func (d *Document) standingsLegend() string {
	text := `Each row shows the peer against which Penstock does worst: the median of the rounds' ratios of Penstock to this peer.
		"no proxy" is the same ratio of direct to this peer: the limit of every proxy.`
	if slices.ContainsFunc(d.Standings, func(st Standing) bool { return st.Among == splicers[0].Among }) {
		text += ` HAProxy with splicing is here twice, with separate verdicts: with its default pipe size, and with
			tune.pipesize as large as Penstock's pipes, which is 1 MiB for root (256 KiB for an ordinary user).`
	}
	if !slices.ContainsFunc(d.Standings, func(st Standing) bool { return st.indirect() }) {
		return text
	}
	text += fmt.Sprintf(` Two contestants that were not measured as a pair are compared by their ratios to %s in the same round, so this
		ratio has the noise of both`, d.Method.Baseline)
	if d.Method.Baseline == subject {
		return text + ". Among the kinds of Penstock only the first is measured in pairs with the peers."
	}
	return text + ". --baseline penstock measures each peer in pairs with Penstock."
}

// indirect reports whether a ratio of the standing is a quotient of two ratios.
func (st *Standing) indirect() bool {
	return slices.ContainsFunc(st.Beside, func(p PeerRounds) bool { return !p.Paired })
}
