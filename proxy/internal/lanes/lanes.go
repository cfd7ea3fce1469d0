// Package lanes manages the lane of a process. It opens the lane for the first configuration that wants one,
// and tries again while another process has it. It switches the lane on and off. At the end it closes the lane
// or leaves it to the next process. It also gives the loops the sessions that an earlier process has left in
// the lane. Package worker lets single sessions leave and come back.
package lanes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// Lanes is the lane of a process. All exported fields must be set before the first use.
type Lanes struct {
	Group *worker.Group
	Log   *slog.Logger
	// Mu is the mutex of all changes of the configuration. The comments of the methods say when the caller must
	// hold it. Functions that run later lock it themselves.
	Mu *sync.Mutex
	// Places returns the parts of the configuration to which adopted sessions can belong. It is called with Mu
	// held.
	Places func() *Places
	// Go calls a function on a new goroutine. The process waits for the goroutine before it calls
	// [Lanes.Close]. Go is not called once Closing reports true.
	Go func(func())
	// Closing reports whether the process is about to end. It is called with Mu held. Ended is done once the
	// process is about to end.
	Closing func() bool
	Ended   context.Context

	now     atomic.Pointer[state]  // nil: no listener has asked for a lane yet
	wanted  atomic.Bool            // a listener of the configuration in force asks for the lane
	left    atomic.Bool            // sessions in the lane have ended for this process, and go on without it; written under Mu
	off     bool                   // a lane that is not open yet begins switched off; under Mu
	adopts  bool                   // the first discovery of endpoints is over; under Mu
	unbound unbound                // under Mu
	looks   int                    // calls of Look
	wrong   atomic.Pointer[string] // why sessions in the lane would not survive this process; nil: they would, or there are no pins
}

// A state is the lane, or why there is none. It does not change.
type state struct {
	lane     *lane.Lane // owned by Lanes; nil: there is none
	cfg      config.Lane
	devices  []string
	sessions int64  // places of the table; without a lane the number from the configuration
	is       string // one of the states of [admin.Lane]
	why      error
}

// retryEvery is how often Lanes tries to open a lane that another process has.
const retryEvery = 2 * time.Second

// errOpening says why there is no lane yet.
var errOpening = errors.New("the lane is being opened")

// Prepare prepares the lane for a configuration that wants one. If a listener requires the lane, Prepare opens
// it now, before the listeners. Otherwise the lane is opened after commit, beside the listeners, because the
// kernel may take a while to verify the programs. The caller must call commit, with Mu held, if the
// configuration comes into force, and undo if it does not.
func (l *Lanes) Prepare(cfg *config.Config) (commit, undo func(), err error) {
	next := &state{cfg: cfg.Lane, devices: cfg.Lane.Devices, is: admin.LaneOpening, why: errOpening, sessions: cfg.Lane.Sessions}
	undo = func() {}
	switch now := l.now.Load(); {
	case !cfg.WantsLane(), now != nil && now.lane != nil:
		next = nil
	case cfg.RequiresLane():
		if next = openLane(&cfg.Lane); next.is == admin.LaneUnavailable {
			return nil, nil, fmt.Errorf("lane: require: %w", next.why)
		}
		if next.lane != nil {
			undo = func() { l.logClosed(next.lane.Leave()) } // Leave, not Close: sessions of an earlier process must survive this failure
		}
	}
	return func() {
		l.wanted.Store(cfg.WantsLane())
		l.warnOfPins(cfg)
		if next != nil {
			l.commit(next)
		}
	}, undo, nil
}

// openLane opens a lane. If that fails, the state says why there is none.
func openLane(cfg *config.Lane) *state {
	next := &state{cfg: *cfg, is: admin.LaneOn, devices: cfg.Devices, sessions: cfg.Sessions}
	if len(next.devices) == 0 {
		next.devices, next.why = devices()
	} else {
		next.why = CheckDevices(next.devices)
	}
	if next.why == nil {
		next.why = makePins(string(cfg.Pins))
	}
	if next.why == nil {
		next.lane, next.why = lane.Open(lane.Config{Devices: next.devices, Sessions: int(cfg.Sessions), Pin: string(cfg.Pins)})
	}
	switch {
	case next.why == nil:
		next.sessions = int64(next.lane.Size())
	case errors.Is(next.why, lane.ErrBusy):
		next.is = admin.LaneBusy
	default:
		next.is = admin.LaneUnavailable
	}
	return next
}

