package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/testutil/collector"
	"github.com/penstock/penstock/proxy/server"
)

// sampled returns a sample.
func (r *rig) sampled() *metrics.Sample {
	m := new(metrics.Sample)
	r.Metrics(m)
	return m
}

// TestMetricsOfSessions: a session is counted for its listener, its upstream and its endpoint alike, with the
// reason of its end, and its bytes while it runs.
func TestMetricsOfSessions(t *testing.T) {
	t.Parallel()

	r := forwarding(t, named(t, "a"), nil)
	c := client(t, r.At("l"))
	line(t, c)
	echoes(t, c, "hello\n")
	m := r.sampled()
	l, u, e := &m.Listeners[0], &m.Upstreams[0], &m.Endpoints[0]
	if l.Connections.Accepted != 1 || l.Connections.Active != 1 || u.Active != 1 || e.Active != 1 || e.Total != 1 || l.State != admin.Serving || e.State != admin.Up || u.States[admin.Up] != 1 {
		t.Errorf("while it runs: %+v %+v %+v", l, u, e)
	}
	for name, bytes := range map[string]metrics.Bytes{"listener": l.Bytes, "upstream": u.Bytes, "endpoint": e.Bytes} {
		if bytes.ClientToEndpoint.All() != 6 || bytes.EndpointToClient.All() != 8 {
			t.Errorf("%s: %+v", name, bytes)
		}
	}
	for name, counts := range map[string]tally.Counts{"listener": l.Tally, "upstream": u.Tally, "endpoint": e.Tally} {
		if counts.Connects.Count() != 1 || counts.Connects.Sum <= 0 || counts.Sessions.Count() != 0 {
			t.Errorf("%s: %+v", name, counts)
		}
	}
	c.Close()
	r.Until("the session has ended", func() bool { return r.Summary().Connections.Active == 0 })
	m = r.sampled()
	for name, counts := range map[string]tally.Counts{"listener": m.Listeners[0].Tally, "upstream": m.Upstreams[0].Tally, "endpoint": m.Endpoints[0].Tally} {
		if counts.Sessions.Count() != 1 || counts.Sessions.Sum <= 0 || counts.Closes[tally.ClientClosed] != 1 {
			t.Errorf("%s: %+v", name, counts)
		}
	}
	if queues := m.Listeners[0].Queues; len(queues) != 1 || !queues[0].Known {
		t.Errorf("queues: %+v", queues)
	}
}

// TestMetricsOfEnds: the reason of an end names the side that has begun it.
func TestMetricsOfEnds(t *testing.T) {
	t.Parallel()

	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }
	closes := sockets.Server(t, func(c net.Conn) { fmt.Fprintln(c, "hello") })
	resets := sockets.Server(t, func(c net.Conn) {
		fmt.Fprintln(c, "hello")
		_, _ = c.Read(make([]byte, 1))
		reset(c)
	})
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: closes, bind: "127.0.0.1:0", upstream: closes}
  - {name: resets, bind: "127.0.0.1:0", upstream: resets}
  - {name: idle, bind: "127.0.0.1:0", upstream: stays, timeouts: {idle: 100ms}}
  - {name: lives, bind: "127.0.0.1:0", upstream: stays, timeouts: {lifetime: 100ms}}
upstreams:
  - {name: closes, endpoints: [%q], health_check: off}
  - {name: resets, endpoints: [%q], health_check: off}
  - {name: stays, endpoints: [%q], health_check: off}`, closes, resets, named(t, "stays")))
	for _, one := range []struct {
		listener string
		want     tally.Close
		act      func(c *net.TCPConn)
	}{
		{"closes", tally.EndpointClosed, func(*net.TCPConn) {}},
		{"resets", tally.EndpointReset, func(c *net.TCPConn) { fmt.Fprint(c, "x") }},
		{"lives", tally.Lifetime, func(*net.TCPConn) {}},
		{"idle", tally.Idle, func(*net.TCPConn) {}},
	} {
		c := client(t, r.At(one.listener))
		_, _ = sockets.ReadLine(c) // which an end by a time limit may overtake
		one.act(c)
		_, _ = io.Copy(io.Discard, c)
		c.Close()
		r.Until(one.listener+" has the end counted", func() bool { return closesOf(r, one.listener)[one.want] == 1 })
	}
	c := client(t, r.At("closes"))
	line(t, c)
	r.Until("the endpoint's end of file is there", func() bool { _, err := c.Read(make([]byte, 1)); return err == io.EOF })
	c.Close()
	r.Until("it is counted", func() bool { return closesOf(r, "closes")[tally.EndpointClosed] == 2 })
	long := client(t, r.At("lives"))
	_, _ = sockets.ReadLine(long)
	reset(long)
	long.Close()
	r.Until("the client's reset is counted", func() bool {
		n := closesOf(r, "lives")
		return n[tally.ClientReset]+n[tally.Lifetime] == 2 && n[tally.Other] == 0
	})
}

func closesOf(r *rig, listener string) (n [tally.Closes]int64) {
	for _, l := range r.sampled().Listeners {
		if l.Name == listener {
			return l.Tally.Closes
		}
	}
	return n
}

// TestMetricsOfStates: transitions, ejections, breakers, and refusals, which are there before they occur.
func TestMetricsOfStates(t *testing.T) {
	t.Parallel()

	bad := sockets.Server(t, func(net.Conn) {})
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, limits: {connections: 5}}]
upstreams:
  - name: u
    endpoints: [%q, {address: %q, name: gone}]
    health_check: {interval: 50ms, fast_interval: 50ms, fall: 1}
    retry: {attempts: 0}`, bad, sockets.Refusing(t)))
	r.Until("the check has failed", func() bool { return r.sampled().Upstreams[0].States[admin.Down] == 1 })
	m := r.sampled()
	gone := m.Endpoints[1]
	if gone.Name != "gone" || gone.Transitions != 1 || gone.State != admin.Down || m.Endpoints[0].Transitions != 0 {
		t.Errorf("%+v", m.Endpoints)
	}
	if !slices.Contains(m.Listeners[0].Refused, tally.Count{Of: "address"}) || m.Listeners[0].Connections.Most != 5 {
		t.Errorf("%+v", m.Listeners[0])
	}
	if !slices.Contains(m.Upstreams[0].Refused, tally.Count{Of: "full"}) {
		t.Errorf("%+v", m.Upstreams[0])
	}
	if n, ok := m.Process.EveryRefusal["upstream"]; !ok || n != 0 {
		t.Errorf("%+v", m.Process)
	}
	must(t, r.DrainEndpoint("u", "gone", true, "test"))
	if got := r.sampled().Endpoints[1].State; got != admin.Draining {
		t.Errorf("state %s", got)
	}
}

