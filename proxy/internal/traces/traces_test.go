package traces_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/testutil/collector"
	"github.com/penstock/penstock/proxy/internal/traces"
)

// TestManyLoops: sessions that end at the same time on many loops.
func TestManyLoops(t *testing.T) {
	to := collector.Start(t, traces.GRPC, nil)
	r := export(t, to, traces.GRPC, func(s *traces.Settings) { s.Queue = 500 })
	ids := record.NewIDs()
	var loops sync.WaitGroup
	for loop := range 8 {
		loops.Go(func() {
			var one record.Record
			for i := range 2000 {
				id := ids.Of(uint64(i*8 + loop))
				fill(&one, id)
				one.Sampler = r.Sample(id)
				r.Add(&one)
			}
		})
	}
	loops.Wait()
	if s := r.settled(); s.Sampled != 16000 || s.Unconfirmed != 0 {
		t.Errorf("%+v", s)
	}
}

// TestSlow: with a slow collector the others are dropped, and counted, and nothing waits.
func TestSlow(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		to := collector.Start(t, protocol, nil)
		to.Answer(func(int, int) collector.Answer { return collector.Answer{Delay: 20 * time.Millisecond} })
		r := export(t, to, protocol, func(s *traces.Settings) { s.Queue, s.Batch = 200, 50 })
		r.sessions(5000)
		s := r.settled()
		if s.Exported == 0 || s.Dropped[traces.QueueFull] == 0 || s.Unconfirmed != 0 || int64(to.Distinct())+s.Dropped[traces.QueueFull] != s.Sampled {
			t.Errorf("%+v, %d received", s, to.Distinct())
		}
	})
}

// TestRestarted: a collector that was stopped gets everything that there was room for when it is
// started again.
func TestRestarted(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		to := collector.Start(t, protocol, nil)
		r := export(t, to, protocol, nil)
		r.sessions(100)
		r.settled()
		to.Stop(true)
		r.sessions(100)
		condition.Await(t, "an attempt has failed", func() bool { return r.Stats().LastError != nil })
		to.Restart()
		if s := r.settled(); s.Exported != 200 || to.Distinct() != 200 {
			t.Errorf("%+v, %d received", s, to.Distinct())
		}
	})
}

// TestStopped: received + dropped = sampled with a collector that is stopped for good. A request on the
// connection that it is about to close may be unconfirmed: its bytes were written.
func TestStopped(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		to := collector.Start(t, protocol, nil)
		r := export(t, to, protocol, func(s *traces.Settings) { s.Retry = 50 * time.Millisecond })
		r.sessions(100)
		r.settled()
		to.Stop(true)
		r.sessions(3000)
		s := r.settled()
		if s.Exported != 100 || s.Unconfirmed > 64 || to.Distinct() != 100 || s.Dropped[traces.Unavailable] == 0 || s.LastError == nil {
			t.Errorf("%+v, %d received", s, to.Distinct())
		}
	})
}

// TestRefusing: spans that a collector refuses for good are dropped at once, those of a partial
// success in part, and others are tried again.
func TestRefusing(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		to := collector.Start(t, protocol, nil)
		invalid, later := 3, 14 // invalid argument, unavailable
		if protocol == traces.HTTP {
			invalid, later = http.StatusBadRequest, http.StatusServiceUnavailable
		}
		to.Answer(func(request, _ int) collector.Answer {
			return [...]collector.Answer{{Code: invalid}, {Rejected: 7}, {Code: later}, {Code: later}, {}}[min(request-1, 4)]
		})
		r := export(t, to, protocol, func(s *traces.Settings) { s.Batch, s.Delay = 10, condition.Patience }) // all of ten in one request
		for i, want := range []traces.Stats{{Exported: 0}, {Exported: 3}, {Exported: 13}} {
			r.sessions(10)
			if s := r.settled(); s.Exported != want.Exported || int64(to.Distinct()) != want.Exported || s.LastError == nil {
				t.Errorf("after %d: %+v, %d received", i, s, to.Distinct())
			}
		}
		s := r.Stats()
		if s.Dropped[traces.Refused] != 17 || s.DroppedBy()["refused"] != 17 || to.Requests() != 5 {
			t.Errorf("%+v after %d requests", s, to.Requests())
		}
	})
}

