package server

import (
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
)

// An adoptedLine is the line of an adopted session that has ended, and the clients beside it then. However many end at once, each waits here for its place in the
// session log: there are as many of them as sessions in the lane at most.
type adoptedLine struct {
	of     *adoptedSession
	counts record.Counts
}

const (
	// adoptedLinesLook is how often lines are written as long as some wait.
	adoptedLinesLook = 10 * time.Millisecond
	// adoptedLinesWait is for how long the end of the process waits for room for the last ones.
	adoptedLinesWait = 5 * time.Second
)

// watchAdopted looks after adopted sessions until stop, and logs their ends. It rests while there are none.
func (s *Server) watchAdopted(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-s.adopted.come:
		}
		if !s.watchThese(stop) {
			return
		}
	}
}

// watchThese looks after adopted sessions until none is left, and each that has ended has its line; false: until stop.
func (s *Server) watchThese(stop <-chan struct{}) bool {
	tick, lines := time.NewTicker(adoptedLook), time.NewTicker(adoptedLook)
	defer tick.Stop()
	defer lines.Stop()
	for left := 1; ; {
		select {
		case <-stop:
			return false
		case <-tick.C:
			left = s.partAdopted()
		case <-lines.C:
		}
		every := adoptedLook
		if s.writeAdoptedLines() {
			every = adoptedLinesLook
		} else if left == 0 {
			return true
		}
		lines.Reset(every)
	}
}

// partAdopted gives back the places of sessions that have ended, which their lines count, and returns how many sessions are left.
func (s *Server) partAdopted() int {
	ended, left := s.adopted.look()
	for _, one := range ended {
		s.adopted.lines = append(s.adopted.lines, adoptedLine{one, s.sessionLog.clientsOf(one.counts, one.to)})
		for _, release := range slices.Backward(one.release) { // the place of the process is the last: a client that gets it finds the others
			release()
		}
	}
	return left
}

// writeAdoptedLines writes lines that wait, as far as the session log has room, and reports whether some are left.
func (s *Server) writeAdoptedLines() (left bool) {
	a, log := &s.adopted, s.sessionLog.sessions.Load()
	n := 0
	for n < len(a.lines) && (log == nil || log.Room()) {
		s.logAdopted(&a.lines[n])
		n++
	}
	clear(a.lines[:n])
	if a.lines = a.lines[n:]; len(a.lines) == 0 {
		a.lines = nil
	}
	return a.lines != nil
}

// endAdoptedLines writes those of the sessions that have ended by the end of the process, after the lane was closed.
func (s *Server) endAdoptedLines() {
	s.partAdopted()
	for until := time.Now().Add(adoptedLinesWait); s.writeAdoptedLines() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	for i := range s.adopted.lines { // those that find no place are counted
		s.logAdopted(&s.adopted.lines[i])
	}
	s.adopted.lines = nil
}
