package main

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock/relay"
)

// metrics has the figures of all sessions of a relay.
type metrics struct {
	active    prometheus.Gauge
	ended     *prometheus.CounterVec // by reason
	bytes     *prometheus.CounterVec // by direction, and by how they were moved
	fallbacks *prometheus.CounterVec // by reason: sessions that could not splice
	changes   *prometheus.CounterVec // by the new engine
	duration  prometheus.Histogram
}

func newMetrics(to prometheus.Registerer) *metrics {
	m := &metrics{
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "relay_sessions", Help: "Sessions that are open.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_sessions_ended_total", Help: "Sessions that have ended, by the reason.",
		}, []string{"reason"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_bytes_total", Help: "Bytes that sessions have moved, when they have ended.",
		}, []string{"direction", "engine"}),
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_fallbacks_total", Help: "How often bytes could not be spliced, or an end not be passed on.",
		}, []string{"direction", "reason"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_engine_changes_total", Help: "Directions that have turned to splicing, or to copying.",
		}, []string{"engine"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "relay_session_seconds", Help: "How long sessions last.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}),
	}
	to.MustRegister(m.active, m.ended, m.bytes, m.fallbacks, m.changes, m.duration)
	return m
}

// hooks returns the functions that count the sessions of a relay, and log them.
func (m *metrics) hooks(log *slog.Logger) relay.Hooks {
	return relay.Hooks{
		Started: func(s *relay.Session) {
			m.active.Inc()
			a, b := s.Conns()
			log.Debug("session started", "client", a.RemoteAddr(), "endpoint", b.RemoteAddr())
		},
		EngineChanged: func(_ *relay.Session, _ relay.Side, now relay.Engine) {
			m.changes.WithLabelValues(now.String()).Inc()
		},
		Ended: func(s *relay.Session, res relay.Result, err error) {
			m.active.Dec()
			m.ended.WithLabelValues(res.Reason.String()).Inc()
			m.duration.Observe(res.Duration.Seconds())
			m.count("from_client", res.AToB)
			m.count("to_client", res.BToA)
			a, b := s.Conns()
			log.Info("session ended", "client", a.RemoteAddr(), "endpoint", b.RemoteAddr(),
				"from_client", res.AToB.Bytes(), "to_client", res.BToA.Bytes(),
				"duration", res.Duration, "reason", res.Reason, "error", err)
		},
	}
}

// count adds one direction of a session.
func (m *metrics) count(direction string, f relay.Flow) {
	m.bytes.WithLabelValues(direction, "splice").Add(float64(f.Spliced))
	m.bytes.WithLabelValues(direction, "copy").Add(float64(f.Copied))
	for reason, n := range f.Fallbacks {
		if n > 0 {
			m.fallbacks.WithLabelValues(direction, relay.Fallback(reason).String()).Add(float64(n))
		}
	}
}
