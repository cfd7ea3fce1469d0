package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A mirrored is a search all of whose sessions are mirrored to one address.
type mirrored struct {
	actor
	to     func() *worker.Mirror
	counts *worker.MirrorCounts
	began  *atomic.Int64
	ended  *atomic.Int64
}

func (m *mirrored) Mirror(int64) *worker.Mirror {
	of := m.to()
	of.Counts, of.Ended = m.counts, func() { m.ended.Add(1) }
	m.began.Add(1)
	return of
}

// mirroring makes a rig of one loop whose sessions echo and are mirrored. Each mirror has been given back when the
// test is over.
func mirroring(t *testing.T, patience time.Duration, to func() *worker.Mirror) (*rig, *worker.MirrorCounts) {
	t.Helper()
	return mirroringTo(t, echo(t), patience, to)
}

// mirroringTo is mirroring with another server than one that echoes.
func mirroringTo(t *testing.T, server string, patience time.Duration, to func() *worker.Mirror) (*rig, *worker.MirrorCounts) {
	t.Helper()
	var began, ended atomic.Int64
	counts, d := worker.NewMirrorCounts(), straight(server)
	splices, err := relay.New(&relay.Config{}) // the rig's own has no pipes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { splices.Close() })
	t.Cleanup(func() {
		if began.Load() != ended.Load() || counts.Totals(false).Running != 0 {
			t.Errorf("%d mirrors began, %d have ended; %+v", began.Load(), ended.Load(), counts.Totals(false))
		}
	})
	return directed(t, d, func(c *setup, s *worker.Service) {
		c.Loops, c.Relay = 1, splices
		s.NewSearch = func() worker.Search {
			return &mirrored{actor{director: d}, func() *worker.Mirror {
				of := to()
				of.Patience, of.Binding = patience, nil
				return of
			}, counts, &began, &ended}
		}
	}), counts
}

func mirrorTo(addr string) func() *worker.Mirror {
	return func() *worker.Mirror {
		return &worker.Mirror{Addresses: []loop.Address{{AddrPort: netip.MustParseAddrPort(addr)}}}
	}
}

// TestMirrorsGiveWay: mirrors end when a client lacks a descriptor, which is served then, and no new ones begin until
// there are descriptors again.
func TestMirrorsGiveWay(t *testing.T) {
	t.Parallel()

	r, counts := mirroring(t, time.Minute, mirrorTo(echo(t)))
	r.serve(t)
	first, second := r.dial(t), r.dial(t)
	talk(t, first)
	talk(t, second)
	if m := counts.Totals(false); m.Running != 2 {
		t.Fatalf("%+v", m)
	}
	r.SetControlNow(func() error { // there is one descriptor too few, as long as there are mirrors
		if counts.Totals(false).Running > 0 {
			return syscall.EMFILE
		}
		return nil
	})
	third := r.dial(t)
	talk(t, third)
	if m := counts.Totals(false); m.Ended[worker.MirrorDescriptors] != 3 { // the last is of the third client itself
		t.Errorf("%+v", m)
	}
	talk(t, first)
	talk(t, second)
}

// TestMirrorWithoutADescriptor: a mirror that gets no socket waits for none, and trims nothing.
func TestMirrorWithoutADescriptor(t *testing.T) {
	t.Parallel()

	r, counts := mirroring(t, time.Minute, mirrorTo(echo(t)))
	var sockets atomic.Int64
	r.SetControl(func() error {
		if sockets.Add(1)%2 == 0 {
			return syscall.EMFILE
		}
		return nil
	})
	r.serve(t)
	for range 3 {
		talk(t, r.dial(t))
	}
	if m := counts.Totals(false); m.Ended[worker.MirrorDescriptors] != 3 || r.trims.Load() != 0 {
		t.Errorf("%+v, %d trims", m, r.trims.Load())
	}
}

