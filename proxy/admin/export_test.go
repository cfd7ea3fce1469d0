package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/internal/admission"
)

// SampleNothing has profiles be empty.
func (s *Server) SampleNothing() {
	s.sample = func(io.Writer) (func(), error) { return func() {}, nil }
}

func (s *Server) Conns() *admission.Limiter { return s.place.Conns }

// Serve serves a connection as if it had been accepted; release is called at its end. It is one of TCP, or of a user.
func (s *Server) Serve(conn net.Conn, rank admission.Rank, release func()) {
	s.inForce.Store(&conditions{change: digest("0123456789abcdef"), read: digest("fedcba9876543210")})
	g := &guest{server: s}
	if rank == admission.Own {
		g.unix, g.user = true, user{known: true, pid: 7}
	}
	s.place.Conns.Put(conn, nil, g.mayHave(), g, release)
}

func (s *Server) Guests() int {
	n, _ := s.place.Conns.Counts()
	return n
}

// Handler is the HTTP handler of the server, for requests of root over a unix socket.
func (s *Server) Handler() http.Handler {
	return s.handlerFor(&guest{server: s, unix: true, user: user{known: true, pid: 7}}, nil)
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
	w := httptest.NewRecorder()
	encode(w, makeDocument())
	return w.Body.Bytes()
}

// Undescribed are the requests without a description, and the descriptions without a request.
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
	return list
}

// Remote is the HTTP handler of the server, for requests over TCP where there are such tokens.
func (s *Server) Remote(read, change string) http.Handler {
	c := &conditions{read: digest(read), change: digest(change)}
	s.inForce.Store(c)
	return s.handlerFor(&guest{server: s}, new(net.TCPAddr))
}

// handlerFor is the HTTP handler of the server for the requests of a client, one after the other.
func (s *Server) handlerFor(g *guest, at net.Addr) http.Handler {
	l := admission.New(8, time.Hour)
	conn, _ := net.Pipe()
	go l.Put(conn, nil, admission.Nobody, g, func() {})
	c, _ := l.Accept()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(admission.WithConn(r.Context(), c), http.LocalAddrContextKey, at)
		admission.Handler(s.local(http.HandlerFunc(s.respond))).ServeHTTP(w, r.WithContext(ctx))
	})
}

// ExpectsLong reports whether the next status is expected to be a long response.
func (s *Server) ExpectsLong() bool { return s.long.Load() }

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

func Encode(v any) []byte {
	w := httptest.NewRecorder()
	write(w, http.StatusOK, v)
	return w.Body.Bytes()
}
