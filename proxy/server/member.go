package server

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A member is an endpoint of an upstream, with its checks and monitors. Everything is guarded
// by the server's mu.
type member struct {
	endpoint *router.Endpoint
	spec     discovery.Endpoint     // as the file or discovery says
	check    *health.Check          // nil: it is not checked
	monitor  *health.OutlierMonitor // nil: it is not judged
	breaker  *health.Breaker        // nil: it has none
	ending   *ending                // nil: it was not asked for yet
	mode     string                 // its state: ready, drain or maint
	enforced string                 // the state whose effects it has
	cut      *cutJob                // of a drain; nil: there is none
	leave    *cutJob                // of one that is gone; nil: its sessions stay
	share    int                    // its weight
	byHand   bool                   // it is in no file
}

// A spec is an endpoint as the file or discovery says.
type spec struct {
	discovery.Endpoint
	address sockopt.Address // as the loader has read it; zero: not read yet
	mode    string          // its state: ready, drain or maint
	share   int             // its weight, which an operator may have changed
	byHand  bool            // it is in no file
}

// specs are the endpoints that an upstream has, each made when it is asked for.
type specs struct {
	n  int
	at func(i int) spec
}

// specsOf returns those of the file, or those that were found.
func specsOf(cfg *config.Upstream, found []discovery.Endpoint) specs {
	if cfg.Discover != nil {
		return specs{len(found), func(i int) spec { return spec{Endpoint: found[i], mode: config.Ready, share: found[i].Weight} }}
	}
	return specs{len(cfg.Endpoints), func(i int) spec { return specOf(&cfg.Endpoints[i]) }}
}

func specOf(e *config.Endpoint) spec {
	return spec{address: e.Address, mode: e.State, share: e.Weight, Endpoint: discovery.Endpoint{
		Address: e.Address.String(), Name: e.Name, Weight: e.Weight, Backup: e.Backup, Zone: e.Zone,
		Connections: int(e.Connections),
	}}
}

// monitorChanges says which monitors, breakers and checks have to be configured anew under the next
// configuration, and whether some are added or removed.
type monitorChanges struct{ outlier, breaker, others, check bool }

// monitors reports whether members are judged otherwise, or by others.
func (c monitorChanges) monitors() bool { return c.outlier || c.breaker || c.others }

func changesOf(before, now *config.Upstream) (c monitorChanges) {
	if a, b := before.OutlierDetection, now.OutlierDetection; a != nil && b != nil {
		c.outlier = *outlierConfig(a) != *outlierConfig(b)
	} else {
		c.others = a != b
	}
	if a, b := before.CircuitBreaker, now.CircuitBreaker; a != nil && b != nil {
		c.breaker = *breakerConfig(a, false) != *breakerConfig(b, false)
	} else {
		c.others = c.others || a != b
	}
	a, b := before.HealthCheck, now.HealthCheck
	c.check = a == nil || b == nil || before.SendProxy != now.SendProxy || before.OnUnhealthy != now.OnUnhealthy || !a.Same(b)
	return c
}

// watch starts, changes or stops the checks of a member, by its upstream's configuration;
// changed reports whether that has changed.
func (s *Server) watch(u *config.Upstream, m *member, changed bool) {
	if u.HealthCheck == nil || m.mode == config.Maint {
		if m.check != nil {
			m.check.Stop()
			m.check = nil
			m.endpoint.SetCheck(nil)
		}
		return
	}
	if m.check != nil && !changed {
		return
	}
	cfg, err := checkConfig(u, m.spec.Address)
	switch {
	case err != nil: // of an address that discovery has found: the loader looks at others
		s.lines.Note(s.now(), &monitor.Line{
			Upstream: u.Name, Level: slog.LevelWarn, Message: "endpoint cannot be checked", Kind: "unchecked", Name: m.spec.Identity(), Count: 1,
			Attrs: []any{"endpoint", subjectOf(u, m), "error", err},
		})
	case m.check == nil:
		m.check = s.checker.Watch(subjectOf(u, m), m.endpoint, cfg)
		m.endpoint.SetCheck(m.check)
	default:
		m.check.Configure(cfg)
	}
}

// checkConfig is how an endpoint is asked whether it is well.
func checkConfig(u *config.Upstream, address string) (*health.CheckConfig, error) {
	h := u.HealthCheck
	probe := &health.ProbeConfig{Address: address, Port: h.Port}
	if h.Type == "http" {
		probe.HTTP = &health.HTTPProbe{Path: h.HTTP.Path, Host: h.HTTP.Host, Status: h.HTTP.Status, Body: []byte(h.HTTP.Body.Value)}
	} else {
		probe.Send, probe.Expect = []byte(h.Send.Value), []byte(h.Expect.Value)
	}
	probe.Standby = []byte(h.Standby.Value)
	if h.TLS {
		probe.TLS = &tls.Config{ServerName: h.SNI, InsecureSkipVerify: true} // it asks whether TLS is spoken, no more
		if host, _, err := net.SplitHostPort(address); err == nil && h.SNI == "" && u.TLS != nil && h.Port == 0 {
			probe.TLS.ServerName = host // as for clients; an IP address is not sent
		}
	}
	if h.TLS && u.StartTLS == config.StartTLSPostgres && h.Port == 0 {
		probe.StartTLS = postgres.Negotiate
	}
	if u.SendProxy > 0 && h.Port == 0 {
		probe.Preface = ownHeader(u.SendProxy)
	}
	p, err := health.NewProbe(probe)
	if err != nil {
		return nil, err
	}
	return &health.CheckConfig{
		Probe: p, Interval: h.Interval, FastInterval: h.FastInterval, Jitter: h.Jitter, Timeout: h.Timeout,
		Rise: h.Rise, Fall: h.Fall,
		Elsewhere: h.Port != 0, Answered: h.Type == "http" || h.Expect.Value != "",
		Strict: u.OnUnhealthy == "reset", // its sessions are reset, whatever it does not answer
	}, nil
}

// addressOf returns an address of TCP; of a unix socket, one that is not valid.
func addressOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

// ownHeader returns the PROXY header of a connection of this process itself.
func ownHeader(version int) func(net.Conn) []byte {
	return func(c net.Conn) []byte {
		return proxyproto.Append(nil, version, &proxyproto.Connection{
			Local: true, Source: addressOf(c.LocalAddr()), Destination: addressOf(c.RemoteAddr()),
		})
	}
}

var errRemoved = errors.New("its endpoint was removed")

// dropMember is the end of a member that is gone, but for its sessions. Only clients may
// still get there that came when its whole upstream was not gone yet.
func (s *Server) dropMember(u *upstream, m *member) {
	u.router.Forget(m.endpoint) // first: that verdicts on it end is no recovery
	if m.check != nil {
		m.check.Stop()
	}
	if m.monitor != nil {
		m.monitor.Remove()
	}
}

// drainRemoved applies on_removed to the sessions of a removed member.
func (s *Server) drainRemoved(u *upstream, m *member) {
	m.leave = s.drainSessions(m.endpoint, u.cfg.OnRemoved, u.cfg.DrainTimeout, errRemoved)
}

// stillThere returns those of members that have sessions. The list is used again.
func stillThere(members []*member) []*member {
	return slices.DeleteFunc(members, func(m *member) bool { return m.endpoint.Active() == 0 })
}

// bindingTo says whether a session is one to an endpoint.
func bindingTo(e *router.Endpoint) worker.Match {
	return func(_ *worker.Listening, b worker.Binding) bool { return b != nil && router.EndpointOf(b) == e }
}