// TestMirrorsByName: a name is looked up beside, its addresses are tried in turn, and a mirror that ends before the
// answer comes ends its look-up.
func TestMirrorsByName(t *testing.T) {
	t.Parallel()

	shadow := netip.MustParseAddrPort(echo(t))
	var asked, gone atomic.Int64
	resolve := worker.Resolver(func(ctx context.Context, _ string, _ time.Duration) ([]netip.Addr, error) {
		switch asked.Add(1) {
		case 1:
			return []netip.Addr{netip.MustParseAddr("127.99.99.99"), shadow.Addr()}, nil // nothing listens at the first
		case 2:
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		case 3:
			return nil, nil
		}
		<-ctx.Done()
		gone.Add(1)
		return nil, ctx.Err()
	})
	r, counts := mirroring(t, 3*time.Second, func() *worker.Mirror {
		return &worker.Mirror{Host: "shadow.test", Port: shadow.Port(), Resolver: resolve, Timeout: time.Minute}
	})
	r.serve(t)
	for n := int64(1); n <= 4; n++ {
		c := r.dial(t)
		talk(t, c)
		_ = c.Close()
		eventually(t, func() bool {
			var sum int64
			for _, k := range counts.Totals(false).Ended {
				sum += k
			}
			return sum == n
		})
	}
	eventually(t, func() bool { return gone.Load() == 1 })
	if m := counts.Totals(false); m.Ended["complete"] != 1 || m.Ended["connect"] != 2 || m.Ended["late"] != 1 {
		t.Errorf("%+v", m)
	}
}

// TestMirrorsAreCutWithTheGroup: whatever state they are in.
func TestMirrorsAreCutWithTheGroup(t *testing.T) {
	t.Parallel()

	for name, to := range map[string]func() *worker.Mirror{
		"connected":  mirrorTo(echo(t)),
		"connecting": mirrorTo(sockets.Silent(t)),
		"looked up": func() *worker.Mirror {
			return &worker.Mirror{Host: "x", Resolver: stuckResolver}
		},
	} {
		for _, first := range []bool{false, true} { // the session ends before the group
			t.Run(fmt.Sprintf("%s/%v", name, first), func(t *testing.T) {
				r, counts := mirroring(t, time.Hour, to)
				r.serve(t)
				c := r.dial(t)
				talk(t, c)
				if first {
					_ = c.(interface{ CloseWrite() error }).CloseWrite()
					if _, err := c.Read(make([]byte, 1)); err != io.EOF {
						t.Fatal(err)
					}
					_ = c.Close()
					eventually(t, func() bool { return r.Active() == 0 })
				}
				if m := counts.Totals(false); m.Running != 1 && !(first && name == "connected") { // that may be complete
					t.Fatalf("%+v", m)
				}
			})
		}
	}
}

// TestMirrorsAreCountedWhileTheyRun: the bytes of mirrors that run are counted, each once.
func TestMirrorsAreCountedWhileTheyRun(t *testing.T) {
	t.Parallel()

	r, counts := mirroring(t, time.Minute, mirrorTo(echo(t)))
	r.serve(t)
	all, message := []net.Conn{r.dial(t), r.dial(t)}, make([]byte, 1000)
	var sent int64
	for range 2 {
		for _, c := range all {
			mustWrite(t, c, message)
			mustRead(t, c, message)
			sent += int64(len(message))
		}
		eventually(t, func() bool {
			m := counts.Totals(false)
			return m.Running == 2 && m.Teed+m.Copied == sent && m.Answered == sent
		})
	}
	for _, c := range all {
		c.Close()
	}
	eventually(t, func() bool { return counts.Totals(false).Running == 0 })
	if m := counts.Totals(false); m.Teed+m.Copied != sent || m.Answered > sent {
		t.Errorf("%+v", m)
	}
}

// comparison makes a comparison of lines.
func comparison(t *testing.T, memory int64) *worker.Comparison {
	t.Helper()
	plan, err := compare.NewPlan(compare.Config{Framing: compare.Lines})
	if err != nil {
		t.Fatal(err)
	}
	budget := compare.NewBudget(memory)
	t.Cleanup(func() {
		if n := budget.Used(); n != 0 {
			t.Errorf("%d bytes of the budget are in use", n)
		}
	})
	return worker.NewComparison(plan, true, budget)
}

