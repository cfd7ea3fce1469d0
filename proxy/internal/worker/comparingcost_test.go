package worker_test

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/worker"
)

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
