package worker

// A listenerRef is what a conn has to do with others: while it is being connected, its
// dialing; from then on only how it is served.
type listenerRef struct {
	serving *serving
	pending *pendingClient // nil for a client that is joined
	kept    *kept          // of the record of one that is joined; nil: none is kept
}

// A serving is how the clients that came in at one socket while it had one Service are
// served by one worker.
type serving struct {
	listenerRef
	worker       *worker
	socket       *Listening
	service      *Service
	lateSockopts *lateSockopts
	searches     []Search // that are not used
	clients      int
}

// servingOf returns how a client is to be served.
func (w *worker) servingOf(accepted client) *serving {
	a := accepted.socket.parts[w.index]
	if s := a.serving; s != nil {
		if s.service == accepted.service {
			return s
		}
		for _, s := range a.older {
			if s.service == accepted.service {
				return s
			}
		}
	}
	s := &serving{worker: w, socket: accepted.socket, service: accepted.service, lateSockopts: w.lateSockoptsOf(accepted.service.Options)}
	s.listenerRef.serving = s
	older := s // unless it is the present one
	if accepted.service == accepted.socket.service.Load() {
		a.serving, older = s, a.serving
	}
	if older == s || older != nil && older.clients > 0 { // one without clients is forgotten
		a.older = append(a.older, older)
	}
	return s
}

// leave is the end of one of its clients.
func (s *serving) leave(w *worker) {
	s.clients--
	if s.clients > 0 {
		return
	}
	a := s.socket.parts[w.index]
	for i, o := range a.older {
		if o == s {
			last := len(a.older) - 1
			a.older[i], a.older[last] = a.older[last], nil
			a.older = a.older[:last]
			return
		}
	}
}

func (s *serving) takeSearch() Search {
	last := len(s.searches) - 1
	if last < 0 {
		return s.service.NewSearch()
	}
	search := s.searches[last]
	s.searches = s.searches[:last]
	return search
}

func (s *serving) giveSearch(search Search) {
	search.Close()
	if len(s.searches) < maxSpare {
		s.searches = append(s.searches, search)
	}
}
