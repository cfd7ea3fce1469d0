package server

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/live"
	"github.com/penstock/penstock/proxy/internal/state"
	"github.com/penstock/penstock/proxy/rollback"
)

// liveChanges are the changes by hand that are in force, and changes that ended with earlier configurations. They are guarded by the
// server's mu.
type liveChanges struct {
	*core
	store   *state.Store // keeps them over a restart; nil: they end with the process
	unsaved bool         // the last write failed
	retries bool         // another write is scheduled
	live    manual       // in force
	earlier []earlier    // the oldest first
	applied lives        // result of the last Apply
}

func (l *liveChanges) restore() {
	if l.store != nil {
		l.live = manual{live.NewSet(l.store.Changes())}
	}
}

// logRestored logs the changes that are in force again, and notes changes that have ended meanwhile.
func (l *liveChanges) logRestored() {
	for i := range l.live.All() {
		c := &l.live.All()[i]
		l.log.Info("a change by hand from before the restart is in force again", "what", c.String(), "by", c.By, "since", c.Since)
	}
}

// setLive replaces the changes that are in force. [liveChanges.keep] then makes them survive a
// restart.
func (l *liveChanges) setLive(set live.Set) {
	l.live = manual{set}
	l.markLive()
}

func (l *liveChanges) markLive() {
	if l.store != nil {
		l.store.SetChanges(l.live.All())
	}
}

// keepEvery is the interval at which a failed write of the state file is tried again.
const keepEvery = 10 * time.Second

// keep writes the changes by hand to the state file, if they differ from its contents, and tries again later if it cannot. It
// waits for the disk, so the server's mu is not held.
func (l *liveChanges) keep() {
	if l.store == nil {
		return
	}
	err := l.store.Flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch before := l.unsaved; {
	case err == nil && before:
		l.log.Info("the state file can be written again")
	case err != nil && !before && l.closing:
		l.log.Error("the next restart will lose changes by hand", "error", err)
	case err != nil && !before:
		l.log.Error("the next restart will lose changes by hand, unless the state file can be written before: Penstock tries again every 10s", "error", err)
	}
	if l.unsaved = err != nil; l.unsaved && !l.retries && !l.closing {
		l.retries = true
		l.at(keepEvery, func() {
			l.retries = false
			l.goTracked(l.keep)
		})
	}
}

// kept is keep after a command, and returns why a restart loses the change; "": it does not. takenBack says that the
// command only took back earlier changes, so without a state file a restart has nothing to lose.
func (l *liveChanges) kept(takenBack bool) string {
	l.keep()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.store == nil && takenBack:
		return ""
	case l.store == nil && l.cfg.StateFile != "":
		return "state_file takes effect after a restart"
	case l.store == nil:
		return "no state_file"
	}
	err := l.store.Err()
	switch {
	case err == nil:
		return ""
	case l.closing:
		return err.Error()
	}
	return fmt.Sprintf("%v; Penstock tries again every %v", err, keepEvery)
}

func (l *liveChanges) logEnded(ended []live.Ended) {
	for i := range ended {
		e := &ended[i]
		l.log.Info("a change by hand ended", "what", e.String(), "by", e.By, "since", e.Since, "cause", e.Why)
	}
	if len(ended) > 0 {
		l.markLive()
	}
}

// endDiscovered ends the changes that discovery has overtaken: it has found an endpoint that was
// added by hand, or another weight for an endpoint. It returns them; the caller logs them.
func (l *liveChanges) endDiscovered(u *upstream) (ended []live.Ended) {
	by := l.live.Of(u.cfg.Name)
	if u.cfg.Discover == nil || by == nil {
		return nil
	}
	for _, m := range u.order {
		id := m.spec.Identity()
		if m.byHand {
			continue
		}
		if c := by.Find(state.EndpointAdded, id); c != nil {
			ended = append(ended, live.Ended{Change: *c, Why: "discovery has found the endpoint"})
		}
	}
	listed := l.listed(u) // also endpoints that were removed by hand
	for i := range listed.n {
		of := listed.at(i)
		if c := by.Find(state.EndpointWeight, of.Identity()); c != nil && c.Line != live.WeightLine(of.Weight) {
			ended = append(ended, live.Ended{Change: *c, Why: "discovery has changed its weight"})
		}
	}
	keys := make([]state.Key, len(ended))
	for i := range ended {
		keys[i] = ended[i].Key()
	}
	if len(keys) > 0 {
		l.live = manual{l.live.Without(keys...)}
	}
	return ended
}

func changeOf(kind state.Kind, by string) state.Change {
	return state.Change{Kind: kind, By: by, Since: time.Now().Truncate(time.Millisecond)}
}

