package router

// Sessions that a process before this one has had go on in the kernel. No client of theirs is served here, but they take the places of
// sessions: a limit that did not know them would have an endpoint get more than it.

// Adopt counts such a session at its endpoint and its upstream, also beyond a limit. The caller calls release once, at its end.
func (e *Endpoint) Adopt() (release func()) {
	e.upstream.sessions.Add(1)
	e.Add()
	return func() {
		e.upstream.sessions.Add(-1)
		e.Release()
		e.upstream.Room()
	}
}

// Adopt counts such a session at its listener, also beyond a limit. The caller calls release once, at its end; wake is called then if clients
// may be accepted again.
func (state *ListenerState) Adopt(wake func()) (release func()) {
	state.Connections.Add()
	return func() {
		if state.Connections.Give() {
			state.queue.next()
			wake()
		}
	}
}
