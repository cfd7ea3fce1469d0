package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A member is an endpoint of an upstream, with its checks and monitors. Everything is guarded
// by the server's mu.
type member struct {
	spec
	endpoint *router.Endpoint
	check    *health.Check          // nil: it is not checked
	monitor  *health.OutlierMonitor // nil: it is not judged
	breaker  *health.Breaker        // nil: it has none
	ending   *ending                // finds out whether the endpoint closes connections; nil: not needed yet
	enforced string                 // the mode that was applied last
	cut      *cutJob                // cuts its sessions while it is drained; nil: it is not drained
	fell     *cutJob                // cuts its sessions since it became unhealthy last; nil: they stay, or were reset at once
	falls    int64                  // its DownTransitions when fell began
	leave    *cutJob                // cuts its sessions after its removal; nil: they stay
	until    time.Time              // when its sessions are to have drained after its removal
}

// A spec is an endpoint as the file, discovery or an operator gives it.
type spec struct {
	discovery.Endpoint
	address sockopt.Address // as the loader has read it; zero: not read yet
	mode    string          // its state: ready, drain or maint
	share   int             // its weight, which an operator may have changed
	byHand  bool            // it was added by hand
}

// specs are the endpoints that an upstream is to have. Each spec is made when it is asked for.
type specs struct {
	n  int
	at func(i int) spec
}

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

// monitorChanges says which monitors, breakers and checks have to be configured again under the
// next configuration, and whether some are added or removed.
type monitorChanges struct{ outlier, breaker, others, check bool }

// monitors reports whether the rules or the monitors that judge members change.
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
	c.check = a == nil || b == nil || before.SendProxy != now.SendProxy || before.SourceAddress != now.SourceAddress || before.OnUnhealthy != now.OnUnhealthy ||
		before.StartTLS != now.StartTLS || (before.TLS == nil) != (now.TLS == nil) || !a.Same(b)
	return c
}

// watch starts, changes or stops the checks of a member, to match its upstream's configuration; changed says whether the
// configuration has changed.
func (um *upstreamManager) watch(u *config.Upstream, m *member, changed bool) {
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
	cfg, err := checkConfig(u, m.spec.Address, um.circles, m.endpoint.Upstream())
	switch {
	case err != nil: // only discovery finds such an address: the loader checks the others
		um.lines.Note(um.now(), &monitor.Line{
			Upstream: u.Name, Level: slog.LevelWarn, Message: "an endpoint cannot be checked", Kind: "unchecked", Name: m.spec.Identity(), Count: 1,
			Attrs: []any{"endpoint", subjectOf(u, m), "error", err},
		})
	case m.check == nil:
		m.check = um.checker.Watch(subjectOf(u, m), m.endpoint, cfg)
		m.endpoint.SetCheck(m.check)
	default:
		m.check.Configure(cfg)
	}
}

