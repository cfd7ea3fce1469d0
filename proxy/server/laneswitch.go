package server

import (
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// SwitchLane implements [admin.LaneSwitcher].
func (s *Server) SwitchLane(on bool, by string) (admin.LaneChanged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.laneToCome(); now != nil {
		s.laneOff = !on
		s.log.Info("whether sessions leave user space was changed, before there is a lane", "on", on, "by", by)
		return admin.LaneChanged{State: s.stateToCome(now)}, nil
	}
	now, err := s.laneInForce()
	if err != nil {
		return admin.LaneChanged{}, err
	}
	next := *now
	next.state = admin.LaneOff
	if on {
		next.state = admin.LaneOn
		s.group.SetLane(next.lane, next.cfg.After)
	} else {
		s.group.SetLane(nil, 0)
	}
	if next.state != now.state {
		s.lane.Store(&next)
		s.log.Info("whether sessions leave user space was changed", "lane", next.state, "by", by)
	}
	return admin.LaneChanged{State: next.state}, nil
}

// ReturnLane implements [admin.LaneSwitcher].
func (s *Server) ReturnLane(by string) (admin.LaneChanged, error) {
	s.mu.Lock()
	if now := s.laneToCome(); now != nil { // none has left
		defer s.mu.Unlock()
		return admin.LaneChanged{State: s.stateToCome(now)}, nil
	}
	now, err := s.laneInForce()
	s.mu.Unlock()
	if err != nil {
		return admin.LaneChanged{}, err
	}
	back, reset := s.group.ReturnLane(func(*worker.Listening, worker.Binding) bool { return true })
	reset += int(s.adopted.cut(func(*adoptedSession) bool { return true }, record.ErrOperator))
	s.log.Warn("sessions have come back to user space", "sessions", back, "reset", reset, "by", by)
	return admin.LaneChanged{State: now.state, Returned: back, Reset: reset}, nil
}

// FlushLane implements [admin.LaneSwitcher]. Sessions of a process before this one are reset as well.
func (s *Server) FlushLane(by string) (admin.LaneChanged, error) {
	s.mu.Lock()
	now, err := s.laneInForce()
	s.mu.Unlock()
	if err != nil {
		return admin.LaneChanged{}, err
	}
	n := s.group.CutLane(func(*worker.Listening, worker.Binding) bool { return true }, record.ErrOperator)
	n += int(s.adopted.cut(func(*adoptedSession) bool { return true }, record.ErrOperator))
	s.log.Warn("sessions that had left user space are reset", "sessions", n, "by", by)
	return admin.LaneChanged{State: now.state, Reset: n}, nil
}

// laneToCome returns the state of a lane that is being opened or will be, for another process has it; nil: there is none. The server's mu is held.
func (s *Server) laneToCome() *laneState {
	if now := s.lane.Load(); now != nil && now.lane == nil && (now.state == admin.LaneOpening || now.state == admin.LaneBusy) {
		return now
	}
	return nil
}

// stateToCome is off for a lane that is to begin switched off. The server's mu is held.
func (s *Server) stateToCome(now *laneState) string {
	if s.laneOff {
		return admin.LaneOff
	}
	return now.state
}

// laneInForce returns the lane, or why there is none.
func (s *Server) laneInForce() (*laneState, error) {
	switch now := s.lane.Load(); {
	case s.laneLeft.Load():
		return nil, fmt.Errorf("%w: sessions that have left user space (%d) go on without this process: nothing is changed", admin.ErrLeft, now.lane.Stats().Lane)
	case now == nil:
		return nil, fmt.Errorf("%w: no listener has lane: auto or require", admin.ErrNotFound)
	case now.lane == nil:
		return nil, fmt.Errorf("%w: there is no lane: %w", admin.ErrNotFound, now.why)
	default:
		return now, nil
	}
}
