package server

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/state"
)

// denials are the sources that an operator denies. Fields are under the server's mu.
type denials struct {
	*core
	changes *liveChanges // writes the state file

	list   []denial // in the order in which they were made, or made again
	sums   map[string]denialSum
	rules  limit.Denials    // in force, as the loops read them
	clock  func() time.Time // time.Now, or the clock of a test
	latest int64            // the server's clock when the latest denial was new
	// before counts each listener's clients from before the latest denial. A listener that was added
	// since has no entry.
	before map[*router.ListenerState]arrivals
}

type denial struct {
	admin.Denial
	rule source.Rule
}

// Deny implements [admin.Balancer]. A denial applies to waiting clients at their next step, as the rules of a reload do.
// Sessions go on. A denial survives reloads and, with a state file, a restart. A denial at a listener that does not exist
// yet takes effect once it exists.
func (s *Server) Deny(text, listener string, within time.Duration, by string) (admin.NewDenial, error) {
	rule, err := source.ParseRule(text)
	prefix, failed := netip.ParsePrefix(text)
	switch {
	case failed == nil && prefix.Bits() == 0: // 10.0.0.7/0 too: err would advise to write 0.0.0.0/0
		return admin.NewDenial{}, fmt.Errorf("%w: source: %q matches every IPv4 or every IPv6 client: write all to deny every client, or a longer prefix", admin.ErrInvalid, text)
	case err != nil:
		return admin.NewDenial{}, fmt.Errorf("%w: source: %w", admin.ErrInvalid, err)
	}
	made, err := s.denials.deny(rule, listener, within, by)
	if err != nil {
		return admin.NewDenial{}, err
	}
	return admin.NewDenial{Denial: made, Unkept: s.liveChanges.kept(false)}, nil
}

func (d *denials) deny(rule source.Rule, listener string, within time.Duration, by string) (admin.Denial, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if listener != "" && d.listeners[listener] == nil {
		return admin.Denial{}, missing("listener", listener, d.listeners)
	}
	now := d.clock()
	one := denial{admin.Denial{Source: rule.Text(), Listener: listener, Until: now.Add(within), Since: now, By: by}, rule}
	if i := d.index(rule, listener); i >= 0 {
		d.list = slices.Delete(d.list, i, i+1)
	} else if len(d.list) >= admin.MaxDenials {
		return admin.Denial{}, fmt.Errorf("%w: %d sources are denied already: remove some, or deny a prefix", admin.ErrInvalid, admin.MaxDenials)
	} else {
		d.mark()
	}
	d.list = append(d.list, one)
	d.log.Info("source denied", "by", by, "source", one.Source, "listener", cmp.Or(listener, "all"), "until", one.Until.Format(time.RFC3339))
	d.enforce()
	return one.Denial, nil
}

// Undeny implements [admin.Balancer].
func (s *Server) Undeny(text, listener, by string) (done admin.Changed, err error) {
	rule, err := source.ParseRule(text)
	if err != nil {
		return done, fmt.Errorf("%w: source: %w", admin.ErrInvalid, err)
	}
	if err := s.denials.remove(rule, listener, by); err != nil {
		return done, err
	}
	return admin.Changed{Changed: true, Unkept: s.liveChanges.kept(true)}, nil
}

func (d *denials) remove(rule source.Rule, listener, by string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.index(rule, listener)
	if i < 0 {
		return missingf("source %s is %s", rule.Text(), d.instead(rule, listener))
	}
	d.list = slices.Delete(d.list, i, i+1)
	d.log.Info("source no longer denied", "by", by, "source", rule.Text(), "listener", cmp.Or(listener, "all"))
	d.enforce()
	return nil
}

// instead says where a source is denied, for an operator who undenies it in another place: listener, or all listeners
// if listener is empty.
func (d *denials) instead(rule source.Rule, listener string) string {
	var at []string
	for _, one := range d.list {
		if one.rule == rule && one.Listener != "" {
			at = append(at, one.Listener)
		}
	}
	switch {
	case d.index(rule, "") >= 0:
		return "denied at all listeners, not only at listener " + listener + ": leave the listener out"
	case len(at) > 0:
		return "denied at listener " + strings.Join(at, " and ") + " only: name that listener"
	}
	return "not denied: penstock deny list shows the denied sources"
}

// Denied implements [admin.Balancer].
func (s *Server) Denied() []admin.Denial {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, list := s.denials.clock(), make([]admin.Denial, 0, len(s.denials.list))
	for _, one := range s.denials.list {
		if one.Until.After(now) {
			list = append(list, s.denials.shown(&one))
		}
	}
	return list
}

// shown returns a denial with the reason why it has no effect now, if it has none.
func (d *denials) shown(one *denial) admin.Denial {
	shown := one.Denial
	if one.Listener != "" && d.listeners[one.Listener] == nil {
		shown.Waits = "there is no such listener"
	}
	return shown
}