// commit brings a lane into force, or notes why there is none. The caller holds Mu.
func (l *Lanes) commit(next *state) {
	if next.lane != nil && l.off {
		next.is, l.off = admin.LaneOff, false
	}
	last := l.now.Swap(next)
	switch {
	case next.lane != nil:
		message := "sessions may leave user space"
		if next.is == admin.LaneOff {
			message = "the lane is open, and switched off"
		}
		l.Log.Info(message, "devices", next.devices, "sessions", next.sessions, "memory", next.lane.Memory(), "adopted", next.lane.Stats().Adopted)
		if next.sessions != next.cfg.Sessions {
			l.Log.Warn("the lane adopted a table of sessions and keeps its size until the pins are removed",
				"sessions", next.sessions, "configured", next.cfg.Sessions, "pins", next.cfg.Pins, "instead", "let the process drain without lane.leave (its sessions are reset at the end), and start the next process")
		}
		l.adopt(next)
		if next.is != admin.LaneOff {
			l.Group.SetLane(next.lane, next.cfg.After)
		}
		return
	case next.is == admin.LaneOpening:
	case last == nil || last.is != next.is:
		l.Log.Warn("sessions stay in user space: there is no lane", "error", next.why)
	}
	switch next.is {
	case admin.LaneOpening:
		l.openAfter(next, 0)
	case admin.LaneBusy:
		l.openAfter(next, retryEvery)
	}
}

// openAfter opens the lane of a state after a while, unless another state has replaced that state meanwhile.
// The caller holds Mu.
func (l *Lanes) openAfter(now *state, d time.Duration) {
	l.Go(func() {
		select {
		case <-l.Ended.Done():
			return
		case <-time.After(d):
		}
		next := openLane(&now.cfg)
		l.Mu.Lock()
		defer l.Mu.Unlock()
		if !l.Closing() && l.now.Load() == now {
			l.commit(next)
		} else if next.lane != nil {
			l.logClosed(next.lane.Leave()) // not Close: sessions of an earlier process are for the state, or process, that opens the lane next
		}
	})
}

// Discovered is called once, with Mu held, when the first discovery of endpoints is over. From then on adopted
// sessions find their endpoints.
func (l *Lanes) Discovered() {
	l.adopts, l.unbound = true, make(unbound)
	if now := l.now.Load(); now != nil {
		l.adopt(now)
	}
}

// Use returns whether the sessions of a listener can leave user space.
func Use(l *config.Listener) worker.LaneUse {
	switch {
	case l.Lane == config.LaneOff:
		return worker.LaneOff
	case l.Transparent:
		return worker.LaneTransparent
	}
	return worker.LaneOn
}

// Settle applies a change of the configuration to the sessions of listeners, which are given by name. Sessions
// of the listeners in stay come back to user space. Sessions of the listeners in leave are asked to leave it.
func (l *Lanes) Settle(stay, leave map[string]bool) {
	if now := l.now.Load(); now == nil || now.lane == nil || len(stay)+len(leave) == 0 {
		return
	}
	l.Group.AskLane(func(at *worker.Listening, _ worker.Binding) bool { return leave[at.Service().Name] })
	l.Go(func() {
		back, reset := l.Group.ReturnLane(func(at *worker.Listening, _ worker.Binding) bool { return stay[at.Service().Name] })
		if back+reset > 0 {
			l.Log.Info("sessions have come back to user space, because their listener no longer has a lane", "sessions", back, "reset", reset)
		}
	})
}

// errLeft is why sessions in the lane end for this process, when it leaves them to the next process.
var errLeft = errors.New("the process ends, and its session goes on without it")

// Leaves reports whether sessions that have left user space go on when this process ends.
func (l *Lanes) Leaves() bool {
	now := l.now.Load()
	return now != nil && now.lane != nil && now.cfg.Leave
}

