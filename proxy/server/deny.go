package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/state"
)

// denials are the sources that an operator denies. Fields are under the server's mu.
type denials struct {
	list   []denial // in the order in which they were made, or made again
	sums   map[string]denialSum
	timer  *time.Timer
	rules  limit.Denials    // those in force, for loops
	clock  func() time.Time // time.Now, unless a test has the time
	latest int64            // the server's clock when the latest denial was new
	// before are the clients of listeners from before the latest denial; those of a listener that has come
	// since are not in it.
	before map[*router.ListenerState]arrivals
}

// A denial is one of them.
type denial struct {
	admin.Denial
	rule source.Rule
}

// Deny implements [admin.Balancer]. Clients that wait are held to it at their next step, as they are to the rules of a
// reload. Sessions go on. It survives reloads and, with a file of the state, a restart; the name of a listener that is
// not there denies nothing until there is one.
func (s *Server) Deny(text, listener string, within time.Duration, by string) (admin.NewDenial, error) {
	rule, err := source.ParseRule(text)
	switch {
	case err != nil:
		return admin.NewDenial{}, fmt.Errorf("%w: source: %w", admin.ErrInvalid, err)
	case rule.Everyone():
		return admin.NewDenial{}, fmt.Errorf("%w: source: %q is every client of its family: write all to deny every client, or a longer prefix", admin.ErrInvalid, text)
	}
	d, err := s.deny(rule, listener, within, by)
	if err != nil {
		return admin.NewDenial{}, err
	}
	s.keep()
	done := admin.NewDenial{Denial: d}
	if err := s.unkept(); err != nil {
		done.Unkept = err.Error()
	}
	return done, nil
}

func (s *Server) deny(rule source.Rule, listener string, within time.Duration, by string) (admin.Denial, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if listener != "" && s.listeners[listener] == nil {
		return admin.Denial{}, fmt.Errorf("listener %q: %w: there are %s", listener, admin.ErrNotFound, names(s.listeners))
	}
	now := s.denials.clock()
	d := denial{admin.Denial{Source: rule.Text(), Listener: listener, Until: now.Add(within), Since: now, By: by}, rule}
	if i := s.denials.index(rule, listener); i >= 0 {
		s.denials.list = slices.Delete(s.denials.list, i, i+1)
	} else if len(s.denials.list) >= admin.MaxDenials {
		return admin.Denial{}, fmt.Errorf("%w: %d sources are denied already: remove some, or deny a prefix", admin.ErrInvalid, admin.MaxDenials)
	} else {
		s.denials.mark(s.now(), s.listeners)
	}
	s.denials.list = append(s.denials.list, d)
	s.log.Info("source denied", "by", by, "source", d.Source, "listener", cmp.Or(listener, "all"), "until", d.Until.Format(time.RFC3339))
	s.enforceDenials()
	return d.Denial, nil
}

// Undeny implements [admin.Balancer].
func (s *Server) Undeny(text, listener, by string) error {
	rule, err := source.ParseRule(text)
	if err != nil {
		return fmt.Errorf("%w: source: %w", admin.ErrInvalid, err)
	}
	defer s.keep()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.denials.index(rule, listener)
	if i < 0 {
		return fmt.Errorf("source %s: %w: %s", rule.Text(), admin.ErrNotFound, s.denials.instead(rule, listener))
	}
	s.denials.list = slices.Delete(s.denials.list, i, i+1)
	s.log.Info("source no longer denied", "by", by, "source", rule.Text(), "listener", cmp.Or(listener, "all"))
	s.enforceDenials()
	return nil
}

// instead says how a source is denied in place of at that listener, or everywhere if that is empty.
func (d *denials) instead(rule source.Rule, listener string) string {
	var at []string
	for _, one := range d.list {
		if one.rule == rule && one.Listener != "" {
			at = append(at, one.Listener)
		}
	}
	switch {
	case d.index(rule, "") >= 0:
		return "it is denied for the whole process, and not for listener " + listener + ": leave the listener out"
	case len(at) > 0:
		return "it is denied at listener " + strings.Join(at, " and ") + " alone: name that listener"
	}
	return "there is no denial of it: penstock deny list has those in force"
}

// Denied implements [admin.Balancer].
func (s *Server) Denied() []admin.Denial {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, list := s.denials.clock(), make([]admin.Denial, 0, len(s.denials.list))
	for _, d := range s.denials.list {
		if d.Until.After(now) {
			list = append(list, d.Denial)
		}
	}
	return list
}

// restoreDenials replaces the denials by those that a process before has kept. Those whose time is over are left
// out. A source that cannot be read is one, too, and is logged.
func (s *Server) restoreDenials(list []state.Denial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denials.list = nil
	for _, d := range list {
		rule, err := source.ParseRule(d.Source)
		switch {
		case err != nil:
			s.log.Error("a source that was denied by hand before the restart is not denied any more", "source", d.Source, "by", d.By, "error", err)
		case s.denials.index(rule, d.Listener) < 0 && len(s.denials.list) < admin.MaxDenials:
			s.denials.list = append(s.denials.list, denial{admin.Denial{Source: d.Source, Listener: d.Listener, Until: d.Until, Since: d.Since, By: d.By}, rule})
		}
	}
	s.enforceDenials()
}

// markDenials has the denials survive a restart, once [Server.keep] is called.
func (s *Server) markDenials() {
	if s.options.State == nil {
		return
	}
	list := make([]state.Denial, len(s.denials.list))
	for i, d := range s.denials.list {
		list[i] = state.Denial{Source: d.Source, Listener: d.Listener, Until: d.Until, By: d.By, Since: d.Since}
	}
	s.options.State.SetDenials(list)
}

// index returns the place of a denial, negative if there is none.
func (d *denials) index(rule source.Rule, listener string) int {
	return slices.IndexFunc(d.list, func(one denial) bool { return one.rule == rule && one.Listener == listener })
}

// enforceDenials brings into force those whose time is not over, and sets the timer for the next that ends.
// The caller holds s.mu.
func (s *Server) enforceDenials() {
	d := &s.denials
	s.cancelTimer(d.timer)
	d.timer = nil
	now := d.clock()
	d.list = slices.DeleteFunc(d.list, func(one denial) bool { return !one.Until.After(now) })
	rules, next := make([]limit.Denial, len(d.list)), time.Time{}
	for i, one := range d.list {
		rules[i] = limit.Denial{Source: one.rule, Listener: one.Listener}
		if next.IsZero() || one.Until.Before(next) {
			next = one.Until
		}
	}
	d.rules.Set(rules)
	d.sumUp()
	s.markDenials()
	if len(d.list) > 0 && !s.closing {
		d.timer = s.at(max(next.Sub(now), time.Millisecond), s.enforceDenials)
	}
}
