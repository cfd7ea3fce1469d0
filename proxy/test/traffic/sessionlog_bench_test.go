package traffic

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
)

// A contestant is a process with or without a session log.
type contestant struct {
	name, addr string
	process    *os.Process
}

// contestants starts them in front of an echo. The first two have no log: the second one shows the noise.
func contestants(b *testing.B) (all []contestant) {
	dir, echo := b.TempDir(), sockets.Server(b, sockets.Echo)
	program := filepath.Join(software.Build(b, "github.com/penstock/penstock/proxy/cmd/penstock"), "penstock")
	for i, log := range []string{"", "", "format: json", "format: haproxy-tcp", "share: 1"} {
		addr, _, _ := software.Addr(b)
		file, section := filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), ""
		if log != "" {
			section = fmt.Sprintf("session_log: {to: %d.log, %s}\n", i, log)
		}
		text := fmt.Sprintf("%slisteners: [{name: l, bind: %q, upstream: u}]\nupstreams: [{name: u, endpoints: [%q], health_check: off}]\n", section, addr, echo)
		must(b, os.WriteFile(file, []byte(text), 0o600))
		p := software.Service{Command: []string{program, "run", file}, Dir: b.TempDir(), Addr: addr, Stop: syscall.SIGTERM}.Start(b)
		all = append(all, contestant{log, addr, p})
	}
	return all
}

// BenchmarkSessionLog measures the CPU time of the process, and the time that passes, for each connection that
// is made, echoes a byte and is closed. Processes take turns in slices of 800 connections by eight clients; each
// round gives a ratio to the process without a log.
func BenchmarkSessionLog(b *testing.B) {
	all := contestants(b)
	cpu, wall := make([][]float64, len(all)), make([][]float64, len(all))
	for round := 0; b.Loop(); round++ {
		for n := range all { // each is first as often
			i := (n + round) % len(all)
			used, took := all[i].connections(b)
			cpu[i], wall[i] = append(cpu[i], used), append(wall[i], took)
		}
	}
	for i, c := range all {
		b.Logf("%-20s CPU %s, time %s of those without", c.name, ratio(cpu[i], cpu[0]), ratio(wall[i], wall[0]))
	}
	slices.Sort(cpu[0])
	b.Logf("without: %.1f µs of CPU a connection", cpu[0][len(cpu[0])/2])
}

// ratio returns the median of the ratios, with the 10th and 90th percentile.
func ratio(of, to []float64) string {
	r := make([]float64, len(of))
	for i := range r {
		r[i] = of[i] / to[i]
	}
	slices.Sort(r)
	return fmt.Sprintf("%.3f (%.2f–%.2f)", r[len(r)/2], r[len(r)/10], r[len(r)*9/10])
}

// connections returns the microseconds of CPU, and of time, for each connection.
func (c contestant) connections(b *testing.B) (used, took float64) {
	const clients, each = 8, 100
	before, err := sys.ProcessCPUTime(c.process.Pid)
	must(b, err)
	began := time.Now()
	var wait sync.WaitGroup
	for range clients {
		wait.Go(func() {
			one := make([]byte, 1)
			for range each {
				conn, err := net.Dial("tcp", c.addr)
				if err != nil {
					b.Error(err)
					return
				}
				conn.Write(one)
				io.ReadFull(conn, one)
				conn.(*net.TCPConn).SetLinger(0) // so that no port waits
				conn.Close()
			}
		})
	}
	wait.Wait()
	elapsed := time.Since(began)
	time.Sleep(20 * time.Millisecond) // for the last lines, whose CPU counts
	after, err := sys.ProcessCPUTime(c.process.Pid)
	must(b, err)
	const n = clients * each
	return float64(after-before) / n / 1e3, float64(elapsed) / n / 1e3
}

// BenchmarkSessionLogIdle measures the memory of a session that rests: RssAnon with 2,000 sessions less that with
// none, in turns.
func BenchmarkSessionLogIdle(b *testing.B) {
	all := contestants(b)
	bytes := make([][]float64, len(all))
	for b.Loop() {
		for i, c := range all {
			bytes[i] = append(bytes[i], c.idle(b))
		}
	}
	for i, c := range all {
		n := len(bytes[i])
		r := ratio(bytes[i], bytes[0])
		slices.Sort(bytes[i])
		b.Logf("%-20s %.0f B a session (%.0f–%.0f), %s of those without", c.name, bytes[i][n/2], bytes[i][0], bytes[i][n-1], r)
	}
}

func (c contestant) idle(b *testing.B) float64 {
	const sessions = 2000
	c.connections(b) // so that all memory is there that is used again
	time.Sleep(time.Second)
	before := c.anonymous(b)
	open := make([]net.Conn, sessions)
	for i := range open {
		conn := sockets.Dial(b, c.addr)
		conn.Write([]byte{1})
		io.ReadFull(conn, make([]byte, 1))
		open[i] = conn
	}
	time.Sleep(time.Second)
	after := c.anonymous(b)
	for _, conn := range open {
		conn.Close()
	}
	return float64(after-before) / sessions
}

// anonymous returns the process's anonymous memory in bytes.
func (c contestant) anonymous(b *testing.B) (n int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Pid))
	must(b, err)
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &n); err == nil {
			return n << 10
		}
	}
	b.Fatal("no RssAnon")
	return 0
}