func probeConfig(u *config.Upstream, address string) *health.ProbeConfig {
	h := u.HealthCheck
	probe := &health.ProbeConfig{Address: address, Port: h.Port, Source: u.SourceAddress}
	if h.Type == "http" {
		probe.HTTP = &health.HTTPProbe{Path: h.HTTP.Path, Host: h.HTTP.Host, Status: h.HTTP.Status, Body: h.HTTP.Body.Value}
	} else {
		probe.Send, probe.Expect = h.Send.Value, h.Expect.Value
	}
	probe.Standby = h.Standby.Value
	if h.TLS {
		probe.TLS = &tls.Config{ServerName: h.SNI, InsecureSkipVerify: true} // the probe only asks whether the endpoint speaks TLS
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
	return probe
}

func checkConfig(u *config.Upstream, address string, c *circles, of *router.Upstream) (*health.CheckConfig, error) {
	h := u.HealthCheck
	probe, to := probeConfig(u, address), u.Name
	if probe.TLS != nil {
		probe.TLS.GetClientCertificate = of.Certificate // the one in force: the check outlives changes of it
	}
	if _, own, _ := net.SplitHostPort(address); h.Port != 0 && strconv.Itoa(h.Port) != own { // a listener's answer would say nothing about the endpoint
		to = outside
	}
	probe.Connect = c.connect(to)
	p, err := health.NewProbe(probe)
	if err != nil {
		return nil, err
	}
	return &health.CheckConfig{
		Probe: p, Interval: h.Interval, FastInterval: h.FastInterval, Jitter: h.Jitter, Timeout: h.Timeout,
		Rise: h.Rise, Fall: h.Fall,
		Elsewhere: h.Port != 0, Answered: h.Type == "http" || h.Expect.Value != "",
		Strict: u.OnUnhealthy == "reset", // its sessions are reset, so a missing answer counts as a no
	}, nil
}

// addressOf returns an address of TCP; for a unix socket, an invalid one.
func addressOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

func ownHeader(version int) func(net.Conn) []byte {
	return func(c net.Conn) []byte {
		return proxyproto.Append(nil, version, &proxyproto.Connection{
			Local: true, Source: addressOf(c.LocalAddr()), Destination: addressOf(c.RemoteAddr()),
		})
	}
}

var errRemoved = errors.New("its endpoint was removed")

// dropMember ends a removed member. Its sessions drain; clients without a session get other endpoints. Only clients that were on their way to it, or that came
// before its whole upstream was removed, may still reach it: see drainLate.
func (um *upstreamManager) dropMember(u *upstream, m *member) {
	m.until = time.Now().Add(u.cfg.DrainTimeout)
	u.router.Forget(m.endpoint, func() { um.late.add(lateSession{u, m}) }) // comes first, so that the end of its checks does not look like a recovery
	if m.check != nil {
		m.check.Stop()
	}
	if m.monitor != nil {
		m.monitor.Remove()
	}
	if m.breaker != nil {
		m.breaker.Remove()
	}
	um.callOff(m.cut) // on_removed applies instead
	if m.endpoint.Active() > 0 {
		u.leaving = append(u.leaving, m)
		um.drainRemoved(u, m, u.cfg.DrainTimeout)
	}
}

func (um *upstreamManager) drainRemoved(u *upstream, m *member, within time.Duration) {
	m.leave = um.drainSessions(m.endpoint, u.cfg.OnRemoved, within, errRemoved, nil)
}

// A lateSession has begun after its endpoint was removed.
type lateSession struct {
	u *upstream
	m *member
}

// drainLate applies on_removed to sessions that have begun late, until ctx ends.
func (um *upstreamManager) drainLate(ctx context.Context) {
	um.late.each(ctx, func(list []lateSession) {
		um.mu.Lock()
		defer um.mu.Unlock()
		seen := make(map[*member]bool)
		for _, l := range list {
			if m := l.m; !seen[m] && m.endpoint.Forgotten() { // otherwise the endpoint is back
				seen[m] = true
				um.keepLeaving(l.u, m)
				if m.leave == nil || m.leave.over.Load() {
					um.drainRemoved(l.u, m, time.Until(m.until))
				}
			}
		}
	})
}

// stillThere returns the members that have sessions. It reuses the list.
func stillThere(members []*member) []*member {
	return slices.DeleteFunc(members, func(m *member) bool { return m.endpoint.Active() == 0 })
}

// An endpointUpdate holds the next members of an upstream. The monitors of new members exist before a client can reach
// them; their checks begin once the update is in use.
type endpointUpdate struct {
	cfg     *config.Upstream      // configures the members' checks, outlier detection and breakers
	breaker *health.BreakerConfig // configures each member's breaker, made from cfg; nil: no breakers
	changes monitorChanges        // for members that stay
	members map[string]*member
	order   []*member
	set     *lb.Set
	slow    bool      // new members of the file or of discovery start slowly: there were others before
	kept    int       // number of members that stay
	gone    []*member // members that go

	reactivated []reactivation // members that come back

	newMonitors []*health.OutlierMonitor // for members that had none
	oldMonitors []*health.OutlierMonitor // no longer needed
	oldBreakers []*health.Breaker        // no longer needed
	before      *lb.Set                  // the set that this update has replaced; nil: none, or the update is not in use yet
}

// newEndpointUpdate prepares the members of an upstream for specs. u has their detectors and
// breakers. old, which may be u or nil, has the present members. After an error the update lacks
// the invalid members.
func (um *upstreamManager) newEndpointUpdate(u, old *upstream, cfg *config.Upstream, specs specs) (*endpointUpdate, error) {
	update := &endpointUpdate{cfg: cfg, members: make(map[string]*member, specs.n), order: make([]*member, 0, specs.n)}
	if b := cfg.CircuitBreaker; b != nil {
		update.breaker = breakerConfig(b, false)
	}
	var set *lb.Set
	if old != nil {
		update.changes = changesOf(old.cfg, cfg)
		set = old.snapshot.Set()
		update.slow = slices.ContainsFunc(old.order, func(m *member) bool { return !m.byHand })
	}
	var errs []error
	for i := range specs.n {
		of := specs.at(i)
		id := of.Identity()
		if update.members[id] != nil {
			continue
		}
		m, err := um.memberOf(update, u, old, &of)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		update.members[id] = m
		update.order = append(update.order, m)
	}
	update.set = u.newSet(cfg, update.order, set)
	if old != nil {
		update.gone = update.without(old.order)
	}
	return update, errors.Join(few(errs)...)
}

// few returns the first errors, and an error that counts the others.
func few(errs []error) []error {
	if more := len(errs) - maxNamed; more > 0 {
		return append(errs[:maxNamed:maxNamed], fmt.Errorf("further endpoints that cannot be used: %d", more))
	}
	return errs
}

func (update *endpointUpdate) without(order []*member) (gone []*member) {
	switch update.kept {
	case 0:
		return order
	case len(order):
		return nil
	}
	for _, was := range order {
		if m := update.members[was.spec.Identity()]; m == nil || m.endpoint != was.endpoint {
			gone = append(gone, was)
		}
	}
	return gone
}

// memberOf returns the member of a spec: the present member, if nothing about it changes, a member
// that takes its place, or a new member.
func (um *upstreamManager) memberOf(update *endpointUpdate, u, old *upstream, wanted *spec) (*member, error) {
	var was *member
	if old != nil {
		was = old.members[wanted.Identity()]
	}
	if was == nil || was.spec.Address != wanted.Address {
		if back := um.drainingMember(update.cfg.Name, wanted); back != nil {
			return um.reuse(update, u, back, wanted), nil
		}
		return um.newMember(update, u, update.slow || wanted.byHand && old != nil && len(old.order) > 0, wanted)
	}
	update.kept++
	if was.spec == *wanted && !update.changes.monitors() {
		return was, nil
	}
	m := new(member)
	*m = *was
	m.spec = *wanted // [upstreamManager.enforce] brings its mode into force
	um.monitorEndpoint(update, u, m)
	return m, nil
}

func (um *upstreamManager) newMember(update *endpointUpdate, u *upstream, added bool, wanted *spec) (*member, error) {
	id, addr := wanted.Identity(), wanted.address
	if addr.Network == "" {
		var err error
		if addr, err = sockopt.Parse(wanted.Address); err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", id, err)
		}
	}
	e, _, err := u.router.Endpoint(id, addr, lb.EndpointConfig{ID: id, Weight: wanted.share, Connections: wanted.Connections, Now: um.now})
	if err != nil {
		return nil, err
	}
	m := &member{spec: *wanted, endpoint: e, enforced: config.Ready}
	e.SetDraining(m.mode != config.Ready) // before a client can find it
	um.monitorEndpoint(update, u, m)
	e.SetMonitor(m.monitor)
	e.SetBreaker(m.breaker)
	if added {
		e.Added()
	}
	return m, nil
}

