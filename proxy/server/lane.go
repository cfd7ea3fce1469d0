package server

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A laneState is the lane of the process, or why there is none. It does not change.
type laneState struct {
	lane     *lane.Lane // owned by the server; nil: there is none
	cfg      config.Lane
	devices  []string
	sessions int64  // places of the table; without a lane those of the configuration
	state    string // of [admin.Lane]
	why      error
}

// laneRetryEvery is how often a lane that another process has is tried again.
const laneRetryEvery = 2 * time.Second

// errLaneOpening is why there is no lane yet.
var errLaneOpening = errors.New("it is being opened")

// prepareLane opens the lane for the first configuration that wants it: beside the listeners, for the kernel takes a while
// for the programs on a busy machine, and before them where one requires it.
func (s *Server) prepareLane(c *change) error {
	c.commits = append(c.commits, func() {
		s.adopted.know(s)
		s.laneWanted.Store(c.cfg.WantsLane())
		s.warnOfPins(c.cfg)
	})
	if !c.cfg.WantsLane() || s.lane.Load() != nil && s.lane.Load().lane != nil {
		return nil
	}
	if !c.cfg.RequiresLane() {
		next := &laneState{cfg: c.cfg.Lane, devices: c.cfg.Lane.Devices, state: admin.LaneOpening, why: errLaneOpening, sessions: c.cfg.Lane.Sessions}
		c.commits = append(c.commits, func() { s.commitLane(next) })
		return nil
	}
	next := openLane(&c.cfg.Lane)
	if next.state == admin.LaneUnavailable {
		return fmt.Errorf("lane: require: %w", next.why)
	}
	if next.lane != nil {
		c.undo = append(c.undo, func() { s.logLaneClosed(next.lane.Close()) })
	}
	c.commits = append(c.commits, func() { s.commitLane(next) })
	return nil
}

// openLane opens a lane, or says why there is none.
func openLane(cfg *config.Lane) *laneState {
	next := &laneState{cfg: *cfg, state: admin.LaneOn, devices: cfg.Devices, sessions: cfg.Sessions}
	if len(next.devices) == 0 {
		next.devices, next.why = laneDevices()
	} else {
		next.why = CheckLaneDevices(next.devices)
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
		next.state = admin.LaneBusy
	default:
		next.state = admin.LaneUnavailable
	}
	return next
}

// commitLane brings a lane into force, or notes why there is none. The server's mu is held.
func (s *Server) commitLane(next *laneState) {
	if next.lane != nil && s.laneOff {
		next.state, s.laneOff = admin.LaneOff, false
	}
	last := s.lane.Swap(next)
	switch {
	case next.lane != nil:
		message := "sessions may leave user space"
		if next.state == admin.LaneOff {
			message = "the lane is open, and switched off"
		}
		s.log.Info(message, "devices", next.devices, "sessions", next.sessions, "memory", next.lane.Memory(), "adopted", next.lane.Stats().Adopted)
		s.warnOfSize(next)
		s.adopted.adopt(next.lane, s.adoptedNames(), s.now)
		if next.state != admin.LaneOff {
			s.group.SetLane(next.lane, next.cfg.After)
		}
		return
	case next.state == admin.LaneOpening:
	case last == nil || last.state != next.state:
		s.log.Warn("sessions stay in user space: there is no lane", "error", next.why)
	}
	switch next.state {
	case admin.LaneOpening:
		s.openLaneAfter(0)
	case admin.LaneBusy:
		s.openLaneAfter(laneRetryEvery)
	}
}

// openLaneAfter opens the lane in force after a while, unless another one has taken its place by then. The server's mu is held.
func (s *Server) openLaneAfter(d time.Duration) {
	now := s.lane.Load()
	s.goTracked(func() {
		select {
		case <-s.ended.Done():
			return
		case <-time.After(d):
		}
		next := openLane(&now.cfg)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closing && s.lane.Load() == now {
			s.commitLane(next)
		} else if next.lane != nil {
			s.logLaneClosed(next.lane.Close())
		}
	})
}

