package page

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/admin"
	webpage "github.com/penstock/penstock/proxy/internal/page"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/rollback"
)

// A stage is an admin API whose load balancer has any number of endpoints and sessions, all of them simulated. Its clock
// does not go unless the test has it go.
type stage struct {
	admin.Balancer // nil: methods not simulated
	admin.Reloader

	endpoints, sessions int // of each; set before use
	at                  time.Time
	name                string // of the first endpoint; "" is one like the others
	denied              []admin.Denial
	change              func(*admin.Status) // of each status; nil: none

	mu   sync.Mutex
	turn int64 // of the simulation; each look takes one
	runs bool
}

var began = time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC)

// serve serves the API and the page, and returns the page's address.
func (s *stage) serve(t testing.TB) string {
	t.Helper()
	bind := "unix:" + filepath.Join(t.TempDir(), "s")
	s.prepare(t, admin.Access{Bind: bind})
	client, err := admin.NewClient(bind)
	must(t, err)
	return gate(t, client)
}

func (s *stage) prepare(t testing.TB, a admin.Access) {
	t.Helper()
	if s.Reloader == nil {
		s.Reloader = generations{}
	}
	server := admin.New(admin.Config{Balancer: s, Reloader: s.Reloader, Page: webpage.Handler(), Version: "v1.2.3", Stop: func() {}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), condition.Patience)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	move, err := server.Prepare(t.Context(), a)
	must(t, err)
	move.Commit()
}

// gate serves the API of a client to a browser, and returns the page's address.
func gate(t testing.TB, client *admin.Client) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	g := webpage.NewGate(l.Addr().String(), client)
	web := http.Server{Handler: g}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = web.Serve(l) // http.ErrServerClosed
	}()
	t.Cleanup(func() {
		web.Close()
		<-done
	})
	return g.URL()
}

func (s *stage) Status() admin.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs {
		s.turn++
	}
	st := admin.Status{
		State:       admin.Serving,
		Summary:     admin.Summary{Connections: admin.Connections{Accepted: 4_218_903 + 400*s.turn, Active: int64(s.sessions), Most: 200_000, Refused: 12}},
		TLSSessions: admin.TLSSessions{Most: 10_000}, Counters: map[string]int64{"failures": 318, "retries": 301},
	}
	st.Live = []admin.LiveChange{{What: "endpoint shop-00/app-0060: drain", By: "uid=1000", Since: s.at.Add(-2 * time.Minute)}}
	st.RefusedBy = map[string]int64{"rate": 9, "unroutable": 3}
	st.Fallbacks = map[string]int64{}
	for i := range 2 {
		st.Loops = append(st.Loops, admin.Loop{LoopCounts: tally.LoopCounts{Active: int64(s.sessions / 2), LagP99Us: int64(64 << i), LagMaxUs: 900}, Turns: 1000 * s.turn})
	}
	const each = 100
	for i := range (s.endpoints + each - 1) / each {
		u := admin.Upstream{Name: fmt.Sprintf("shop-%02d", i), Balance: "least_connections", Connects: admin.Connects{Buckets: make([]int64, 9)}}
		for j := range min(each, s.endpoints-i*each) {
			u.Endpoints = append(u.Endpoints, s.endpoint(i*each+j))
			e := &u.Endpoints[j]
			u.Active += e.Active
			add(&u.Bytes, &e.Bytes)
			u.Connects.Made += e.Connects.Made
			u.Connects.SumUs += e.Connects.SumUs
		}
		u.Connects.Buckets[0], u.Connects.Buckets[1] = u.Connects.Made*98/100, u.Connects.Made-u.Connects.Made*98/100
		add(&st.Bytes, &u.Bytes)
		st.Upstreams = append(st.Upstreams, u)
	}
	n := float64(s.turn)
	st.Listeners = []admin.Listener{{
		Name: "web", Addresses: []string{"0.0.0.0:443"}, State: admin.Serving, Bytes: st.Bytes,
		Connections: admin.Connections{Accepted: st.Connections.Accepted, Active: st.Connections.Active, Refused: 12},
		Limited:     map[string]float64{"client": 5120 + 31*n, "client_network": 2230 + 12*n, "endpoint": 1400 + 19*n, "endpoint_network": 210 + 2*n, "proxy": 36, "idle": 9100 + 33*n},
		Routes:      []admin.Route{{To: map[string]float64{"shop-00": 100}}},
	}}
	if s.change != nil {
		s.change(&st)
	}
	return st
}

