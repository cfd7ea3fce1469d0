package router_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestChecksAreNoWitnessForHandshakes: an endpoint that is ejected because clients cannot connect to
// it returns with a check that does; one whose handshakes fail does not.
func TestChecksAreNoWitnessForHandshakes(t *testing.T) {
	for want, err := range map[bool]error{
		true:  &tlsterm.Error{Peer: "with 10.0.0.1:80", Err: errors.New("unknown authority")},
		false: syscall.ECONNREFUSED,
	} {
		r := newRig(t, 2, router.SnapshotConfig{Attempts: 1}, nil)
		outlier := health.NewOutlierDetector(r.keeper, &health.OutlierConfig{ConsecutiveFailures: 5, BaseEjectionTime: time.Minute, MaxEjected: 0.5})
		e := r.endpoint(0)
		for i := range 2 {
			r.endpoint(i).SetMonitor(outlier.Add("e", r.endpoint(i)))
		}
		for range 1000 {
			if e.State().Ejected {
				break
			}
			s, _ := r.search()
			if step := s.Next(r.clock); step.Action == worker.Connect && step.Address.AddrPort.String() == e.Address.Name {
				s.Failed(err, r.clock)
			}
			s.Close()
		}
		if !e.State().Ejected {
			t.Fatalf("%v: it is not ejected", err)
		}
		r.clock += int64(time.Second)
		if e.Passed(r.clock, new(health.CheckConfig)); e.State().Ejected != want {
			t.Errorf("%v: after a check that has connected it is ejected: %v", err, !want)
		}
	}
}
