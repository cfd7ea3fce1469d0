package relay

import "net"

// Hooks are functions that a [Relay] calls at events of its sessions on goroutines, those of Join and
// [Relay.NewSession]. Any of them may be nil, and costs nothing then. They are called on the session's
// goroutines, of several sessions at a time, and must not wait. (The owner of a [Driven] starts it, and
// is notified of its end; [DriverStats] has its changes of engine. A copy has no hooks.)
type Hooks struct {
	// Started is called before the first byte is moved.
	Started func(s *Session)
	// EngineChanged is called when a direction, that of the bytes of source, changes how it moves
	// them: EngineSplice or EngineCopy. The reason is in the counters of [Session.Result] if it is a
	// fallback, and else the size of its reads.
	EngineChanged func(s *Session, source Side, now Engine)
	// Ended is called with the results of Run, when both connections are closed.
	Ended func(s *Session, res Result, err error)
}

// Conns returns the connections that the session joins. They are its own: only their addresses and
// what wrappers of the caller's have besides may be asked for.
func (s *Session) Conns() (a, b net.Conn) { return s.a.conn, s.b.conn }

// switchTo changes how the next reads go.
func (d *direction) switchTo(m mode) {
	if d.mode == m {
		return
	}
	d.mode = m
	if changed := d.env().engineChanged; changed != nil {
		changed(d)
	}
}

// engineChanged calls the hook.
func (s *Session) engineChanged(d *direction) {
	source, now := SideA, EngineCopy
	if d == &s.ba {
		source = SideB
	}
	if d.mode == splicing {
		now = EngineSplice
	}
	s.r.cfg.Hooks.EngineChanged(s, source, now)
}
