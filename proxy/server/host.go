package server

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/proxy/internal/episode"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/sessionlog"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// logEvery is the least time between two log lines on transitions of the same endpoint or upstream, or on a limit
// that a listener has reached.
const logEvery = 10 * time.Second

// A host is the load balancer as the loops see it: it logs, counts and traces what they report. Its fields need no lock, and are set before
// the loops begin.
type host struct {
	*core
	*sockets
	*sessionLog
	*traceExport
	pipes    *pipe.Pool     // nil without splice
	refusals *tally.Reasons // of all listeners, also of removed ones

	full, outOfDescriptors *episode.Episode
	paused                 atomic.Int64
}

// verdictOf judges a sample that ends now.
func (c *core) verdictOf(sample *verdict.Sample) verdict.Verdict {
	now := c.now()
	sample.Starved, sample.Late = -1, -1
	if w, known := c.cpu.Waited(now-int64(sample.Duration), now); known {
		sample.Starved = w.For
		if w.Probes > 0 {
			sample.Late = w.Late / time.Duration(w.Probes)
		}
	}
	return verdict.Of(sample)
}

// Full implements [worker.Host].
func (h *host) Full(full bool) {
	if !full {
		h.full.End()
		return
	}
	h.full.Begin(func() { h.log.Warn("the limit of connections is reached: further clients wait") })
}

// Paused implements [worker.Host]. A listener's own limits are no failure.
func (h *host) Paused(l *worker.Listening, cause error, active, pauses int64) {
	if errors.Is(cause, limit.ErrConnections) || errors.Is(cause, limit.ErrRate) {
		return
	}
	socket := l.Of.(*listenSocket)
	h.paused.Add(1)
	closed := h.Trim()
	socket.pauses.Begin(func() {
		h.log.Warn("accepting is paused", "address", socket.listener.Addr(), "error", cause,
			"active", active, "pauses", pauses, "pipes_closed", closed)
	})
	socket.pauses.End() // a failure soon after this continues the episode
}

// Closed implements [worker.Host].
func (h *host) Closed(l *worker.Listening) {
	socket := l.Of.(*listenSocket)
	socket.pauses.Stop()
	h.logUnclosed(socket, socket.listener.Close())
	close(socket.closed)
}

// Left implements [worker.Host].
func (h *host) Left(l *worker.Listening) {
	if socket, ok := l.Of.(*listenSocket); ok { // otherwise l holds sessions of an earlier process
		socket.deserted.Store(true) // its state is released elsewhere
		h.sockets.deserted.add(socket)
	}
}

// Trim implements [worker.Host].
func (h *host) Trim() int {
	if h.pipes == nil {
		return 0
	}
	return h.pipes.Trim()
}

func (h *host) logsSessions() bool { return h.log.Enabled(context.Background(), slog.LevelDebug) }

// Refused implements [worker.Host].
func (h *host) Refused(l *worker.Listening, cause error) {
	socket := l.Of.(*listenSocket)
	if _, next := h.rulesAt(socket, nil); next != nil {
		next.Config().State.Refused(cause, h.refusals)
	} else {
		h.listenerStateAt(socket, nil).Refused(cause, h.refusals)
	}
	if worker.LacksDescriptor(cause) {
		h.outOfDescriptors.Begin(func() { h.log.Warn("a client was refused because no descriptor was free", "error", cause) })
		h.outOfDescriptors.End()
	}
}

