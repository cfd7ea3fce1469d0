package evidence

import (
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

// BenchmarkAttached measures the cost of an echo of 64 bytes, of 64 connections through penstock
// proxy, with the programs attached and without, in windows that alternate. The metrics are medians
// of the ratios of neighbours, attached to not: of the processor time of the proxy, of that of all
// three processes, and of echoes per second. Those that end in "-again" are of two windows without the
// programs: the spread of the machine.
func BenchmarkAttached(b *testing.B) {
	if err := kerneltrace.Allowed(); err != nil {
		b.Skip(err)
	}
	const pairs, window = 24, 500 * time.Millisecond
	proxy, echoes := startEcho(b)
	measure := func() (f figures) {
		runtime.GC() // of the types that were read for attaching
		n, cpu, own, begin := echoes.Load(), cpuOf(b, proxy), cpuOf(b, os.Getpid()), time.Now()
		time.Sleep(window)
		took := time.Since(begin)
		cpu, own, n = cpuOf(b, proxy)-cpu, cpuOf(b, os.Getpid())-own, echoes.Load()-n
		return figures{float64(cpu) / float64(n), float64(cpu+own) / float64(n), float64(n) / took.Seconds()}
	}
	attached := func() (f figures) {
		tracer, err := kerneltrace.Open(kerneltrace.Config{PIDs: []int{proxy}})
		must(b, err)
		defer tracer.Close()
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- tracer.Wait(ctx) }()
		f = measure()
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		return f
	}
	for b.Loop() {
		var with, again []figures
		for range pairs {
			time.Sleep(window) // detaching has work left for later
			first, second, traced := measure(), measure(), attached()
			with = append(with, traced.over(second))
			again = append(again, second.over(first))
		}
		for i, unit := range []string{"proxy-cpu", "all-cpu", "rate"} {
			b.ReportMetric(median(with, i), unit)
			b.ReportMetric(median(again, i), unit+"-again")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// figures are processor time per echo of the proxy and of all, and echoes per second.
type figures [3]float64

func (f figures) over(o figures) figures { return figures{f[0] / o[0], f[1] / o[1], f[2] / o[2]} }

func median(list []figures, i int) float64 {
	slices.SortFunc(list, func(a, b figures) int { return cmp.Compare(a[i], b[i]) })
	return list[len(list)/2][i]
}

func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	d, err := sys.ProcessCPUTime(pid)
	must(b, err)
	return d
}

// startEcho starts penstock proxy in front of an echo server, and 64 clients. It returns the
// process of the proxy, and the count of echoes.
func startEcho(b *testing.B) (proxy int, echoes *atomic.Int64) {
	b.Helper()
	echoes = new(atomic.Int64)
	dir := software.Build(b, "github.com/penstock/penstock/proxy/cmd/penstock")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	var all sync.WaitGroup
	b.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { defer c.Close(); _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) })
		}
	})
	addr, _, _ := software.Addr(b)
	p := software.Service{Command: []string{dir + "/penstock", "proxy", "--listen", addr, "--to", l.Addr().String(), "--drain-timeout", "1s"}, Dir: dir, Addr: addr, Stop: syscall.SIGTERM}.Start(b)
	for range 64 {
		c, err := net.Dial("tcp", addr)
		must(b, err)
		b.Cleanup(func() { c.Close() })
		all.Go(func() {
			buf := make([]byte, 64)
			for {
				if _, err := c.Write(buf); err != nil {
					return
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					return
				}
				echoes.Add(1)
			}
		})
	}
	return p.Pid, echoes
}