// laneUse is whether the sessions of a listener may leave user space.
func laneUse(l *config.Listener) worker.LaneUse {
	switch {
	case l.Lane == config.LaneOff:
		return worker.LaneOff
	case l.Transparent:
		return worker.LaneTransparent
	}
	return worker.LaneOn
}

// settleLane has the sessions that have left user space come back whose listeners have them stay there now, and asks those
// of listeners that did not have it before.
func (s *Server) settleLane(c *change) {
	now := s.lane.Load()
	if now == nil || now.lane == nil {
		return
	}
	stay, leave := make(map[string]bool), make(map[string]bool)
	for name, l := range c.listeners {
		if l.old == nil {
			continue
		}
		if was, is := laneUse(l.old.cfg) == worker.LaneOn, laneUse(l.cfg) == worker.LaneOn; was != is {
			stay[name], leave[name] = was, is
		}
	}
	if len(stay) == 0 {
		return
	}
	s.group.AskLane(func(l *worker.Listening, _ worker.Binding) bool { return leave[l.Name] })
	s.goTracked(func() {
		back, reset := s.group.ReturnLane(func(l *worker.Listening, _ worker.Binding) bool { return stay[l.Name] })
		if back+reset > 0 {
			s.log.Info("sessions have come back to user space, for their listener has no lane any more", "sessions", back, "reset", reset)
		}
	})
}

// errLaneLeft is the cause of the end of sessions that have left user space, in a process that leaves them to the next one.
var errLaneLeft = errors.New("the process ends, and its session goes on without it")

// leavesLane is whether sessions that have left user space go on when this process ends.
func (s *Server) leavesLane() bool {
	now := s.lane.Load()
	return now != nil && now.lane != nil && now.cfg.Leave
}

// leaveLane has the sessions that have left user space end for this process, if they go on without it, and returns how many. From then on none leaves.
func (s *Server) leaveLane() int64 {
	s.mu.Lock()
	leaves := s.leavesLane()
	s.laneLeft.Store(leaves)
	s.mu.Unlock()
	if !leaves {
		return 0
	}
	return s.group.LeaveLane(errLaneLeft)
}

// closeLane closes the lane, after all sessions of the loops have ended.
func (s *Server) closeLane() {
	now := s.lane.Load()
	if now == nil || now.lane == nil {
		return
	}
	parted := s.adopted.part(s.now, now.cfg.Leave)
	if now.cfg.Leave {
		if n := now.lane.Stats().Lane; n > 0 {
			s.log.Info("sessions that have left user space go on without this process", "sessions", n, "pins", now.cfg.Pins)
		}
		s.logLaneClosed(now.lane.Leave())
	} else {
		s.logLaneClosed(now.lane.Close())
	}
	parted()
}

func (s *Server) logLaneClosed(err error) {
	if err != nil {
		s.log.Log(s.cut, slog.LevelWarn, "the lane was not closed in good order", "error", err)
	}
}

// laneStatus is the status of the lane; nil: none was asked for.
func (s *Server) laneStatus() *admin.Lane {
	now := s.lane.Load()
	if now == nil {
		return nil
	}
	st := &admin.Lane{State: now.state, Wanted: s.laneWanted.Load(), Devices: now.devices, Most: now.sessions, Stays: s.group.LaneStays()}
	if now.why != nil {
		st.Why = now.why.Error()
	}
	if now.lane == nil {
		return st
	}
	if wrong := s.pins.wrong.Load(); wrong != nil {
		st.PinsProblem = *wrong
	}
	n := now.lane.Stats()
	st.Active, st.Left, st.Ended, st.Reset = int64(n.Lane), int64(n.Left), int64(n.Ended), int64(n.Reset)
	st.Adopted, st.Failed, st.Returned, st.Gaps = int64(n.Adopted), int64(n.Failed), int64(n.Returned), int64(n.Gaps)
	if s.laneLeft.Load() {
		_, adopted := s.adopted.ending(true)
		st.Active, st.GoOn = adopted, st.Active
	}
	there, moved := s.adopted.count()
	st.AdoptedActive, st.AdoptedToEndpoint, st.AdoptedToClient = there, moved[0], moved[1]
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