// without returns the denials that would lose their listener under a configuration, in one change for each listener.
func (d *denials) without(cfg *config.Config) (list []admin.LiveChange) {
	for _, name := range slices.Sorted(maps.Keys(d.sums)) {
		if d.listeners[name] == nil || slices.ContainsFunc(cfg.Listeners, func(l *config.Listener) bool { return l.Name == name }) {
			continue
		}
		sum := d.sums[name]
		what := sum.latest.Source
		if sum.count > 1 {
			what = fmt.Sprintf("%s and %d more", what, sum.count-1)
		}
		list = append(list, admin.LiveChange{
			What: what + " denied at listener " + name, Kind: "denied", Listener: name, By: sum.latest.By, Since: sum.latest.Since,
			Ends: "the configuration no longer has the listener",
		})
	}
	return list
}

// restore replaces the denials by the denials that an earlier process has kept. It leaves out expired denials. If a
// source cannot be parsed, it logs the denial and leaves it out.
func (d *denials) restore(list []state.Denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = nil
	for _, one := range list {
		rule, err := source.ParseRule(one.Source)
		switch {
		case err != nil:
			d.log.Error("a source that was denied by hand before the restart could not be denied again", "source", one.Source, "by", one.By, "error", err)
		case d.index(rule, one.Listener) < 0 && len(d.list) < admin.MaxDenials:
			d.list = append(d.list, denial{admin.Denial{Source: one.Source, Listener: one.Listener, Until: one.Until, Since: one.Since, By: one.By}, rule})
		}
	}
	if n := len(d.list); n > 0 {
		first := d.list[0]
		d.log.Info("sources that were denied by hand before the restart are denied again: see penstock deny list", "source", first.Source, "by", first.By, "until", first.Until, "others", n-1)
	}
	d.enforce()
}

// save makes the denials survive a restart, once [liveChanges.keep] is called.
func (d *denials) save() {
	if d.changes.store == nil {
		return
	}
	list := make([]state.Denial, len(d.list))
	for i, one := range d.list {
		list[i] = state.Denial{Source: one.Source, Listener: one.Listener, Until: one.Until, By: one.By, Since: one.Since}
	}
	d.changes.store.SetDenials(list)
}

func (d *denials) index(rule source.Rule, listener string) int {
	return slices.IndexFunc(d.list, func(one denial) bool { return one.rule == rule && one.Listener == listener })
}

// enforce drops expired denials, and brings the others into force. The server's mu is held.
func (d *denials) enforce() {
	now := d.clock()
	d.list = slices.DeleteFunc(d.list, func(one denial) bool { return !one.Until.After(now) })
	rules := make([]limit.Denial, len(d.list))
	for i, one := range d.list {
		rules[i] = limit.Denial{Source: one.rule, Listener: one.Listener}
	}
	d.rules.Set(rules)
	d.sumUp()
	d.save()
}

// expire ends the denials that have expired. It is called every second, because a timer does not notice when somebody
// sets the machine's clock.
func (d *denials) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	if slices.ContainsFunc(d.list, func(one denial) bool { return !one.Until.After(now) }) {
		d.enforce()
	}
}

// Counters that are shown in a status and never logged.
const (
	acceptedLine = "clients accepted"
	deniedLine   = "clients denied by hand"
)

type arrivals struct{ accepted, denied int64 }

func arrivalsAt(l *router.ListenerState) arrivals {
	return arrivals{l.Accepted.Load(), l.DeniedByHand()}
}

func (d *denials) mark() {
	d.latest = d.now()
	d.before = make(map[*router.ListenerState]arrivals, len(d.listeners))
	for _, l := range d.listeners {
		d.before[l.state] = arrivalsAt(l.state)
	}
}

const maxLatest = 10

// status returns the denials in force, nil if there are none.
func (d *denials) status() *admin.Denials {
	list := d.list
	if len(list) == 0 {
		return nil
	}
	st := &admin.Denials{Count: len(list)}
	for _, one := range slices.Backward(list[max(len(list)-maxLatest, 0):]) {
		st.Latest = append(st.Latest, d.shown(&one))
	}
	return st
}

type denialSum struct {
	count  int
	latest admin.Denial // of every client, if one is
	all    bool         // every client is denied
}

func (d *denialSum) add(one *denial) {
	d.count++
	if all := one.rule == source.All(); all || !d.all {
		d.latest, d.all = one.Denial, all
	}
}

func (d *denials) sumUp() {
	d.sums = make(map[string]denialSum)
	for i := range d.list {
		sum := d.sums[d.list[i].Listener]
		sum.add(&d.list[i])
		d.sums[d.list[i].Listener] = sum
	}
}
