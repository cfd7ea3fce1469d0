package page

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// BenchmarkFollow has the page follow 10,000 endpoints, all of which change each second, and 100,000 sessions for a
// minute: the memory and the CPU time of the browser, of all its processes (browser-) and of that of the page
// (renderer-), beside those of an empty page (empty-). Memory is proportional (PSS).
func BenchmarkFollow(b *testing.B) {
	s := &stage{endpoints: 10_000, sessions: 100_000, at: began, runs: true}
	url := s.serve(b)
	browser := startBrowser(b)
	empty := usage(browser)
	browser.size(1440, 900)
	browser.open(url)
	browser.until("a tenth event", `document.documentElement.dataset.event >= 10`) // the scripts are compiled
	for b.Loop() {
		first, event := usage(browser), eval[float64](browser, `Number(document.documentElement.dataset.event)`)
		own := cpuTime(b)
		time.Sleep(time.Minute)
		last := usage(browser)
		b.ReportMetric(float64(last.pss)/1e6, "browser-MB")
		b.ReportMetric(float64(last.renderer.pss)/1e6, "renderer-MB")
		b.ReportMetric(float64(empty.pss)/1e6, "empty-MB")
		b.ReportMetric((last.cpu - first.cpu).Seconds(), "browser-CPU-s")
		b.ReportMetric((last.renderer.cpu - first.renderer.cpu).Seconds(), "renderer-CPU-s")
		b.ReportMetric((cpuTime(b) - own).Seconds(), "server-CPU-s")
		b.ReportMetric(eval[float64](browser, `performance.memory.usedJSHeapSize`)/1e6, "heap-MB")
		b.ReportMetric(eval[float64](browser, `Number(document.documentElement.dataset.event)`)-event, "events")
	}
}

type use struct {
	pss int64
	cpu time.Duration
}

type browserUse struct {
	use
	renderer use
}

// usage returns the use of a browser until now.
func usage(b *browser) (all browserUse) {
	b.Helper()
	runtime.GC()
	root := chromedp.FromContext(b.ctx).Browser.Process().Pid
	for _, pid := range descendants(b, root) {
		u := useOf(pid)
		all.pss, all.cpu = all.pss+u.pss, all.cpu+u.cpu
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(line, []byte("--type=renderer")) {
			all.renderer.pss, all.renderer.cpu = all.renderer.pss+u.pss, all.renderer.cpu+u.cpu
		}
	}
	return all
}

// descendants returns a process with its children, and with theirs.
func descendants(t testing.TB, root int) []int {
	t.Helper()
	list := []int{root}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for found := true; found; {
		found = false
		for _, path := range paths {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			f := fieldsOf(path)
			if len(f) < 2 || slices.Contains(list, pid) {
				continue
			}
			if parent, _ := strconv.Atoi(f[1]); slices.Contains(list, parent) {
				list, found = append(list, pid), true
			}
		}
	}
	return list
}

// fieldsOf returns the fields of a stat file behind the name: state, parent, ...
func fieldsOf(path string) []string {
	text, _ := os.ReadFile(path) // the process may be gone
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

func useOf(pid int) (u use) {
	if f := fieldsOf(fmt.Sprintf("/proc/%d/stat", pid)); len(f) > 13 {
		user, _ := strconv.ParseInt(f[11], 10, 64)
		system, _ := strconv.ParseInt(f[12], 10, 64)
		u.cpu = time.Duration(user+system) * 10 * time.Millisecond // of 100 in a second (proc(5))
	}
	rollup, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(rollup)) {
		var kB int64
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kB); n == 1 {
			u.pss = kB << 10
		}
	}
	return u
}

// cpuTime returns the CPU time of this process: of the server, of the simulation and of the test.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
