package contestant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"text/template"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// LaneName is the name of the kind that is `penstock run` with sessions that leave user space.
const LaneName = "penstock-run-lane"

// laneStart is how long a process with a lane may take to start. The kernel verifies its programs for a third of a
// second of CPU time, and a busy machine may not have that for a long time.
const laneStart = 2 * time.Minute

// errOrdinary says why an ordinary user has no lane.
var errOrdinary = errors.New("sessions leave user space by BPF programs, which need CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN: run the command as root")

// laned is `penstock run` with the smallest file and `lane: auto`.
type laned struct{ balancer }

func newLaned() laned {
	return laned{balancer{text: template.Must(template.New(LaneName).Parse(`listeners: [{name: bench, bind: "{{.Listen}}", upstream: sink, lane: auto}]
upstreams: [{name: sink, endpoints: ["{{.Upstream}}"]}]
`))}}
}

func (laned) available(context.Context, *Setting) error {
	if os.Geteuid() != 0 {
		return errOrdinary
	}
	return nil
}

// start rejects a process that serves without a lane, because its results would have the wrong name.
func (l laned) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	c, err := l.balancer.start(ctx, name, s)
	if err != nil {
		return nil, err
	}
	a, err := c.Account(ctx)
	for err == nil && a.Summary.Lane != nil && a.Summary.Lane.State == admin.LaneOpening {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
			a, err = c.Account(ctx)
		}
	}
	if err == nil {
		err = laneOn(a.Summary.Lane)
	}
	if err != nil {
		c.Kill()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// laneOn returns the reason why sessions of a process with that lane do not leave user space, or nil if they can.
func laneOn(l *admin.Lane) error {
	switch {
	case l == nil:
		return errors.New("the status of the process has no lane")
	case l.State != admin.LaneOn:
		return fmt.Errorf("sessions stay in user space: the lane is %s: %s", l.State, cmp.Or(l.Why, "no reason given"))
	}
	return nil
}