// monitorEndpoint adds the outlier monitor and the breaker that a member lacks, and removes them if it should not
// have them. newMember and use pass them to its endpoint.
func (um *upstreamManager) monitorEndpoint(update *endpointUpdate, u *upstream, m *member) {
	subject := ""
	if u.outlier != nil && m.monitor == nil || update.breaker != nil && m.breaker == nil {
		subject = subjectOf(update.cfg, m)
	}
	switch {
	case u.outlier == nil && m.monitor != nil:
		update.oldMonitors, m.monitor = append(update.oldMonitors, m.monitor), nil
	case u.outlier != nil && m.monitor == nil:
		if update.newMonitors == nil {
			update.newMonitors = make([]*health.OutlierMonitor, 0, cap(update.order))
		}
		m.monitor = u.outlier.NewMonitor(subject, m.endpoint)
		update.newMonitors = append(update.newMonitors, m.monitor)
	}
	switch {
	case update.breaker == nil && m.breaker != nil:
		update.oldBreakers, m.breaker = append(update.oldBreakers, m.breaker), nil
	case update.breaker != nil && m.breaker == nil:
		m.breaker = health.NewBreaker(um.scheduler, subject, m.endpoint, update.breaker)
	}
}

func subjectOf(cfg *config.Upstream, m *member) string {
	return "endpoint " + cfg.Name + "/" + m.spec.Identity()
}

// abandon ends an update that will not be used.
func (update *endpointUpdate) abandon(old *upstream) {
	for id, m := range update.members {
		if was := old.members[id]; was == nil || was.endpoint != m.endpoint {
			old.router.Forget(m.endpoint, nil)
		}
	}
}

// use sends an upstream's clients to the members of an update, with their monitors and breakers.
func (u *upstream) use(update *endpointUpdate) {
	if len(update.newMonitors) > 0 {
		u.outlier.Join(update.newMonitors...)
	}
	if update.changes.monitors() {
		update.reconfigureMonitors()
	}
	for _, r := range update.reactivated {
		e := r.now.endpoint
		e.SetMonitor(r.now.monitor)
		e.SetBreaker(r.now.breaker)
		u.router.Recall(e)
		e.SetDraining(r.now.mode != config.Ready)
	}
	u.members, u.order = update.members, update.order
	update.set.Attach()
	update.before = u.snapshot.SetEndpoints(update.set)
}

