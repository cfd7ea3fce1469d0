package reload

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
)

// Setup is the setup of a measurement.
type Setup struct {
	rounds.Setup // the rounds of each kind of reload; Rounds may be 0
	Program      contestant.Program
	Dir          string // directory for configurations and sockets; the caller removes it

	Listeners, Endpoints int
	// Interval is the interval of the endpoints' health checks, or "" for none.
	Interval string

	Reloads      int // number of reloads in a row; 0: no row
	Idle, Busy   int // numbers of clients during the row
	RowListeners int // number of listeners in the row, with ten endpoints each
}

// Measure makes all measurements. If it fails, or ctx ends, it returns the results so far together with the error.
// When it returns, everything that it has started has ended, except for processes that end with the group.
func Measure(ctx context.Context, s Setup) (*Report, error) {
	s.Rounds += s.Rounds % 2 // so that each kind of reload begins with the same configuration
	r := &Report{Listeners: s.Listeners, Endpoints: s.Endpoints, Interval: s.Interval}
	ports, stop, err := s.endpoints(ctx)
	if err != nil {
		return r, err
	}
	defer stop()
	if s.Rounds > 0 {
		err = s.kinds(ctx, r, ports)
		for i := range r.Rows {
			r.Rows[i].sum()
		}
	}
	if err == nil && s.Reloads > 0 {
		r.Steady, err = s.row(ctx, ports)
	}
	return r, err
}

// endpoints starts the endpoints.
func (s *Setup) endpoints(ctx context.Context) (ports []int, stop func(), err error) {
	child, err := s.Group.Start(s.Program.Spec("the endpoints", s.Program.Part, PartEndpoints))
	if err != nil {
		return nil, nil, err
	}
	line, err := child.Stdout(ctx)
	var at listening
	if err == nil {
		err = json.Unmarshal([]byte(line), &at)
	}
	if err != nil {
		child.Kill()
		return nil, nil, contestant.Describe(err)
	}
	return at.Ports, child.Kill, nil
}

// place makes a directory, and the shape of a configuration in it. remove removes the directory of the admin
// socket, if that is another directory.
func (s *Setup) place(name string, listeners, endpoints int) (dir string, sh *shape, remove func(), err error) {
	dir, err = os.MkdirTemp(s.Dir, name+"-")
	if err != nil {
		return "", nil, nil, err
	}
	sh = &shape{Port: somePort(), Listeners: listeners, Endpoints: endpoints, Interval: s.Interval}
	sh.Admin, remove, err = contestant.AdminSocket(dir)
	return dir, sh, remove, err
}

// kinds measures every kind of reload.
func (s *Setup) kinds(ctx context.Context, r *Report, ports []int) error {
	dir, shape, remove, err := s.place("reload", s.Listeners, s.Endpoints)
	if err != nil {
		return err
	}
	defer remove()
	const rate = 1_000_000
	first := s.Endpoints - s.Endpoints/s.Listeners // the first endpoint of the last listener
	// The endpoints change from a to b, and back.
	all := func(letter int) string { return shape.text(func(int) int { return ports[letter] }, rate) }
	one := func(letter int) string {
		return shape.text(func(n int) int {
			if n >= first {
				return ports[letter]
			}
			return ports[0]
		}, rate)
	}
	r.FileBytes = len(all(0))
	b, err := s.begin(ctx, dir, all(0), shape.Admin)
	if err != nil {
		return err
	}
	defer b.child.Kill()
	kinds := []struct {
		name, about string
		text        func(letter int) string
	}{
		{"one upstream", "the endpoints of one upstream are replaced, all else stays", one},
		{"everything", "every endpoint of every upstream is replaced", all},
	}
	m := &measuring{Setup: s, running: b, address: shape.address(s.Listeners - 1)}
	for _, k := range kinds {
		r.Rows = append(r.Rows, Row{Name: k.name, About: k.about})
		row := &r.Rows[len(r.Rows)-1]
		for i := range s.Rounds {
			letter := (i + 1) % len(letters)
			round, err := m.round(ctx, k.text(letter), letters[letter])
			if err != nil {
				return err
			}
			row.Rounds = append(row.Rounds, round)
			s.Notify(rounds.Progress{Round: i + 1, Case: k.name, Result: report.Seconds(float64(round.First)) + " to the first connection"})
		}
	}
	return nil
}

// measuring makes reloads of one process.
type measuring struct {
	*Setup
	*running
	address string // address of the listener to which the probe connects
}

// afterwards is the time for the effects of a swap, such as garbage collections and the end of removed parts.
const afterwards = 200 * time.Millisecond

// round measures the time before a reload, and then the reload.
func (m *measuring) round(ctx context.Context, text string, letter byte) (r Round, err error) {
	for _, f := range r.figures() {
		*f = report.Unmeasured()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("a reload was not in force within %v", startTime))
	defer cancel()
	if err := m.write(text); err != nil {
		return r, err
	}
	before, err := m.summary(ctx)
	if err != nil {
		return r, err
	}
	pause(ctx, quietTime)
	quiet, err := m.summary(ctx)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := m.child.Signal(syscall.SIGHUP); err != nil {
		return r, err
	}
	at, err := m.probe(ctx, m.address, letter)
	if err != nil {
		return r, err
	}
	r.First = report.Number(at.Sub(began).Seconds())
	pause(ctx, afterwards)
	after, err := m.summary(ctx)
	if err != nil {
		return r, err
	}
	long0, _ := turns(before)
	long1, most1 := turns(quiet)
	long2, most2 := turns(after)
	r.Overruns = report.Number(overruns(after) - overruns(quiet))
	r.QuietTurns, r.LongTurns = report.Number(long1-long0), report.Number(long2-long1)
	if most2 > most1 {
		r.LongestTurn = report.Number(most2.Seconds())
	}
	status, err := m.admin.Status(ctx)
	if err != nil {
		return r, err
	}
	r.Prepared = report.Number(float64(status.Changes.PreparedUs) / 1e6)
	r.Swapped = report.Number(float64(status.Changes.SwappedUs) / 1e6)
	r.ValidToSwapped = r.Prepared + r.Swapped
	return r, nil
}

// quietTime is the time before each reload in which there is no reload.
const quietTime = 500 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