// TestExhausted: a collector that is exhausted says whether there may be another attempt.
func TestExhausted(t *testing.T) {
	to := collector.Start(t, traces.GRPC, nil)
	to.Answer(func(request, _ int) collector.Answer {
		return [...]collector.Answer{{Code: 8, Retry: 10 * time.Millisecond}, {}, {Code: 8}}[min(request-1, 2)]
	})
	r := export(t, to, traces.GRPC, nil)
	r.sessions(1)
	if s := r.settled(); s.Exported != 1 {
		t.Errorf("%+v", s)
	}
	r.sessions(1)
	s := r.settled()
	if s.Dropped[traces.Refused] != 1 || !strings.Contains(s.LastError.Error(), "not now: 100%") {
		t.Errorf("%+v", s)
	}
}

// TestNoAnswer: spans that were sent, and had no answer in time, are tried again, and are
// unconfirmed in the end: they are not said to be lost.
func TestNoAnswer(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		to := collector.Start(t, protocol, nil)
		to.Answer(func(int, int) collector.Answer { return collector.Answer{Lost: true} })
		r := export(t, to, protocol, func(s *traces.Settings) { s.Timeout, s.Retry = 200*time.Millisecond, 500*time.Millisecond })
		r.sessions(10)
		if s := r.settled(); s.Unconfirmed != 10 || to.Distinct() != 10 || to.Requests() < 2 {
			t.Errorf("%+v, %d received", s, to.Distinct())
		}
	})
}

// TestFlush: the last spans are sent at the end, whatever the delay.
func TestFlush(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		to := collector.Start(t, protocol, nil)
		r := export(t, to, protocol, func(s *traces.Settings) { s.Delay = time.Hour })
		r.sessions(1000)
		r.Close()
		s := r.Stats()
		if r.balanced(&s); s.Exported != 1000 || to.Distinct() != 1000 {
			t.Errorf("%+v, %d received", s, to.Distinct())
		}
	})
}

// TestFlushIsBounded: the end does not wait for a collector that does not answer.
func TestFlushIsBounded(t *testing.T) {
	to := collector.Start(t, traces.GRPC, nil)
	to.Answer(func(int, int) collector.Answer { return collector.Answer{Lost: true} })
	r := export(t, to, traces.GRPC, func(s *traces.Settings) { s.Flush, s.Batch, s.Delay = 50*time.Millisecond, 10, time.Hour })
	r.sessions(100)
	condition.Await(t, "the first spans were sent", func() bool { return to.Requests() == 1 })
	began := time.Now()
	r.Close()
	s := r.Stats()
	r.balanced(&s)
	if took := time.Since(began); took > condition.Patience/2 || s.Dropped[traces.Shutdown] != 90 || s.Unconfirmed != 10 {
		t.Errorf("%+v after %v", s, took)
	}
	if len(r.reports) != 1 || r.reports[0].Dropped[traces.Shutdown] != 90 || r.reports[0].Unconfirmed != 10 {
		t.Errorf("reports: %+v", r.reports)
	}
}

// TestSettingsChange: spans that wait go where the new settings say, and those of sampled
// sessions are exported after traces were switched off.
func TestSettingsChange(t *testing.T) {
	first, second := collector.Start(t, traces.GRPC, nil), collector.Start(t, traces.HTTP, nil)
	first.Stop(true)
	r := export(t, first, traces.GRPC, nil)
	r.sessions(10)
	condition.Await(t, "an attempt has failed", func() bool { return r.Stats().LastError != nil })
	r.to = second
	r.Set(settings(t, second.URL, traces.HTTP, nil))
	if s := r.settled(); s.Exported != 10 || second.Distinct() != 10 {
		t.Errorf("%+v", s)
	}
	id := r.ids.Of(1 << 40)
	by := r.Sample(id)
	r.Set(nil)
	if r.Sample(id) != 0 {
		t.Error("sampled though traces are off")
	}
	var one record.Record
	fill(&one, id)
	one.Sampler = by
	if s := r.Stats(); s.Open != 1 {
		t.Errorf("%+v", s)
	}
	r.Add(&one)
	if s := r.settled(); s.Exported != 11 {
		t.Errorf("%+v", s)
	}
}

