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

// Serve has a connection served as if it had been accepted; release is called at its end.
func (s *Server) Serve(conn net.Conn, release func()) { s.conns.put(conn, release) }

// MakeRoom has who waits for longest leave, if there is no room.
func (s *Server) MakeRoom() { s.conns.makeRoom() }

// Guests is how many connections there are.
func (s *Server) Guests() int {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	return len(s.conns.guests)
}

// Answering is how many of them have a request that is being carried out.
func (s *Server) Answering() (n int) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for _, c := range s.conns.guests {
		if c.busy {
			n++
		}
	}
	return n
}

// AnswersTheGone reports whether a request is answered on a connection that had to leave.
func AnswersTheGone() bool {
	f := newFunnel(1)
	f.grace = 0
	conn, _ := net.Pipe()
	c := &guest{Conn: conn, funnel: f, release: func() {}}
	f.guests = append(f.guests, c)
	f.makeRoom()
	return c.begin()
}

// Handler is what answers requests.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Paths are those of all requests.
func Paths() (list []string) {
	for _, q := range requests {
		list = append(list, q.path)
	}
	return list
}

// Hurry has a client wait for quick answers for so long, and read so many bytes at most.
func (c *Client) Hurry(quick time.Duration, most int64) { c.quick, c.most = quick, most }

// MayRead reports whether a user may read what a process of another one may.
func MayRead(uid uint32, known bool, process int, whole bool) bool {
	return user{uid: uid, known: known}.mayRead(process, whole)
}
