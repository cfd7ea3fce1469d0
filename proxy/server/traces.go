package server

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/traces"
)

// A traceExport exports sampled sessions as spans, if the server has traces. Its fields need no lock.
type traceExport struct {
	*core
	traces atomic.Pointer[traces.Exporter] // owned; nil until there are traces
}

// prepareTraces reads the files that the export of traces needs, and makes the export begin, change
// or end with the change. The files are read each time, as they may have changed.
func (e *traceExport) prepareTraces(c *change) error {
	if c.cfg.Traces == nil {
		c.commits = append(c.commits, func() {
			if t := e.traces.Load(); t != nil {
				t.Set(nil)
			}
		})
		return nil
	}
	settings, err := e.traceSettings(c.cfg.Traces)
	switch {
	case err != nil && e.cfg != nil && e.cfg.Traces != nil && c.cfg.Traces.Same(e.cfg.Traces):
		e.log.Warn("the files of traces cannot be used, and their former contents stay in use", "error", err)
		return nil
	case err != nil:
		return fmt.Errorf("traces: %w", err)
	}
	c.commits = append(c.commits, func() {
		t := e.traces.Load()
		if t == nil { // a process without traces has no goroutine for them
			t = traces.New(&traces.Config{Now: e.now, Report: e.reportTraces})
			defer e.traces.Store(t)
		}
		t.Set(settings)
	})
	return nil
}

func (e *traceExport) traceSettings(c *config.Traces) (*traces.Settings, error) {
	to, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, err
	}
	t := &traces.Settings{
		Endpoint: to, Protocol: c.Protocol, Ratio: c.Sample / 100, Headers: make(http.Header), Gzip: c.Compression == "gzip",
		Queue: c.MaxQueueSize, Batch: c.MaxExportBatchSize, Delay: c.ScheduleDelay,
		Timeout: c.Timeout, Retry: c.RetryFor, Flush: c.FlushTimeout, Version: e.options.Version, Connect: e.circles.connect(outside),
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

func collectorTLS(c *config.TracesTLS) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.SNI}
	if c.CA != "" {
		data, err := file.ReadPEM(string(c.CA))
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("there is no certificate in %s", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := file.KeyPair(string(c.Cert), string(c.Key))
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", c.Cert, c.Key, err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

func (e *traceExport) reportTraces(lost traces.Stats, err error) {
	attrs := []any{"dropped", dropped(&lost), "unconfirmed", lost.Unconfirmed}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	e.log.Warn("spans were lost", attrs...)
}

func dropped(n *traces.Stats) string { return cmp.Or(display.Counts(n.DroppedBy()), "none") }

// tracesStatus describes the export of traces for a status; nil: there was none.
func (e *traceExport) tracesStatus(cfg *config.Config) *admin.Traces {
	t := e.traces.Load()
	if t == nil {
		return nil
	}
	n := t.Stats()
	st := &admin.Traces{
		Sampled: n.Sampled, Open: n.Open, Queued: n.Queued, Exported: n.Exported, Unconfirmed: n.Unconfirmed, Dropped: n.DroppedBy(),
	}
	if c := cfg.Traces; c != nil {
		st.Endpoint, st.Sample = c.Endpoint, c.Sample
	}
	if n.LastError != nil {
		st.LastError, st.LastErrorAt = strings.Join(strings.Fields(n.LastError.Error()), " "), n.LastErrorAt
	}
	return st
}

// closeTraces exports the last spans, in bounded time. No session is left.
func (e *traceExport) closeTraces() {
	t := e.traces.Load()
	if t == nil {
		return
	}
	t.Close()
	n := t.Stats()
	e.log.Info("traces were exported", "sampled", n.Sampled, "exported", n.Exported, "unconfirmed", n.Unconfirmed, "dropped", dropped(&n))
	if n.Open != 0 || n.Queued != 0 {
		e.log.Error("some sampled sessions have no span", "open", n.Open, "queued", n.Queued)
	}
}
