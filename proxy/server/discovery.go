package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/sockopt"
)

func (um *upstreamManager) startDiscovery(u *upstream) {
	if u.source == nil || u.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(um.ended)
	u.stop = stop
	name, source, first := u.cfg.Name, u.source, new(atomic.Pointer[[]discovery.Endpoint])
	u.first = first
	um.watches.Go(func() {
		source.Watch(ctx, func(found []discovery.Endpoint) {
			first.CompareAndSwap(nil, &found)
			um.discovered(name, source, found)
		})
	})
}

// discovered sends an upstream's clients to the endpoints that its source has found.
func (um *upstreamManager) discovered(name string, source discovery.Source, found []discovery.Endpoint) {
	defer um.keep() // after mu is released
	um.mu.Lock()
	defer um.mu.Unlock()
	u := um.upstreams[name]
	if um.ended.Err() != nil || u == nil || u.source != source {
		return
	}
	u.found, u.answered = found, true
	um.takeFound(u)
}

// keptAnswers is the least number of answers to keep; answerAge is how long after its use an answer may come back.
const (
	keptAnswers = 64
	answerAge   = 24 * time.Hour
)

// lastAnswers holds the last answer of each source that a reload has replaced or removed; the latest is last. If a rollback
// returns to a source that does not answer at the moment, its last answer is used. Guarded by the server's mu.
type lastAnswers []lastAnswer

type lastAnswer struct {
	upstream string
	origin   *config.Discover
	source   discovery.Source
	found    []discovery.Endpoint
	until    time.Time // when it was last in use
}

// keepAnswer keeps the endpoints that an upstream's source has found, because the source may end now.
func (um *upstreamManager) keepAnswer(u *upstream) {
	if u.source == nil || !u.answered && len(u.found) == 0 {
		return
	}
	list := slices.DeleteFunc(um.lastAnswers, func(a lastAnswer) bool { return a.of(u.cfg) })
	list = append(list, lastAnswer{u.cfg.Name, u.cfg.Discover, u.source, u.found, time.Now()})
	um.mostUpstreams = max(um.mostUpstreams, len(um.upstreams))
	um.lastAnswers = slices.Delete(list, 0, max(len(list)-max(2*um.mostUpstreams, keptAnswers), 0))
}

// last returns the last answer of an upstream's source, if it is not too old, and the source that it came from.
func (l lastAnswers) last(of *config.Upstream) ([]discovery.Endpoint, discovery.Source) {
	i := slices.IndexFunc(l, func(a lastAnswer) bool { return a.of(of) && time.Since(a.until) < answerAge })
	if i < 0 {
		return nil, nil
	}
	return l[i].found, l[i].source
}

func (a *lastAnswer) of(u *config.Upstream) bool {
	return a.upstream == u.Name && a.origin.SameOrigin(u.Discover)
}

// takeFound brings the endpoints that an upstream's source has found into use, except refused ones and addresses
// that lead back into the process.
func (um *upstreamManager) takeFound(u *upstream) {
	name, before := u.cfg.Name, u.refused
	var fit []discovery.Endpoint
	fit, u.refused = um.circles.fit(u.cfg, u.found)
	if len(u.refused) > 0 && !slices.Equal(u.refused, before) {
		um.log.Warn("some discovered endpoints are not used", "upstream", name, "endpoints", len(u.refused), "cause", strings.Join(u.refused[:min(len(u.refused), 3)], "; "))
	}
	update, err := um.newEndpointUpdate(u, u, u.cfg, um.live.edit(u.cfg, specsOf(u.cfg, fit)))
	if err != nil {
		um.log.Warn("discovered endpoints cannot be used", "upstream", name, "error", err)
	}
	attrs := append([]any{"upstream", name, "endpoints", len(update.order)}, update.differs(u.members)...)
	u.use(update)
	um.settleEndpointUpdate(u, update)
	um.lanes.Found()
	um.forget(update.gone)
	um.logEnded(um.endDiscovered(u))
	if len(update.order) == 0 {
		none := "discovery found no endpoints"
		if len(u.found) > 0 {
			none += " that can be used"
		}
		um.log.Warn(none+": "+withoutEndpoints(u.cfg), attrs...)
		return
	}
	um.log.Info("discovery found endpoints", attrs...)
}

// withoutEndpoints says what happens to the clients of an upstream without endpoints.
func withoutEndpoints(u *config.Upstream) string {
	switch f := u.Fallback; {
	case f != nil && f.Upstream != "":
		return "clients go to the fallback " + f.Upstream
	case f != nil:
		return "clients get the fallback's response"
	case u.Queue.Hold > 0 && u.Queue.Size > 0:
		return fmt.Sprintf("clients are held for %v and then refused", u.Queue.Hold)
	}
	return "clients are refused"
}

// forget makes the listeners release what they hold for removed members.
func (r *registry) forget(members []*member) {
	if len(members) == 0 {
		return
	}
	gone := make(map[*router.Endpoint]bool, len(members))
	for _, m := range members {
		gone[m.endpoint] = true
	}
	for _, l := range r.listeners {
		l.now.Forget(gone)
	}
}

// firstAnswers is how long Open waits for the first answers of discovery, so that the first clients
// are not refused for lack of endpoints. A change waits the same time for its new sources.
const firstAnswers = 3 * time.Second