// LiveUnder returns the changes by hand that are in force, and why a configuration would end them.
func (s *Server) LiveUnder(cfg *config.Config) []admin.LiveChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.liveChanges.liveStatus()
	_, ended := s.liveChanges.live.Under(cfg)
	for i := range ended {
		for j := range s.liveChanges.live.All() {
			if s.liveChanges.live.All()[j].Key() == ended[i].Key() {
				list[j].Ends = ended[i].Why
			}
		}
	}
	return append(list, s.denials.without(cfg)...)
}

func (l *liveChanges) liveStatus() []admin.LiveChange {
	list := []admin.LiveChange{}
	for i := range l.live.All() {
		list = append(list, l.liveChange(&l.live.All()[i]))
	}
	return list
}

func (l *liveChanges) liveChange(c *state.Change) admin.LiveChange {
	return admin.LiveChange{
		What: c.String(), Kind: string(c.Kind), Upstream: c.Upstream, Endpoint: c.Endpoint, Listener: c.Listener,
		Line: c.Line, By: c.By, Since: c.Since, Waits: l.waits(c),
	}
}

// waits returns why a change has no effect now; "": it has one.
func (l *liveChanges) waits(c *state.Change) string {
	u := l.upstreams[c.Upstream]
	if u == nil || c.Kind == state.EndpointRemoved || u.members[c.Endpoint] != nil {
		return ""
	}
	if l.live.Find(state.Key{Kind: state.EndpointRemoved, Upstream: c.Upstream, Endpoint: c.Endpoint}) != nil {
		return "the endpoint is removed"
	}
	return "discovery has not found the endpoint"
}

func (l *liveChanges) stateFile() *admin.StateFile {
	st := l.store
	if st == nil {
		return nil
	}
	f := &admin.StateFile{Path: st.Path()}
	if err := cmp.Or(st.Err(), st.Corrupt()); err != nil && !errors.Is(err, state.ErrClosed) {
		f.Problem = oneLine(err).Error()
	}
	return f
}

func byHand(by *live.Upstream, m *member) (list []string) {
	for _, kind := range []state.Kind{state.EndpointAdded, state.EndpointWeight, state.EndpointState} {
		c := by.Find(kind, m.spec.Identity())
		if c == nil {
			continue
		}
		what := c.Value
		switch kind {
		case state.EndpointAdded:
			what = "added"
		case state.EndpointWeight:
			what = weightWords(c, m.spec.Weight)
		}
		list = append(list, handWords(what, c))
	}
	return list
}

func weightWords(c *state.Change, before int) string {
	return fmt.Sprintf("weight %s (before: %d)", c.Value, before)
}

func handWords(what string, c *state.Change) string {
	return fmt.Sprintf("%s by %s at %s", what, c.By, c.Since.Local().Format(time.DateTime))
}

// specUnder returns an endpoint of the file or of discovery with the changes by hand applied, even if a change has
// removed the endpoint. If the endpoint is not found, its name stands for its address.
func (u *upstream) specUnder(endpoint string, set live.Set) spec {
	listed := specsOf(u.cfg, u.found)
	for i := range listed.n {
		if of := listed.at(i); of.Identity() == endpoint {
			editSpec(set.Of(u.cfg.Name), &of, live.WeightLine(of.Weight))
			return of
		}
	}
	return spec{Endpoint: discovery.Endpoint{Address: endpoint}}
}

// An earlier is a configuration that was in force before, and the changes by hand that ended
// with it. They are restored if this configuration, or an even earlier one, is applied again.
type earlier struct {
	of    any // its origin
	ended []state.Change
}

// livesUnder returns the changes by hand under a configuration. If the configuration was in force before, changes
// that have ended since then are restored, the latest first.
func (l *liveChanges) livesUnder(cfg *config.Config) lives {
	left, ended := l.live.Under(cfg)
	found := lives{set: manual{left}, ended: ended}
	at := l.earlierAt(cfg)
	if at < 0 {
		return found
	}
	for _, before := range slices.Backward(l.earlier[at:]) {
		set, restored := found.set.Restore(before.ended, cfg)
		found.set, found.restored = manual{set}, append(found.restored, restored...)
	}
	return found
}

func (l *liveChanges) earlierAt(cfg *config.Config) int {
	return slices.IndexFunc(l.earlier, func(e earlier) bool { return e.of == cfg.Origin() })
}