func (s *stage) endpoint(i int) admin.Endpoint {
	n := s.turn * int64(1+i%7)
	active := int64(s.sessions / max(s.endpoints, 1))
	e := admin.Endpoint{
		Name: fmt.Sprintf("app-%04d", i), Address: fmt.Sprintf("10.20.%d.%d:8080", i/250, i%250+1), Zone: []string{"a", "b", "c"}[i%3],
		Weight: 1, State: admin.Up, Active: active, EndpointCounts: tally.EndpointCounts{Total: 40_000 + 13*int64(i%50) + n, Failures: int64(i % 4)},
		Connects: admin.Connects{Made: 40_000 + n, SumUs: 400*(40_000+n) + int64(i%9)*1000*n},
	}
	answer := int64(2300 + 100*(i%11)) // microseconds
	if i == 7 {
		answer = 312_000
	}
	e.Answers = &admin.Answers{Made: 40_000 + n, SumUs: answer * (40_000 + n)}
	e.Limited = map[string]float64{"client": 5000 + float64(3*n), "endpoint": 900 + float64(answer*n)/20_000}
	e.Bytes.ClientToEndpoint = admin.ByEngine{Spliced: 1_000_000*int64(i%40) + 9_000*n, Copied: 300_000 + 700*n}
	e.Bytes.EndpointToClient = admin.ByEngine{Spliced: 80_000_000 + 900_000*n, Copied: 900_000 + 11_000*n}
	if i == 0 && s.name != "" {
		e.Name = s.name
	}
	switch i % 97 {
	case 5:
		e.State, e.Why, e.Active = admin.Down, "connect: connection refused (3 checks in a row)", 0
	case 23:
		e.State, e.Why, e.Until = admin.Ejected, "5 of 5 sessions ended without an answer", s.at.Add(30*time.Second)
	case 41:
		e.LastFailure = &admin.Failure{Cause: "connect: no route to host", Time: s.at}
	case 60:
		e.State, e.Until = admin.Draining, s.at.Add(5*time.Minute)
		e.ByHand = []string{"drain by uid=1000 at 2026-03-14 09:58:12"}
	}
	return e
}

func (s *stage) Denied() []admin.Denial { return s.denied }

func add(sum, b *admin.Bytes) {
	sum.ClientToEndpoint.Spliced += b.ClientToEndpoint.Spliced
	sum.ClientToEndpoint.Copied += b.ClientToEndpoint.Copied
	sum.EndpointToClient.Spliced += b.EndpointToClient.Spliced
	sum.EndpointToClient.Copied += b.EndpointToClient.Copied
}

// Sessions implements [admin.Balancer], as far as the page asks: the sessions of an endpoint, or in a state, with the most
// bytes first.
func (s *stage) Sessions(_ context.Context, q admin.SessionQuery, o admin.SessionOrder) (admin.SessionList, error) {
	var list []admin.Session
	for i := range s.sessions {
		one := s.session(i)
		if q.Endpoint != "" && q.Endpoint != one.Name || q.State != "" && q.State != one.State {
			continue
		}
		list = append(list, one)
	}
	slices.SortStableFunc(list, func(a, b admin.Session) int {
		return cmp.Compare(b.Bytes.EndpointToClient.All(), a.Bytes.EndpointToClient.All())
	})
	top := min(cmp.Or(o.Top, len(list)), len(list))
	return admin.SessionList{Sessions: slices.Values(list[:top]), More: func() bool { return len(list) > top }}, nil
}

func (s *stage) session(i int) admin.Session {
	idle := int64(i%300) * 37_000
	return admin.Session{
		Client: fmt.Sprintf("198.51.%d.%d:%d", i/200%100, i%200+1, 20_000+i%40_000), Listener: "web", Upstream: "shop-00",
		Endpoint: fmt.Sprintf("10.20.0.%d:8080", i%100+1), Name: fmt.Sprintf("app-%04d", i%100),
		State: []string{"joined", "joined", "joined", "client-ended", "waiting"}[i%5], AgeUs: int64(i%5000) * 1_730_000, IdleUs: &idle,
		Bytes: admin.Bytes{ClientToEndpoint: admin.ByEngine{Copied: int64(i%100) * 731}, EndpointToClient: admin.ByEngine{Spliced: int64(i%977) * 90_210}},
	}
}

// generations are those of a process with a reload behind it.
type generations struct{ admin.Reloader }

func (generations) Generations() rollback.Status {
	return rollback.Status{Current: 3, Previous: 2, History: []rollback.Record{
		{Generation: 3, State: rollback.Current, At: began.Add(40 * time.Minute), By: "uid=1000", Changes: []string{"listener web changed: timeouts.idle: 1h → 10m", "endpoint shop/app-0004 (10.20.0.4:8080) added", "endpoint shop/app-0005 (10.20.0.5:8080) added", "endpoint shop/app-0006 (10.20.0.6:8080) added"}},
		{Generation: 2, State: rollback.Previous, At: began.Add(10 * time.Minute), By: "SIGHUP", Changes: []string{"upstream shop changed: balance: round_robin → least_connections"}},
		{Generation: 1, State: rollback.Replaced, At: began, By: "start", Changes: []string{}},
	}}
}