// TestTLS: a collector is verified, and gets the headers, compressed bodies too.
func TestTLS(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		cert, key := certificate.New(t, "collector.example")
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		to := collector.Start(t, protocol, &tls.Config{Certificates: []tls.Certificate{pair}})
		r := export(t, to, protocol, func(s *traces.Settings) { s.Retry = 50 * time.Millisecond })
		r.sessions(10)
		if s := r.settled(); s.Dropped[traces.Unavailable]+s.Unconfirmed != 10 || to.Distinct() != 0 {
			t.Errorf("not verified: %+v", s)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(cert))
		r.Set(settings(t, to.URL, protocol, func(s *traces.Settings) {
			s.TLS, s.Gzip, s.Headers = &tls.Config{RootCAs: roots}, true, http.Header{"Authorization": {"Bearer x"}}
		}))
		r.sessions(10)
		if s := r.settled(); s.Exported != 10 || to.Distinct() != 10 {
			t.Errorf("%+v", s)
		}
		if got := to.Headers()[0].Get("Authorization"); got != "Bearer x" {
			t.Errorf("the header is %q", got)
		}
	})
}

// TestNoHTTP2: something else at the collector's port is not taken for one.
func TestNoHTTP2(t *testing.T) {
	to := &collector.Collector{URL: "http://" + sockets.Server(t, sockets.Echo)}
	r := export(t, to, traces.GRPC, func(s *traces.Settings) { s.Timeout, s.Retry = time.Second, 50*time.Millisecond })
	r.sessions(10)
	if s := r.settled(); s.Exported != 0 || s.LastError == nil {
		t.Errorf("%+v", s)
	}
}

// TestRatio: the part that is sampled, which depends on the ID alone.
func TestRatio(t *testing.T) {
	to := collector.Start(t, traces.GRPC, nil)
	r := export(t, to, traces.GRPC, func(s *traces.Settings) { s.Ratio, s.Queue = 0.01, 100000 })
	if n := r.sessions(100000); n < 800 || n > 1200 {
		t.Errorf("%d of 100,000", n)
	}
	r.settled()
	id := r.ids.Of(77)
	first := r.Sample(id)
	for range 10 {
		if r.Sample(id) != first {
			t.Fatal("the same ID is sampled and not")
		}
	}
	for range 11 {
		if one := new(record.Record); first != 0 {
			fill(one, id)
			r.Add(one)
		}
	}
}

// TestAnotherConnection: a collector that does not answer any more on a connection is tried by
// another one.
func TestAnotherConnection(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		to := collector.Start(t, protocol, nil)
		dead := make(chan struct{})
		var once sync.Once
		through := sockets.Server(t, func(c net.Conn) {
			first := false
			once.Do(func() { first = true })
			if first { // it takes all, and answers nothing
				<-dead
				return
			}
			up, err := net.Dial("tcp", strings.TrimPrefix(to.URL, "http://"))
			if err != nil {
				return
			}
			defer up.Close()
			go func() { _, _ = io.Copy(up, c); _ = up.(*net.TCPConn).CloseWrite() }()
			_, _ = io.Copy(c, up)
		})
		t.Cleanup(func() { close(dead) })
		r := export(t, to, protocol, nil)
		r.Set(settings(t, "http://"+through, protocol, func(s *traces.Settings) { s.Timeout = 300 * time.Millisecond }))
		r.sessions(10)
		if s := r.settled(); s.Exported != 10 || to.Distinct() != 10 {
			t.Errorf("%+v, %d received", s, to.Distinct())
		}
	})
}
