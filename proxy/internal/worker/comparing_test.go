package worker_test

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

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

// TestComparingIsBounded: however much both sides answer, and how different that is, no session takes more memory than
// it may have, and all of it is given back.
func TestComparingIsBounded(t *testing.T) {
	t.Parallel()

	const sessions, flood = 8, 4 << 20
	flooding := func(c byte) string {
		return sockets.Server(t, func(conn net.Conn) {
			if _, err := conn.Read(make([]byte, 100)); err == nil {
				_, _ = conn.Write(bytes.Repeat([]byte{c}, flood))
				_, _ = conn.Write(bytes.Repeat([]byte{c, '\n'}, flood/2))
			}
		})
	}
	plan, err := compare.NewPlan(compare.Config{Framing: compare.Lines, Examples: 100})
	if err != nil {
		t.Fatal(err)
	}
	budget := compare.NewBudget(compare.TotalBytes)
	k, shadow := worker.NewComparison(plan, true, budget), flooding('b')
	r, counts := mirroringTo(t, flooding('a'), time.Minute, func() *worker.Mirror {
		of := mirrorTo(shadow)()
		of.Compare = k
		return of
	})
	r.serve(t)
	var most int64
	var clients []net.Conn
	for range sessions {
		c := r.dial(t)
		if _, err := c.Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		for b := make([]byte, 64<<10); ; {
			most = max(most, budget.Used())
			if _, err := c.Read(b); err != nil {
				break
			}
		}
		_ = c.Close()
	}
	eventually(t, func() bool { return r.Active() == 0 && counts.Totals(false).Running == 0 })
	if most > sessions*compare.SessionBytes || budget.Used() != 0 {
		t.Errorf("%d bytes were in use, and %d are", most, budget.Used())
	}
	if s := k.Report().Snapshot(); s.Sessions != sessions || s.Equal != 0 {
		t.Errorf("%+v", s)
	}
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
