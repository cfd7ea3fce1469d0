package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/traces"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// prepareTraces reads the files that the export of traces needs, and has it begin, change or end
// with the change. They are read each time: one may be another by now.
func (s *Server) prepareTraces(c *change) error {
	if c.cfg.Traces == nil {
		c.commits = append(c.commits, func() {
			if t := s.traces.Load(); t != nil {
				t.Set(nil)
			}
		})
		return nil
	}
	settings, err := s.traceSettings(c.cfg.Traces)
	if err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	c.commits = append(c.commits, func() {
		t := s.traces.Load()
		if t == nil { // a process without traces has no goroutine for them
			t = traces.New(&traces.Config{Now: s.now, Report: s.reportTraces})
			defer s.traces.Store(t)
		}
		t.Set(settings)
	})
	return nil
}

// traceSettings are those of a configuration.
func (s *Server) traceSettings(c *config.Traces) (*traces.Settings, error) {
	to, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, err
	}
	t := &traces.Settings{
		Endpoint: to, Protocol: c.Protocol, Ratio: c.Sample / 100, Headers: make(http.Header), Gzip: c.Compression == "gzip",
		Queue: c.MaxQueueSize, Batch: c.MaxExportBatchSize, Delay: c.ScheduleDelay,
		Timeout: c.Timeout, Retry: c.RetryFor, Flush: c.FlushTimeout, Version: s.options.Version,
	}
	for i := range c.Headers {
		t.Headers.Add(c.Headers[i].Name, c.Headers[i].Value.Value)
	}
	for _, a := range c.Resource {
		key, value, _ := strings.Cut(a, "=")
		t.Resource = append(t.Resource, traces.Attribute{Key: key, Value: value})
	}
	if c.TLS != nil {
		if t.TLS, err = collectorTLS(c.TLS); err != nil {
			return nil, err
		}
	}
	return t, t.Open()
}

// collectorTLS reads the files of TLS to a collector.
func collectorTLS(c *config.TracesTLS) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.SNI}
	if c.CA != "" {
		data, err := os.ReadFile(string(c.CA))
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("there is no certificate in %s", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(string(c.Cert), string(c.Key))
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", c.Cert, c.Key, err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// Traces implements [worker.Host].
func (h *host) Traces(_ *worker.Listening, id record.ID) uint8 {
	if t := h.traces.Load(); t != nil {
		return t.Sample(id)
	}
	return 0
}

// trace takes the record of a client that has left, if it is traced.
func (h *host) trace(r *record.Record) {
	if r.Sampler != 0 {
		h.traces.Load().Add(r)
	}
}

// reportTraces logs that spans were lost.
func (s *Server) reportTraces(lost traces.Stats, err error) {
	attrs := []any{"dropped", lost.DroppedBy(), "unconfirmed", lost.Unconfirmed}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.log.Warn("spans lost", attrs...)
}

// tracesStatus is the export of traces, for a status; nil: there was none.
func (s *Server) tracesStatus() *admin.Traces {
	t := s.traces.Load()
	if t == nil {
		return nil
	}
	n := t.Stats()
	st := &admin.Traces{
		Sampled: n.Sampled, Open: n.Open, Queued: n.Queued, Exported: n.Exported, Unconfirmed: n.Unconfirmed, Dropped: n.DroppedBy(),
	}
	if c := s.cfg.Traces; c != nil {
		st.Endpoint, st.Sample = c.Endpoint, c.Sample
	}
	if n.LastError != nil {
		st.LastError, st.LastErrorAt = strings.Join(strings.Fields(n.LastError.Error()), " "), n.LastErrorAt
	}
	return st
}

// closeTraces exports the last spans, in bounded time. No session is left.
func (s *Server) closeTraces() {
	t := s.traces.Load()
	if t == nil {
		return
	}
	t.Close()
	n := t.Stats()
	s.log.Info("traces exported", "sampled", n.Sampled, "exported", n.Exported, "unconfirmed", n.Unconfirmed, "dropped", n.DroppedBy())
	if n.Open != 0 || n.Queued != 0 {
		s.log.Error("sampled sessions without a span", "open", n.Open, "queued", n.Queued)
	}
}