// TestMetricsOfReports: lines of the session log and spans are counted, those that were dropped with their reason.
func TestMetricsOfReports(t *testing.T) {
	t.Parallel()

	to := collector.Start(t, "grpc", nil)
	r := start(t, "session_log: {to: sessions.log, per_second: 1}\n"+tracedConfig(to, sockets.Server(t, sockets.Echo), ", max_queue_size: 1, max_export_batch_size: 1"))
	if m := r.sampled(); m.Process.SessionLog.Lines != 0 || m.Process.Traces.Sampled != 0 {
		t.Errorf("before: %+v, %+v", m.Process.SessionLog, m.Process.Traces)
	}
	talked(t, r.At("a"), 20)
	r.Until("lines and spans are counted", func() bool {
		l, s := r.sampled().Process.SessionLog, r.sampled().Process.Traces
		return l.Lines+l.Dropped["rate"] == 20 && s.Exported+s.Dropped["queue_full"] == 20
	})
	if l := r.sampled().Process.SessionLog; l.Dropped["rate"] == 0 || l.Lines == 0 {
		t.Errorf("%+v", l)
	}
}

// BenchmarkScrape scrapes 1,000 listeners, 1,000 upstreams and 10,000 endpoints: in memory, and over HTTP by
// a client that reads everything. cpu-us is the CPU time of the whole process, the client's included, less that of the process when it is idle; overruns is the turns of loops that used a millisecond of CPU time
// meanwhile.
func BenchmarkScrape(b *testing.B) {
	cfg := fleet{listeners: 1000, each: 10, idle: 1000, at: func(int) int { return 1000 }}.config(b)
	s, stop := servingWith(b, cfg, server.Options{Loops: 2, MaxConnections: 5000, TurnCPU: true})
	defer stop()
	handler := metrics.NewHandler(s.Metrics, metrics.DefaultLimits)
	web := httptest.NewServer(handler)
	defer web.Close()
	lines := 0
	const rest = 2 * time.Second
	idle := cpu(b)
	time.Sleep(rest)
	idle = cpu(b) - idle // of the process by itself
	for name, scrape := range map[string]func() int64{
		"memory": func() int64 {
			w := &sink{header: make(http.Header)}
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			lines = w.lines
			return w.n
		},
		"http": func() int64 {
			response, err := web.Client().Get(web.URL)
			must(b, err)
			defer response.Body.Close()
			n, err := io.Copy(io.Discard, response.Body)
			must(b, err)
			return n
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var read int64
			var took []time.Duration
			before, used := overruns(s), cpu(b)
			for b.Loop() {
				began := time.Now()
				read = scrape()
				took = append(took, time.Since(began))
			}
			byItself := time.Duration(float64(idle) * float64(b.Elapsed()) / float64(rest))
			b.ReportMetric(float64((cpu(b)-used-byItself).Microseconds())/float64(b.N), "cpu-us/op")
			slices.Sort(took)
			b.ReportMetric(float64(read), "bytes")
			b.ReportMetric(float64(lines), "lines")
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-us")
			b.ReportMetric(float64(overruns(s)-before), "overruns")
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapInuse)/(1<<20), "heap-MiB")
		})
	}
}

// BenchmarkScrapeSessions scrapes while 2,000 sessions run, of which loops add up the bytes.
func BenchmarkScrapeSessions(b *testing.B) {
	const sessions = 2000
	endpoint := sockets.Server(b, sockets.Echo)
	cfg := configOf(b, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, endpoint))
	s, stop := servingWith(b, cfg, server.Options{Loops: 2, MaxConnections: sessions, TurnCPU: true})
	defer stop()
	defer s.Cut()
	for range sessions {
		c := sockets.Dial(b, s.Status().Listeners[0].Addresses[0])
		if _, err := c.Write([]byte("hello\n")); err != nil {
			b.Fatal(err)
		}
		if _, err := sockets.ReadLine(c); err != nil {
			b.Fatal(err)
		}
	}
	handler := metrics.NewHandler(s.Metrics, metrics.DefaultLimits)
	before := overruns(s)
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(&sink{header: make(http.Header)}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}
	b.ReportMetric(float64(overruns(s)-before), "overruns")
}

// cpu returns the CPU time that the process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func overruns(s *server.Server) (n int64) {
	for _, l := range s.Summary().Loops {
		n += l.Overruns
	}
	return n
}

// A sink is a response that is dropped.
type sink struct {
	header http.Header
	n      int64
	lines  int
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(int) {}

func (s *sink) Write(p []byte) (int, error) {
	s.n += int64(len(p))
	s.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}
