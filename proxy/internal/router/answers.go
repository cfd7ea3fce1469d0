package router

import (
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

var _ worker.Watcher = (*binding)(nil)

// Answers returns the counts of the endpoint's answers.
func (e *Endpoint) Answers() *health.Answers { return &e.answers }

// Watch implements [worker.Watcher].
func (b *binding) Watch(t relay.Turn, now int64) {
	b.endpoint.answers.Watch(b.from, &t, now)
	if b.trial() {
		b.lasts(now)
	}
}

// firstByte is called when the endpoint of a session sends its first byte.
func (b *binding) firstByte(took time.Duration, asked bool) {
	now := b.listener.now()
	b.endpoint.spoke()
	b.noteServed(now)
	if b.resort {
		b.heard()
	}
	if b.trial() {
		b.answered()
	}
	b.endpoint.answers.First(took, asked, now)
}

// settled counts the end of a session: of one that was answered, and that by the endpoint, which
// is a sign of life, or by a client that was not answered.
func (e *Endpoint) settled(r *relay.Result, from health.Source, now int64) {
	if r.BToA.Bytes() > 0 {
		e.answers.Served(r.Duration)
	}
	switch {
	case r.Reason == relay.ReasonCanceled:
	case r.First == relay.SideB || r.Culprit == relay.SideB:
		e.answers.Ended(now)
	case r.BToA.Bytes() == 0 && r.AToB.Bytes() > 0:
		e.answers.Left(from, r.Duration, now)
	}
}

// away takes note of a connect that has failed because no process listens.
func (e *Endpoint) away(errno syscall.Errno) {
	if errno == syscall.ECONNREFUSED || errno == syscall.ENOENT {
		e.answers.Refused()
	}
}