// awaitNewSources asks the new sources of a change, and waits for a while until each has answered or failed. An
// upstream with a new source does not keep the endpoints of its former source, because the rules of the change may be
// meant for other endpoints. Until the new source has answered, the upstream has an earlier answer of this source, if
// there was one, or no endpoints.
func (um *upstreamManager) awaitNewSources(ctx context.Context, c *change) {
	if um.cfg == nil {
		return // Open waits, once everything listens
	}
	var asked []*upstream
	for _, next := range c.upstreams {
		if u := next.now; u != next.old && u.source != nil && u.stop == nil {
			um.startDiscovery(u)
			c.undo = append(c.undo, u.stop)
			asked = append(asked, u)
		}
	}
	if len(asked) == 0 {
		return
	}
	await(ctx, func() bool {
		for _, u := range asked {
			if u.first.Load() == nil && u.source.Status().Failures == 0 {
				return false
			}
		}
		return true
	})
	for _, u := range asked {
		if found := u.first.Load(); found != nil {
			u.found, u.answered = *found, true
		} else if len(u.found) == 0 {
			um.log.Warn("discovery has found no endpoints yet: "+withoutEndpoints(u.cfg), "upstream", u.cfg.Name)
		}
	}
}

// await waits until a condition holds, at most for firstAnswers.
func await(ctx context.Context, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswers)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// allAnswered reports whether every source has answered or failed.
func (um *upstreamManager) allAnswered() bool {
	um.mu.Lock()
	defer um.mu.Unlock()
	for _, u := range um.upstreams {
		if u.source != nil && !u.answered && u.source.Status().Failures == 0 {
			return false
		}
	}
	return true
}

const nameLookups = 64

// hostName returns the host of an endpoint's address if it is a name that has to be looked up, otherwise "".
func hostName(address sockopt.Address) string {
	host, _, err := net.SplitHostPort(address.Name)
	if _, literal := netip.ParseAddr(host); err != nil || literal == nil || address.Network != "tcp" {
		return ""
	}
	return host
}

// UnresolvedNames looks up the names of a configuration's endpoints until ctx ends. missing are the names that have
// no address; unknown are the names that could not be looked up, each with the reason. Both are sorted.
func UnresolvedNames(ctx context.Context, cfg *config.Config) (missing, unknown []string) {
	names := make(map[string]bool)
	for _, u := range cfg.Upstreams {
		for i := range u.Endpoints {
			if name := hostName(u.Endpoints[i].Address); name != "" {
				names[name] = true
			}
		}
	}
	failed := unresolved(ctx, slices.Collect(maps.Keys(names)))
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if err := failed[name]; noSuchName(err) {
			missing = append(missing, name)
		} else {
			unknown = append(unknown, fmt.Sprintf("%s (%v)", name, err))
		}
	}
	return missing, unknown
}

// unresolved looks names up in parallel, and returns an error for each name without an address. A lookup that ctx
// interrupts has the error of ctx.
func unresolved(ctx context.Context, names []string) map[string]error {
	var mu sync.Mutex
	failed := make(map[string]error)
	next := make(chan string)
	var all sync.WaitGroup
	for range min(nameLookups, len(names)) {
		all.Go(func() {
			for name := range next {
				err := context.Cause(ctx)
				if err == nil {
					_, err = sockopt.Resolve(ctx, name)
				}
				if err != nil {
					mu.Lock()
					failed[name] = err
					mu.Unlock()
				}
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	all.Wait()
	return failed
}

// noSuchName reports whether name servers have said that a name has no address. Other errors leave that open.
func noSuchName(err error) bool {
	if both, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range both.Unwrap() {
			if !noSuchName(one) {
				return false
			}
		}
		return true
	}
	var failed *net.DNSError
	return errors.As(err, &failed) && failed.IsNotFound
}

const (
	// lookForNames is the interval at which new names, and names that did not resolve the last time, are looked up.
	lookForNames = 5 * time.Second
	// nameTime is the longest time for one round of lookups.
	nameTime = 10 * time.Second
)

// watchNames looks up the names of endpoints without a check until ctx ends. For other
// endpoints the check reports names that do not resolve.
func (um *upstreamManager) watchNames(ctx context.Context) {
	good := make(map[string]bool)
	for {
		names := um.uncheckedNames()
		maps.DeleteFunc(good, func(name string, _ bool) bool { return !names[name] })
		maps.DeleteFunc(names, func(name string, _ bool) bool { return good[name] })
		round, end := context.WithTimeout(ctx, nameTime)
		failed := unresolved(round, slices.Collect(maps.Keys(names)))
		end()
		for name := range names {
			if failed[name] == nil {
				good[name] = true
			}
		}
		um.unresolved.Store(&failed)
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookForNames):
		}
	}
}

func (um *upstreamManager) uncheckedNames() map[string]bool {
	names := make(map[string]bool)
	um.mu.Lock()
	defer um.mu.Unlock()
	for _, u := range um.upstreams {
		for _, m := range u.order {
			if name := m.endpoint.HostName(); name != "" && m.check == nil && m.mode != config.Maint {
				names[name] = true
			}
		}
	}
	return names
}