func (h *host) logSession(r *record.Record) {
	switch r.Outcome {
	case record.Joined:
		attrs := []any{
			"listener", r.Listener, "upstream", r.Upstream, "client", r.From().String(), "endpoint", r.Endpoint, "endpoint_address", r.EndpointName(), "reason", r.Reason(), "duration", r.Result.Duration.String(),
			"bytes_to_endpoint", r.Result.AToB.Bytes(), "bytes_to_client", r.Result.BToA.Bytes(),
		}
		if r.Verdict != "" {
			attrs = append(attrs, "verdict", r.Verdict)
		}
		if r.Err != nil {
			attrs = append(attrs, "error", r.Err)
		}
		h.log.Debug("session ended", attrs...)
	case record.Refused, record.Canceled:
		attrs := []any{"listener", r.Listener, "client", r.From().String()}
		for _, a := range [...]struct{ name, value string }{
			{"reason", r.Why},
			{"upstream", r.Upstream},
			{"sni", r.ServerName},
			{"protocol", r.Protocol},
			{"host", r.Host},
			{"path", r.Path},
			{"user", r.User},
			{"database", r.Database},
		} {
			if a.value != "" {
				attrs = append(attrs, a.name, a.value)
			}
		}
		h.log.Debug("connection refused", append(attrs, "error", r.Err)...)
	}
}

// Records implements [worker.Host].
func (h *host) Records(listener string, id record.ID) bool {
	if log := h.sessions.Load(); log != nil && log.Records(listener, id) {
		return true
	}
	return h.logsSessions()
}

// Began implements [worker.Host].
func (h *host) Began(l *worker.Listening, b worker.Binding, r *record.Record) {
	h.addLine(sessionlog.Start, l, b, r)
}

// Lasts implements [worker.Host].
func (h *host) Lasts(l *worker.Listening, b worker.Binding, r *record.Record) {
	h.addLine(sessionlog.Progress, l, b, r)
}

// Ended implements [worker.Host].
func (h *host) Ended(l *worker.Listening, b worker.Binding, r *record.Record) {
	if r.Outcome == record.Refused {
		r.Why = router.Reason(r.Err)
	}
	h.addLine(sessionlog.End, l, b, r)
	if r.Sampler != 0 {
		h.traces.Load().Add(r)
	}
	if h.logsSessions() {
		h.logSession(r)
	}
}

func (h *host) addLine(k sessionlog.Kind, l *worker.Listening, b worker.Binding, r *record.Record) {
	log := h.sessions.Load()
	if log == nil || !log.Has(k, r.Listener) {
		return
	}
	if b != nil {
		r.Upstream, r.Endpoint = b.Names()
	}
	r.Counts = h.clientsBeside(l, b, k == sessionlog.End)
	log.Add(r.Loop, k, r)
}

// Traces implements [worker.Host].
func (h *host) Traces(id record.ID) uint8 {
	if t := h.traces.Load(); t != nil {
		return t.Sample(id)
	}
	return 0
}

// Judge implements [worker.Host].
func (h *host) Judge(b worker.Binding, sample *verdict.Sample) verdict.Verdict {
	v := h.verdictOf(sample)
	router.Judged(b, &v, sample.Duration)
	return v
}

// clientsBeside counts the present clients, including this client. Once its session is over, its endpoint no longer
// counts the client.
func (h *host) clientsBeside(l *worker.Listening, b worker.Binding, over bool) record.Counts {
	n := record.Counts{Process: h.group.Active()}
	if socket, ok := l.Of.(*listenSocket); ok { // otherwise l holds sessions of an earlier process that have no listener
		n.Listener = socket.state.Load().Connections.InUse()
	}
	if e := router.EndpointOf(b); e != nil {
		n.Upstream, n.Endpoint = e.Upstream().Sessions(), int64(e.Active())
		if over {
			n.Upstream, n.Endpoint = n.Upstream+1, n.Endpoint+1
		}
	}
	return n
}

func logFiles(log *slog.Logger) func(tlsterm.Change) {
	return func(c tlsterm.Change) {
		if c.Err != nil {
			log.Error("new certificates cannot be used", "files", c.Paths, "error", c.Err)
			return
		}
		if !c.Late.IsZero() {
			log.Warn("the certificates changed, but the new certificate has expired, and clients do not accept it: replace it with a valid certificate", "files", c.Paths, "until", c.Late)
			return
		}
		log.Info("the certificates changed", "files", c.Paths)
	}
}
