package worker

import (
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

// judge has the host judge a session that has ended, if the kernel's account of its connections was taken, and fills in the
// record, which may be nil. Local sides are unix sockets. away is its part in the lane, or nil.
func (g *Group) judge(b Binding, res *relay.Result, localClient, localEndpoint bool, r *record.Record, away *laneSession) {
	if sample, ok := sampleAtEnd(res, localClient, localEndpoint, away); ok {
		g.judgeBy(b, sample, r)
	}
}

// judgeBy has the host judge by a sample. It is on the heap from here on: short sessions have none.
func (g *Group) judgeBy(b Binding, sample verdict.Sample, r *record.Record) {
	v := g.cfg.Host.Judge(b, &sample)
	if r != nil {
		r.Verdict = v.Kind.String()
		r.ClientLeg, r.EndpointLeg = record.LegOf(&sample.A.Leg), record.LegOf(&sample.B.Leg)
	}
}
