package admin

import (
	"net"
	"net/http"
	"time"
)

// SetGrace replaces how long a connection may take for its request.
func (s *Server) SetGrace(d time.Duration) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	s.conns.grace = d
}

// Serve serves a connection as if it had been accepted; release is called at its end.
func (s *Server) Serve(conn net.Conn, release func()) { s.conns.put(conn, release) }

// MakeRoom closes the connection that waits longest, if there is no room.
func (s *Server) MakeRoom() { s.conns.makeRoom() }

// Guests returns the number of connections.
func (s *Server) Guests() int {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	return len(s.conns.tracked)
}

// Answering returns the number of connections with a request being performed.
func (s *Server) Answering() (n int) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for _, c := range s.conns.tracked {
		if c.busy {
			n++
		}
	}
	return n
}

// AnswersTheGone reports whether a request is answered on a connection that was closed to make
// room.
func AnswersTheGone() bool {
	f := newLimitListener(1)
	f.grace = 0
	conn, _ := net.Pipe()
	c := &trackedConn{Conn: conn, listener: f, release: func() {}}
	f.tracked = append(f.tracked, c)
	f.makeRoom()
	return c.begin()
}

// Handler is the HTTP handler of the server.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Paths are those of all requests.
func Paths() (list []string) {
	for _, q := range requests {
		list = append(list, q.path)
	}
	return list
}

// Hurry replaces the timeout of quick responses and the largest response size.
func (c *Client) Hurry(quick time.Duration, most int64) { c.quick, c.most = quick, most }

// MayRead reports whether a user may read the files that a process of another user may read.
func MayRead(uid uint32, known bool, process int, whole bool) bool {
	return user{uid: uid, known: known}.mayRead(process, whole)
}

// LongResponses returns how many long responses are made or sent.
func (s *Server) LongResponses() int { return len(s.conns.reads) }
