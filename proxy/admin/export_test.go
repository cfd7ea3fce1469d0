package admin

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"
)

// SetGrace replaces how long a connection may take for its request.
func (s *Server) SetGrace(d time.Duration) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	s.conns.grace = d
}

// SetSilent replaces how long a client may send nothing while all places are taken.
func (s *Server) SetSilent(d time.Duration) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	s.conns.silent = d
}

// Serve serves a connection as if it had been accepted; release is called at its end.
func (s *Server) Serve(conn net.Conn, release func()) {
	s.conns.put(conn, &conditions{change: digest("0123456789abcdef")}, release)
}

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
	c := &trackedConn{Conn: conn, listener: f, conditions: new(conditions), release: func() {}}
	f.tracked = append(f.tracked, c)
	f.makeRoom()
	return c.begin()
}

// KeepsPlace reports whether a client is not closed to make room that has sent bytes, of which the server has read all,
// and looks at them for longer than a silent client may take.
func KeepsPlace(sent string) bool {
	f := newLimitListener(1)
	f.grace = time.Hour
	client, conn := net.Pipe()
	defer client.Close()
	defer conn.Close()
	read := make(chan struct{})
	c := &trackedConn{Conn: &noted{conn, read}, listener: f, conditions: new(conditions), release: func() {}, since: time.Now().Add(-time.Minute)}
	f.tracked = append(f.tracked, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Read(make([]byte, 8))
	}()
	<-read
	if sent != "" {
		_, _ = client.Write([]byte(sent))
		<-done
	}
	f.makeRoom()
	return !c.gone
}

// noted is a connection of which the first Read is noted.
type noted struct {
	net.Conn
	read chan struct{}
}

func (n *noted) Read(p []byte) (int, error) {
	close(n.read)
	return n.Conn.Read(p)
}

// Handler is the HTTP handler of the server, for requests of root over a unix socket.
func (s *Server) Handler() http.Handler {
	c := &trackedConn{listener: s.conns, unix: true, user: user{known: true, pid: 7}, conditions: new(conditions)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.local(http.HandlerFunc(s.respond)).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), trackedConnKey{}, c)))
	})
}

// Posts are the paths of requests that change something, or open files.
func Posts() (list []string) {
	for _, q := range requests {
		if q.method == http.MethodPost {
			list = append(list, q.path)
		}
	}
	return list
}

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

// InGroup reports whether a user with a group is one of a group.
func InGroup(known bool, gid, group uint32, whole bool) bool {
	return user{known: known, gid: gid}.among(group, whole)
}

// Reach has a client connect to another address than that of its requests.
func (c *Client) Reach(address string) {
	c.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
}

// Document is the OpenAPI document, as the server answers it.
func Document() []byte {
	var text bytes.Buffer
	if err := newEncoder(&text, "").Encode(makeDocument()); err != nil {
		panic(err)
	}
	return text.Bytes()
}

// Undescribed are the requests without a description, the descriptions without a request, and the parameters
// without a schema.
func Undescribed() (list []string) {
	for _, q := range requests {
		if descriptions[q.path] == nil {
			list = append(list, q.path)
		}
	}
	for path := range descriptions {
		if !slices.ContainsFunc(requests, func(q request) bool { return q.path == path }) {
			list = append(list, path)
		}
	}
	for name := range parameters {
		if parameterSchemas[name] == nil {
			list = append(list, name)
		}
	}
	return list
}

// Remote is the HTTP handler of the server, for requests over TCP where there are such tokens.
func (s *Server) Remote(read, change string) http.Handler {
	c := &trackedConn{listener: s.conns, conditions: &conditions{read: digest(read), change: digest(change)}}
	s.conns.inForce.Store(c.conditions)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(context.WithValue(r.Context(), trackedConnKey{}, c), http.LocalAddrContextKey, net.Addr(new(net.TCPAddr)))
		s.local(http.HandlerFunc(s.respond)).ServeHTTP(w, r.WithContext(ctx))
	})
}

// ExpectsLong reports whether the next status is expected to be a long response.
func (s *Server) ExpectsLong() bool { return s.conns.long.Load() }

// NewEvents returns a function that makes the event of a status: of the changes, or of everything for the first one.
func NewEvents() func(*Status, time.Time) []byte {
	s := newScene()
	return s.update
}

// EachAnswer is a value of the type of each answer in JSON.
func EachAnswer() []any {
	list := []any{failure{}}
	for _, d := range descriptions {
		if d.answer != nil {
			list = append(list, d.answer)
		}
	}
	return list
}

// Encode is an answer as it is sent.
func Encode(v any) []byte {
	w := httptest.NewRecorder()
	write(w, http.StatusOK, v)
	return w.Body.Bytes()
}
