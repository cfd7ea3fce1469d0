package server_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestNothingIsKeptOfWhatIsGivenUp: sockets that a reload removes take no memory once they have
// no sessions. The same holds for the services and endpoints behind them.
func TestNothingIsKeptOfWhatIsGivenUp(t *testing.T) {
	if race.Enabled {
		t.Skip("it counts the heap, in which the detector has its own")
	}
	const few, many = 80, 480 // more sockets than are still accepted from for a while
	up, port := named(t, "a"), sockets.Port(t)
	sources := `limits: {per_source: 5}`
	for name, text := range map[string]func(i int, dir string) string{
		"another port": func(i int, _ string) string {
			return fmt.Sprintf(`listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, %s}, {name: l%d, bind: "127.0.0.1:0", upstream: u, %s}]
upstreams: [{name: u, endpoints: [%q]}]`, sources, i, sources, up)
		},
		"a wider address": func(i int, _ string) string {
			return fmt.Sprintf(`listeners: [{name: l, bind: "%s:%s", upstream: u, %s}]
upstreams: [{name: u, endpoints: [%q]}]`, []string{"127.0.0.1", "0.0.0.0"}[i%2], port, sources, up)
		},
		"another path": func(i int, dir string) string {
			return fmt.Sprintf(`listeners: [{name: l, bind: "unix:%s", upstream: u, %s}]
upstreams: [{name: u, endpoints: [%q]}]`, filepath.Join(dir, fmt.Sprint(i)), sources, up)
		},
		"another service": func(i int, _ string) string {
			return fmt.Sprintf(`listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u, %s, timeouts: {idle: %ds}}]
upstreams: [{name: u, endpoints: [%q]}]`, port, sources, 100+i, up)
		},
		"another upstream": func(i int, _ string) string {
			return fmt.Sprintf(`listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u%d, %s}]
upstreams: [{name: u%[2]d, balance: maglev, endpoints: [%[4]q]}]`, port, i, sources, up)
		},
		"all": func(i int, _ string) string {
			return fmt.Sprintf(`listeners: [{name: l, bind: "127.0.0.1:0", upstream: u%d, %s}, {name: l%[1]d, bind: "127.0.0.1:0", upstream: u%[1]d, %[2]s}]
upstreams: [{name: u%[1]d, balance: maglev, health_check: {}, outlier_detection: {}, circuit_breaker: {}, endpoints: [%[3]q]}]`, i, sources, up)
		},
		"another endpoint": func(i int, _ string) string {
			return fmt.Sprintf(`listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u, %s}]
upstreams: [{name: u, endpoints: [{address: %q, name: e%d}]}]`, port, sources, up, i)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := &rig{loadbalancer.Setting{Level: slog.LevelError}.Start(t, text(0, dir))}
			// An upstream has two timers for more than a minute: how many there are when that is looked at depends
			// on the machine. Here they end at once.
			r.SetAfter(func(_ time.Duration, f func()) *time.Timer { return time.AfterFunc(0, f) })
			settled := func() int {
				r.Until("no timer is kept", func() bool { _, timers := r.Kept(); return timers == 0 })
				return heap.InUse()
			}
			reloads := 0
			reload := func(n int) {
				for range n {
					reloads++
					r.Reload(text(reloads, dir))
					if reloads%10 == 0 && name != "another path" {
						whose(t, r.At("l"))
					}
				}
			}
			reload(few)
			// A loop keeps the service of its last client until its next one, so some are there by chance, each with
			// maglev's table of 264 KiB. Their number does not grow: more reloads set them apart from what is kept of each.
			first, kept := settled(), 0
			for range 4 {
				reload(many - few)
				grown := settled() - first
				kept = grown / (reloads - few)
				t.Logf("after %d reloads %d KiB, %d bytes for each reload beyond %d", reloads, (first+grown)>>10, kept, few)
				if kept <= 1000 {
					break
				}
			}
			if kept > 1000 {
				t.Error("removed objects are kept")
			}
		})
	}
}

// TestWhatIsGivenUpIsKeptForItsSessions: a removed socket is kept for its sessions, and no
// longer.
func TestWhatIsGivenUpIsKeptForItsSessions(t *testing.T) {
	t.Parallel()

	up, port := named(t, "a"), sockets.Port(t)
	text := func(bind string) string {
		return fmt.Sprintf("listeners: [{name: l, bind: %q, upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]", bind, up)
	}
	r := start(t, text("127.0.0.1:"+port))
	nothing := func() bool { sockets, timers := r.Kept(); return sockets+timers == 0 }
	r.SetAfter(func(d time.Duration, f func()) *time.Timer {
		if d == 5*time.Second { // the time for which a replaced socket is still accepted from
			d = 0
		}
		return time.AfterFunc(d, f)
	})
	first := client(t, r.At("l"))
	line(t, first)
	r.Reload(text("0.0.0.0:" + port)) // the second listener takes over the sessions of the first
	second := client(t, r.At("l"))
	line(t, second)
	r.Reload(text("127.0.0.1:0"))
	if sockets, timers := r.Kept(); sockets != 2 || timers == 0 {
		t.Errorf("%d sockets are kept, and %d timers", sockets, timers)
	}
	first.Close()
	r.Until("one socket is kept", func() bool { sockets, _ := r.Kept(); return sockets == 1 })
	echoes(t, second, "still")
	second.Close()
	r.Until("no socket and no timer is kept", nothing)
}
