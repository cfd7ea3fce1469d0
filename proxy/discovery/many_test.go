package discovery_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/discovery"
)

// TestManyNames: sources that share a limiter do not exceed it together, and spread their next
// questions.
func TestManyNames(t *testing.T) {
	const names, gate = 300, 8
	s := newServer(t)
	s.be(func(s *nameServer) { s.slow = 5 * time.Millisecond })
	shared := discovery.NewQueryLimiter(gate)
	rigs := make([]*rig, names)
	for i := range rigs {
		name := fmt.Sprintf("n%d.example", i)
		s.set("A "+name+".", fmt.Sprintf("30 A 10.0.%d.%d", i/250, i%250))
		rigs[i] = lookups(t, discovery.DNSConfig{
			Name: name, Type: "A", Port: 80, Servers: []string{s.addr}, Timeout: patience, Limiter: shared, Random: rand.Float64,
		})
	}
	next := map[time.Duration]bool{}
	for i, r := range rigs {
		next[r.again()] = true
		equal(t, r.told(), fmt.Sprintf("10.0.%d.%d:80*1", i/250, i%250))
	}
	s.be(func(s *nameServer) {
		if s.most > gate {
			t.Errorf("%d questions at once, want at most %d", s.most, gate)
		}
	})
	if len(next) < names*9/10 {
		t.Errorf("%d sources ask again at %d different times", names, len(next))
	}
}

// TestWatchEndsWhileItAsks: the end does not wait for a server's timeout.
func TestWatchEndsWhileItAsks(t *testing.T) {
	s := newServer(t)
	s.be(func(s *nameServer) { s.silent = true })
	cfg := of(s)
	cfg.Limiter = discovery.NewQueryLimiter(1) // the second question waits here
	begun := time.Now()
	t.Run("watch", func(t *testing.T) {
		lookups(t, cfg)
		for s.count("udp", "A db.example.")+s.count("udp", "AAAA db.example.") == 0 {
			if time.Since(begun) > patience {
				t.Fatal("no question is asked")
			}
			time.Sleep(time.Millisecond)
		}
	})
	if d := time.Since(begun); d > patience/2 {
		t.Errorf("the end took %v", d)
	}
}

// TestStatusWhileItWatches is for the race detector.
func TestStatusWhileItWatches(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "1 A 10.0.0.2")
	r := lookups(t, of(s))
	var group sync.WaitGroup
	group.Go(func() {
		for range 100 {
			_ = r.source.Status()
		}
	})
	for range 5 {
		r.again()
	}
	group.Wait()
	equal(t, r.told(), "10.0.0.2:5432*1")
}

func TestIdentity(t *testing.T) {
	equal(t, discovery.Endpoint{Address: "10.0.0.2:1"}.Identity(), "10.0.0.2:1")
	equal(t, discovery.Endpoint{Address: "a:1", Name: "b"}.Identity(), "b")
}