// reconfigureMonitors applies a changed configuration to the monitors, breakers and checks of members, and removes monitors
// and breakers that it no longer names.
func (update *endpointUpdate) reconfigureMonitors() {
	for _, m := range update.order {
		m.endpoint.SetMonitor(m.monitor)
		m.endpoint.SetBreaker(m.breaker)
		if update.changes.outlier && m.monitor != nil {
			m.monitor.Configure()
		}
		if update.changes.breaker && m.breaker != nil {
			m.breaker.Configure(update.breaker)
		}
	}
	for _, judge := range update.oldMonitors {
		judge.Remove()
	}
	for _, b := range update.oldBreakers {
		b.Configure(&health.BreakerConfig{}) // it closes
	}
}

// settleEndpointUpdate follows the use of an update: removed members are released, and the
// present ones are checked.
func (um *upstreamManager) settleEndpointUpdate(u *upstream, update *endpointUpdate) {
	if update.before != nil {
		update.before.Detach()
	}
	for _, r := range update.reactivated { // their sessions stay
		um.callOff(r.was.leave)
		u.leaving = slices.DeleteFunc(u.leaving, func(m *member) bool { return m == r.was })
	}
	if len(update.gone) > 0 {
		u.leaving = stillThere(u.leaving)
	}
	for _, m := range update.gone {
		m.endpoint.SetDraining(true)
		um.dropMember(u, m)
	}
	for _, m := range update.order {
		um.watch(u.cfg, m, update.changes.check)
		um.enforce(u.cfg, m)
		if u.cfg.OnUnhealthy == "keep" {
			um.callOff(m.fell)
			m.fell = nil
		}
	}
	if u.outlier != nil {
		u.outlier.Settle()
	}
}

// A part that was taken out of service may come back before its sessions have ended: by a
// rollback, or because discovery leaves an endpoint out of one answer. Then it is the same part
// again, with its counts, and its sessions are no longer cut.

type reactivation struct {
	now, was *member
}

// drainingMember returns the leaving member of an endpoint, nil if there is none.
func (um *upstreamManager) drainingMember(upstream string, wanted *spec) *member {
	for _, m := range um.draining(upstream) {
		if m.spec.Identity() == wanted.Identity() && m.spec.Address == wanted.Address && m.endpoint.Active() > 0 {
			return m
		}
	}
	return nil
}

func (um *upstreamManager) reuse(update *endpointUpdate, u *upstream, old *member, wanted *spec) *member {
	m := &member{spec: *wanted, endpoint: old.endpoint, enforced: config.Ready}
	um.monitorEndpoint(update, u, m)
	update.reactivated = append(update.reactivated, reactivation{m, old})
	return m
}

// maxNamed is how many endpoints a line of the log names; the others are counted.
const maxNamed = 10

// firstOf describes the first endpoints by say, and counts the others.
func firstOf(list []*member, say func(m *member) string, separator, last string) string {
	var parts []string
	for _, m := range list[:min(len(list), maxNamed)] {
		parts = append(parts, say(m))
	}
	text := strings.Join(parts, separator)
	if more := len(list) - maxNamed; more > 0 {
		text += fmt.Sprintf("%sand %d more", last, more)
	}
	return text
}

// differs describes what an update that is not in use yet changes, as attributes of a log line.
func (update *endpointUpdate) differs(members map[string]*member) (attrs []any) {
	var came, changed []*member
	for _, m := range update.order {
		was := members[m.spec.Identity()]
		switch {
		case was == nil || was.endpoint != m.endpoint:
			came = append(came, m)
		case was.spec.Endpoint != m.spec.Endpoint:
			changed = append(changed, m)
		}
	}
	name := func(m *member) string {
		if m.spec.Identity() == m.spec.Address {
			return m.spec.Address
		}
		return m.spec.Identity() + " (" + m.spec.Address + ")"
	}
	for _, part := range []struct {
		key string
		of  []*member
	}{{"came", came}, {"went", update.gone}, {"changed", changed}} {
		if len(part.of) > 0 {
			attrs = append(attrs, part.key, firstOf(part.of, name, ", ", " "))
		}
	}
	return attrs
}

func (um *upstreamManager) enforce(u *config.Upstream, m *member) {
	if m.mode == m.enforced {
		return
	}
	um.callOff(m.cut)
	m.cut = nil
	m.endpoint.SetDraining(m.mode != config.Ready)
	switch m.mode {
	case config.Drain:
		m.cut = um.drainSessions(m.endpoint, "drain", u.DrainTimeout, errDrained, nil)
	case config.Ready:
		m.endpoint.Added() // its weight grows over slow_start
	}
	m.enforced = m.mode
}