// noteLives logs the changes by hand that a configuration has ended and restored, and keeps the changes that ended
// for a rollback. before was in force until now.
func (l *liveChanges) noteLives(before *config.Config, set *lives) {
	l.logEnded(set.ended)
	for _, d := range set.denied {
		l.log.Info("a denial by hand has no effect any more", "what", d.What, "by", d.By, "since", d.Since, "cause", d.Ends)
	}
	for i := range set.restored {
		r := &set.restored[i]
		l.log.Info("a change by hand is in force again", "what", r.String(), "by", r.By, "since", r.Since)
	}
	if len(set.restored) > 0 {
		l.markLive()
	}
	if l.cfg == before { // only a listener became ready again
		return
	}
	l.applied = *set
	if at := l.earlierAt(l.cfg); at >= 0 {
		l.earlier = slices.Delete(l.earlier, at, len(l.earlier))
	} else if before != nil && len(config.Diff(before, l.cfg)) > 0 {
		e := earlier{of: before.Origin()}
		for i := range set.ended {
			e.ended = append(e.ended, set.ended[i].Change)
		}
		l.earlier = append(l.earlier, e)
		l.earlier = slices.Delete(l.earlier, 0, max(len(l.earlier)-rollback.Kept, 0))
	}
}

// AppliedLive returns the changes by hand that the last [Server.Apply] has ended, with the reasons, and the changes
// that it has restored: an Apply of a configuration that was in force before restores the changes that ended with it.
// A list without changes is empty, not nil.
func (s *Server) AppliedLive() (ended, restored []admin.LiveChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended, restored = []admin.LiveChange{}, []admin.LiveChange{}
	for i := range s.liveChanges.applied.ended {
		e := &s.liveChanges.applied.ended[i]
		c := s.liveChanges.liveChange(&e.Change)
		c.Ends, c.Waits = e.Why, ""
		ended = append(ended, c)
	}
	ended = append(ended, s.liveChanges.applied.denied...)
	for i := range s.liveChanges.applied.restored {
		restored = append(restored, s.liveChanges.liveChange(&s.liveChanges.applied.restored[i]))
	}
	return ended, restored
}

// A manual holds the changes by hand that are in force. Status, reloads and restarts take them
// only from here: the configuration in force is the file edited by these changes.
type manual struct{ live.Set }

// lives are the changes by hand under a configuration that is being prepared.
type lives struct {
	set      manual
	ended    []live.Ended
	restored []state.Change     // that had ended before
	denied   []admin.LiveChange // see [denials.without]
}

// touchAny reports whether the configuration ends or restores a change of an upstream's endpoints, or of a listener.
// One of the two names is empty.
func (l *lives) touchAny(upstream, listener string) bool {
	of := func(c *state.Change) bool { return c.Upstream == upstream && c.Listener == listener }
	return slices.ContainsFunc(l.ended, func(e live.Ended) bool { return of(&e.Change) }) ||
		slices.ContainsFunc(l.restored, func(c state.Change) bool { return of(&c) })
}

// edit applies the changes to the endpoints of the file or of discovery.
func (h manual) edit(cfg *config.Upstream, listed specs) specs {
	by := h.Of(cfg.Name)
	if by == nil {
		return listed
	}
	list := make([]spec, 0, listed.n+len(by.Added()))
	for i := range listed.n {
		of := listed.at(i)
		if by.Find(state.EndpointRemoved, of.Identity()) == nil {
			editSpec(by, &of, live.WeightLine(of.Weight))
			list = append(list, of)
		}
	}
	for _, c := range by.Added() {
		of := addedSpec(c)
		editSpec(by, &of, "")
		list = append(list, of) // ignored if discovery has found an endpoint with this identity
	}
	return specs{len(list), func(i int) spec { return list[i] }}
}

func editSpec(by *live.Upstream, of *spec, line string) {
	if c := by.Find(state.EndpointWeight, of.Identity()); c != nil && c.Line == line {
		n, _ := strconv.Atoi(c.Value) // 0, so no clients, if somebody has edited the state file
		of.share = min(max(n, 0), discovery.MaxWeight)
	}
	if c := by.Find(state.EndpointState, of.Identity()); c != nil && (c.Line == "") == of.byHand {
		of.mode = c.Value
	}
}

func addedSpec(c *state.Change) spec {
	a := c.Added
	e := discovery.Endpoint{Address: a.Address, Name: c.Endpoint, Weight: a.Weight, Zone: a.Zone, Backup: a.Backup, Connections: int(a.Connections)}
	return spec{Endpoint: e, mode: config.Ready, share: a.Weight, byHand: true}
}

func (h manual) drained(listener string) bool {
	return h.Find(state.Key{Kind: state.ListenerDrained, Listener: listener}) != nil
}

// split returns the percentages of a split; nil: as in the file.
func (h manual) split(listener string, route int, split []config.Share) []float64 {
	c := h.Find(state.Key{Kind: state.Split, Listener: listener, Route: route})
	if c == nil {
		return nil
	}
	percent, _ := live.ParsePercentages(split, c.Value) // Under has checked that they fit
	return percent
}