// Leave ends the sessions in the lane for this process if they go on without it, and returns how many they are.
// From then on no session leaves user space.
func (l *Lanes) Leave() int64 {
	l.Mu.Lock()
	leaves := l.Leaves()
	l.left.Store(leaves)
	l.Mu.Unlock()
	if !leaves {
		return 0
	}
	return l.Group.LeaveLane(errLeft)
}

// Close closes the lane, after all sessions of the loops have ended.
func (l *Lanes) Close() {
	if now := l.now.Load(); now != nil && now.lane != nil {
		l.close(now)
	}
}

func (l *Lanes) close(one *state) {
	if !one.cfg.Leave {
		l.logClosed(one.lane.Close())
		return
	}
	if n := one.lane.Stats().Lane; n > 0 {
		l.Log.Info("sessions that have left user space continue without this process", "sessions", n, "pins", one.cfg.Pins)
	}
	l.logClosed(one.lane.Leave())
}

func (l *Lanes) logClosed(err error) {
	if err != nil {
		l.Log.Warn("the lane could not be closed completely", "error", err)
	}
}

// Status returns the status of the lane, or nil if no listener has asked for one.
func (l *Lanes) Status() *admin.Lane {
	now := l.now.Load()
	if now == nil {
		return nil
	}
	st := &admin.Lane{State: now.is, Wanted: l.wanted.Load(), Devices: now.devices, Most: now.sessions, Stays: l.Group.LaneStays()}
	if now.why != nil {
		st.Why = now.why.Error()
	}
	if now.lane == nil {
		return st
	}
	if wrong := l.wrong.Load(); wrong != nil {
		st.PinsProblem = *wrong
	}
	n := now.lane.Stats()
	st.Active, st.Left, st.Ended, st.Reset = int64(n.Lane), int64(n.Left), int64(n.Ended), int64(n.Reset)
	st.Adopted, st.Failed, st.Returned, st.Gaps = int64(n.Adopted), int64(n.Failed), int64(n.Returned), int64(n.Gaps)
	if l.left.Load() {
		st.Active, st.GoOn = 0, st.Active
	}
	for why, count := range n.Refused {
		st.Stays[why.String()] += int64(count)
	}
	if len(n.Unrestored) > 0 {
		st.Unrestored = make(map[string]int64, len(n.Unrestored))
	}
	for why, count := range n.Unrestored {
		st.Unrestored[why.String()] = int64(count)
	}
	return st
}

// Lasting returns the keys that differ between next and the lane in force, and that a reload cannot change. A
// lane that is not open yet takes the keys that are in force when it opens. The size in force is the size of
// the table: as long as sessions go on over a restart, the next process adopts the table with them.
func (l *Lanes) Lasting(next *config.Lane) (keys []config.KeyChange) {
	now := l.now.Load()
	if now == nil || now.lane == nil {
		return nil
	}
	was := now.cfg
	was.Sessions = now.sessions
	keys = was.Lasting(next)
	for i := range keys {
		if keys[i].Key == "sessions" && now.cfg.Leave {
			keys[i].New += config.UnlessLeft
		}
	}
	return keys
}

var _ admin.LaneSwitcher = (*Lanes)(nil)

// SwitchLane implements [admin.LaneSwitcher].
func (l *Lanes) SwitchLane(on bool, by string) (admin.LaneChanged, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if now := l.toCome(); now != nil {
		changed := l.off == on
		l.off = !on
		l.Log.Info("the lane was switched by hand before it was open", "on", on, "by", by)
		return admin.LaneChanged{State: l.willBe(now), Changed: changed}, nil
	}
	now, err := l.inForce()
	if err != nil {
		return admin.LaneChanged{}, err
	}
	next := *now
	next.is = admin.LaneOff
	if on {
		next.is = admin.LaneOn
		l.Group.SetLane(next.lane, next.cfg.After)
	} else {
		l.Group.SetLane(nil, 0)
	}
	if next.is != now.is {
		l.now.Store(&next)
		l.Log.Info("the lane was switched by hand", "lane", next.is, "by", by)
	}
	return admin.LaneChanged{State: next.is, Changed: next.is != now.is}, nil
}

// every selects all sessions.
func every(*worker.Listening, worker.Binding) bool { return true }

