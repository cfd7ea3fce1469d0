// Package reload measures the cost of changing the configuration of a `penstock run` that serves: how long it
// takes until the new state serves its first connection, how long the swap takes, and how long the loops keep
// clients waiting meanwhile. It also measures what a thousand reloads in a row leave behind.
//
// The load balancer, the endpoints and the clients are separate processes. One process is any number of endpoints:
// it listens on every address, and the endpoints are addresses below 127.0.0.0/8 with its port. In fact it has two
// ports, and greets each client with the letter of the port. So a client knows which configuration has served it.
package reload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/proxy/admin"
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

func (s *Setup) endpoints(ctx context.Context) (ports []int, stop func(), err error) {
	var at listening
	child, err := s.Group.Begin(ctx, s.Program.Spec("the endpoints", s.Program.Part, PartEndpoints), nil, &at)
	if err != nil {
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
	r = *report.Over[Round](nil, report.Sample.Median) // nothing is measured yet
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

// probe connects until it is greeted with the letter, and returns when that was.
func (s *Setup) probe(ctx context.Context, address string, letter byte) (at time.Time, err error) {
	var c net.Conn
	for {
		closed := s.Group.Do(func() { c, err = net.DialTimeout("tcp", address, patience) })
		if err = errors.Join(err, closed); err != nil {
			return at, fmt.Errorf("a connection was refused: %w", err)
		}
		b := make([]byte, 1)
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = io.ReadFull(c, b)
		at = time.Now()
		_ = c.Close()
		switch {
		case err != nil:
			return at, fmt.Errorf("a connection was not served: %w", err)
		case b[0] == letter:
			return at, nil
		case ctx.Err() != nil:
			return at, context.Cause(ctx)
		}
	}
}

// quietTime is the time before each reload in which there is no reload.
const quietTime = 500 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// running is a `penstock run` that is measured.
type running struct {
	child *process.Child
	file  string
	admin *admin.Client
}

// begin starts a process with a configuration, and returns once its admin API answers.
func (s *Setup) begin(ctx context.Context, dir, text, socket string) (*running, error) {
	b := &running{file: filepath.Join(dir, "penstock.yaml")}
	if err := b.write(text); err != nil {
		return nil, err
	}
	var err error
	if b.admin, err = admin.NewClient("unix:" + socket); err != nil {
		return nil, err
	}
	b.child, err = s.Group.Start(s.Program.Penstock("penstock run", s.Program.Run, "--config", b.file, "--log", "json", "--log-level", "warn", "--turn-cpu"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("penstock run did not start within %v", startTime))
	defer cancel()
	for {
		if _, err := b.admin.Generations(ctx); err == nil {
			return b, nil
		}
		select {
		case <-b.child.Done():
			return nil, contestant.Describe(b.child.Err())
		case <-ctx.Done():
			b.child.Kill()
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startTime is how long a process with thousands of listeners may take to start.
const startTime = 30 * time.Second

func (b *running) write(text string) error {
	next := b.file + ".new"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, b.file)
}

func (b *running) summary(ctx context.Context) (*admin.Summary, error) {
	st, err := b.admin.Status(ctx)
	return &st.Summary, err
}

// overruns returns the number of turns, of all loops, that used a millisecond of CPU time.
func overruns(s *admin.Summary) (n int64) {
	for _, l := range s.Loops {
		n += l.Overruns
	}
	return n
}

// turns returns the number of long turns of all loops, and the longest turn.
func turns(s *admin.Summary) (long int64, longest time.Duration) {
	for _, l := range s.Loops {
		long += l.LongTurns
		longest = max(longest, time.Duration(l.LagMaxUs)*time.Microsecond)
	}
	return long, longest
}
