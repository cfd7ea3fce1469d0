package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/server"
)

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
			if err != nil {
				b.Fatal(err)
			}
			defer response.Body.Close()
			n, err := io.Copy(io.Discard, response.Body)
			if err != nil {
				b.Fatal(err)
			}
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
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
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