// TestComparing: both answers to a client are compared, and the memory of that is given back; without memory the
// session is mirrored, and not compared.
func TestComparing(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name             string
		shadow           func(net.Conn, []byte) []byte
		budget           int64
		equal, different uint64
	}{
		{"equal", nil, compare.TotalBytes, 3, 0},
		{"different", func(_ net.Conn, b []byte) []byte { return bytes.ReplaceAll(b, []byte("a"), []byte("b")) }, compare.TotalBytes, 0, 3},
		{"no memory", nil, 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := echo(t)
			if c.shadow != nil {
				to = sockets.Server(t, func(conn net.Conn) {
					b := make([]byte, 64<<10)
					for {
						n, err := conn.Read(b)
						if err != nil {
							return
						}
						if _, err := conn.Write(c.shadow(conn, b[:n])); err != nil {
							return
						}
					}
				})
			}
			k := comparison(t, c.budget)
			r, counts := mirroring(t, time.Minute, func() *worker.Mirror {
				of := mirrorTo(to)()
				of.Compare = k
				return of
			})
			r.serve(t)
			conn := r.dial(t)
			for range 3 {
				if _, err := conn.Write([]byte("a line\n")); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Read(make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
			}
			_ = conn.Close()
			eventually(t, func() bool { return counts.Totals(false).Ended["complete"] == 1 })
			eventually(t, func() bool { return r.Active() == 0 })
			s := k.Report().Snapshot()
			if s.Equal != c.equal || s.Different != c.different || (s.Refused == 1) != (c.budget == 1) {
				t.Errorf("%+v", s)
			}
			if fell := r.Summary().Totals.Fallbacks[relay.FallbackCompare]; (fell == 1) != (c.budget > 1) {
				t.Errorf("%d fallbacks", fell)
			}
		})
	}
}

// TestComparingCostIsBounded: shadows that flood with what is costly to compare take a bounded part of the loop's
// time: comparing ends for its cost, and clients are served all the while.
func TestComparingCostIsBounded(t *testing.T) {
	t.Parallel()

	const sessions, flood = 8, 8 << 20
	for name, c := range map[string]struct {
		config compare.Config
		piece  string
	}{
		"a pattern": {compare.Config{Framing: compare.Lines, Mask: []compare.Mask{{Pattern: "[0-9]{2,90}x"}}}, "1"},
		"lines":     {compare.Config{Framing: compare.Lines}, "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := sockets.Server(t, func(conn net.Conn) {
				if _, err := conn.Read(make([]byte, 100)); err == nil {
					_, _ = conn.Write(bytes.Repeat([]byte(c.piece), flood))
				}
			})
			plan, err := compare.NewPlan(c.config)
			if err != nil {
				t.Fatal(err)
			}
			k := worker.NewComparison(plan, true, compare.NewBudget(compare.TotalBytes))
			r, counts := mirroring(t, time.Minute, func() *worker.Mirror {
				of := mirrorTo(shadow)()
				of.Compare = k
				return of
			})
			r.serve(t)
			var clients []net.Conn
			for range sessions {
				conn := r.dial(t)
				clients = append(clients, conn)
				if _, err := conn.Write([]byte("go\n")); err != nil {
					t.Fatal(err)
				}
			}
			for range 20 { // all are served while the shadows flood
				for _, conn := range clients {
					if _, err := conn.Read(make([]byte, 100)); err != nil {
						t.Fatal(err)
					}
					if _, err := conn.Write([]byte("more\n")); err != nil {
						t.Fatal(err)
					}
				}
			}
			eventually(t, func() bool {
				s := k.Report().Snapshot()
				return s.Stopped["cost"]+s.Stopped["full"] == sessions
			})
			for _, conn := range clients {
				_ = conn.Close()
			}
			eventually(t, func() bool { return r.Active() == 0 && counts.Totals(false).Running == 0 })
			if s := k.Report().Snapshot(); name == "a pattern" && s.Stopped["cost"] == 0 {
				t.Errorf("%v", s.Stopped)
			}
		})
	}
}

// TestResetsCountOnce: what is counted while reports are reset is in one report, and only in one.
func TestResetsCountOnce(t *testing.T) {
	t.Parallel()

	const n = 200_000
	c, done, reported := worker.NewMirrorCounts(), make(chan bool), int64(0)
	go func() {
		defer close(done)
		for range n {
			c.Skip(worker.MirrorFull)
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		reported += c.SinceReset(true).Ended[worker.MirrorFull]
	}
	if reported != n {
		t.Errorf("%d are reported of %d", reported, n)
	}
}
