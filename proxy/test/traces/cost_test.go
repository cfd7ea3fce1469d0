//go:build linux

package traces_test

import (
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/collector"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
)

// A proxied is a load balancer in a process of its own, for clients of a benchmark.
type proxied struct {
	*program.Program
	name, address string
	rates, costs  []float64 // of each round
}

func startProxied(b *testing.B, name, path, traces, endpoint string) *proxied {
	b.Helper()
	p := program.Start(b, path, b.TempDir(), fmt.Sprintf("%s\nlisteners: [{name: a, bind: \"127.0.7.1:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]\n", traces, endpoint))
	b.Cleanup(p.End)
	return &proxied{Program: p, name: name, address: p.At("a")}
}

// settled waits until every sampled session is counted, and returns the counters.
func (p *proxied) settled() (t admin.Traces) {
	p.T.Helper()
	p.Until("no span waits", func(s *admin.Status) bool { t = *s.Traces; return t.Open == 0 && t.Queued == 0 })
	return t
}

// cpu is the CPU time of the process's threads (proc_pid_schedstat in the kernel's documentation).
func (p *proxied) cpu(b *testing.B) (total time.Duration) {
	b.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.Process.Pid))
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that has ended
		}
		n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		must(b, err)
		total += time.Duration(n)
	}
	return total
}

// load has 16 clients at a time connect, exchange 64 bytes and leave, for a while. It returns
// the connections per second, and the proxy's CPU time for each.
func (p *proxied) load(b *testing.B, d time.Duration) (rate, cpu float64) {
	b.Helper()
	var n atomic.Int64
	var clients sync.WaitGroup
	before, began := p.cpu(b), time.Now()
	for range 16 {
		clients.Go(func() {
			message := make([]byte, 64)
			for time.Since(began) < d {
				c, err := net.Dial("tcp", p.address)
				if err != nil {
					b.Error(err)
					return
				}
				_, err = c.Write(message)
				if err == nil {
					_, err = io.ReadFull(c, message)
				}
				if err != nil {
					b.Error(err)
				}
				c.Close()
				n.Add(1)
			}
		})
	}
	clients.Wait()
	took := time.Since(began)
	return float64(n.Load()) / took.Seconds(), float64(p.cpu(b)-before) / float64(n.Load())
}

// BenchmarkTracesPaired is the cost of 1 % and of all of the sessions traced beside none, for
// short connections: each iteration is a round in which each has its turn. Beside them is
// another process without traces, whose ratio is the noise. In the end it says how many of the
// sampled sessions have arrived at the collector.
func BenchmarkTracesPaired(b *testing.B) {
	path := program.Build(b)
	endpoint, to := sockets.Server(b, sockets.Echo), [2]*collector.Collector{}
	for i := range to {
		to[i] = collector.Start(b, "grpc", nil)
		to[i].CountOnly()
	}
	forms := []*proxied{
		startProxied(b, "none", path, "", endpoint), startProxied(b, "again", path, "", endpoint),
		startProxied(b, "1 %", path, fmt.Sprintf("traces: {endpoint: %q, sample: 1}", to[0].URL), endpoint),
		startProxied(b, "all", path, fmt.Sprintf("traces: {endpoint: %q, sample: 100, max_queue_size: 20000}", to[1].URL), endpoint),
	}
	for _, p := range forms {
		p.load(b, 200*time.Millisecond)
	}
	for round := 0; b.Loop(); round++ {
		var rate, cpu [4]float64
		for i := range forms {
			at := (i + round) % len(forms)
			rate[at], cpu[at] = forms[at].load(b, 60*time.Millisecond)
		}
		for i, p := range forms {
			p.rates, p.costs = append(p.rates, rate[i]/rate[0]), append(p.costs, cpu[i]/cpu[0])
		}
	}
	for i, p := range forms[2:] {
		t := p.settled()
		got := to[i].Distinct()
		b.Logf("%s: %d received of %d sampled, exported %d, unconfirmed %d, dropped %v", p.name, got, t.Sampled, t.Exported, t.Unconfirmed, t.Dropped)
		dropped := int64(0)
		for _, n := range t.Dropped {
			dropped += n
		}
		if int64(got)+dropped != t.Sampled || t.Unconfirmed != 0 {
			b.Errorf("%s: received + dropped is not sampled", p.name)
		}
	}
	for _, p := range forms[1:] {
		b.Logf("%s / none: connections %s, CPU for each %s", p.name, paired(p.rates), paired(p.costs))
	}
}

// paired is the median of the rounds' ratios, and its 95 % interval by the ranks of the binomial
// distribution.
func paired(ratios []float64) string {
	slices.Sort(ratios)
	n := len(ratios)
	off := int(0.98*math.Sqrt(float64(n))) + 1
	return fmt.Sprintf("%.3f (%.3f–%.3f)", ratios[n/2], ratios[max(n/2-off, 0)], ratios[min(n/2+off, n-1)])
}