// ReturnLane implements [admin.LaneSwitcher].
func (l *Lanes) ReturnLane(by string) (admin.LaneChanged, error) {
	l.Mu.Lock()
	if now := l.toCome(); now != nil { // no session has left user space
		defer l.Mu.Unlock()
		return admin.LaneChanged{State: l.willBe(now)}, nil
	}
	now, err := l.inForce()
	l.Mu.Unlock()
	if err != nil {
		return admin.LaneChanged{}, err
	}
	back, reset := l.Group.ReturnLane(every)
	l.Log.Warn("sessions have come back to user space", "sessions", back, "reset", reset, "by", by)
	return admin.LaneChanged{State: now.is, Returned: back, Reset: reset}, nil
}

// FlushLane implements [admin.LaneSwitcher].
func (l *Lanes) FlushLane(by string) (admin.LaneChanged, error) {
	l.Mu.Lock()
	now, err := l.inForce()
	l.Mu.Unlock()
	if err != nil {
		return admin.LaneChanged{}, err
	}
	n := l.Group.CutLane(every)
	l.Log.Warn("sessions that had left user space are reset", "sessions", n, "by", by)
	return admin.LaneChanged{State: now.is, Reset: n}, nil
}

// toCome returns the state of a lane that is being opened, or that will be opened once another process has left
// it. It returns nil if there is no such lane. The caller holds Mu.
func (l *Lanes) toCome() *state {
	if now := l.now.Load(); now != nil && now.lane == nil && (now.is == admin.LaneOpening || now.is == admin.LaneBusy) {
		return now
	}
	return nil
}

// willBe returns the state that a lane will have once it is open. The caller holds Mu.
func (l *Lanes) willBe(now *state) string {
	if l.off {
		return admin.LaneOff
	}
	return now.is
}

// A noLaneError says why no lane is open. It wraps [admin.ErrNotFound].
type noLaneError struct{ why error }

func (e noLaneError) Error() string { return "nothing was changed, no lane is open: " + e.why.Error() }

func (e noLaneError) Unwrap() []error { return []error{admin.ErrNotFound, e.why} }

// inForce returns the lane, or an error that says why there is none.
func (l *Lanes) inForce() (*state, error) {
	switch now := l.now.Load(); {
	case l.left.Load():
		return nil, fmt.Errorf("%w: sessions that have left user space (%d) continue without this process: nothing was changed", admin.ErrLeft, now.lane.Stats().Lane)
	case now == nil:
		return nil, noLaneError{errors.New("no listener has lane: auto or require")}
	case now.lane == nil:
		return nil, noLaneError{now.why}
	default:
		return now, nil
	}
}

// warnOfPins warns of sessions that an earlier process has left pinned, if no listener has the lane and so
// nothing adopts them.
func (l *Lanes) warnOfPins(c *config.Config) {
	dir := string(c.Lane.Pins)
	if c.WantsLane() || dir == "" {
		return
	}
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		l.Log.Warn("sessions of an earlier process may continue in the kernel, and no process manages them, because no listener has a lane",
			"pins", dir, "instead", "start once with lane: auto at a listener, and run penstock lane flush", "programs_and_maps", len(list))
	}
}

// pinsEvery is how many calls of Look pass until the next check of the pins.
const pinsEvery = 5

// Look pins the lane again after its pins were removed, or logs once why it cannot. It is called every second,
// by one goroutine.
func (l *Lanes) Look() {
	if l.looks++; l.looks%pinsEvery != 0 {
		return
	}
	now := l.now.Load()
	if now == nil || now.lane == nil || now.cfg.Pins == "" {
		return
	}
	again, err := now.lane.Repin()
	last := l.wrong.Load()
	switch {
	case errors.Is(err, net.ErrClosed):
	case err != nil:
		if text := err.Error(); last == nil || *last != text {
			l.wrong.Store(&text)
			l.Log.Warn("sessions in the lane do not survive the process: pins are missing", "pins", now.cfg.Pins, "error", err)
		}
	case again:
		l.wrong.Store(nil)
		l.Log.Warn("the pins of the lane were removed, and are pinned again", "pins", now.cfg.Pins)
	case last != nil:
		l.wrong.Store(nil)
		l.Log.Info("the pins of the lane are complete again", "pins", now.cfg.Pins)
	}
}
