package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/million"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// simulate measures up to so many sessions that share their sockets. env is added to
// the environment of the processes.
func simulate(ctx context.Context, e *cli.Env, program *contestant.Program, most int, env string, out *million.Report) error {
	group := process.NewGroup()
	defer group.Close()
	return million.Measure(ctx, &million.Setup{
		Group: group,
		Part: func(form million.Form, n int) process.Spec {
			spec := program.Spec("the simulation", program.Part, million.Part, string(form), strconv.Itoa(n))
			if spec.Env == nil {
				spec.Env = os.Environ()
			}
			spec.Env = append(slices.Clip(spec.Env), env)
			return spec
		},
		Counts: million.Counts(most),
		Watch: func(form million.Form, n int, doing string) {
			fmt.Fprintf(e.Stderr, "simulated, %s  %9s sessions: %s\n", form, report.Exact(int64(n)), doing)
		},
	}, out)
}

// simulatedRow is a line of the table.
type simulatedRow struct {
	title string
	of    func(*million.Figures) report.Number
	write func(float64) string
}

var simulatedRows = []simulatedRow{
	{"user memory of a session", func(f *million.Figures) report.Number { return f.RssAnonBytes }, report.Bytes},
	{"of that, objects on the heap", func(f *million.Figures) report.Number { return f.HeapBytes }, report.Bytes},
	{"message over any session, median", func(f *million.Figures) report.Number { return f.Message.P50 }, report.Seconds},
	{"message over any session, p99", func(f *million.Figures) report.Number { return f.Message.P99 }, report.Seconds},
	{"over one of 64 hot ones, median", func(f *million.Figures) report.Number { return f.Message.HotP50 }, report.Seconds},
	{"over one of 64 hot ones, p99", func(f *million.Figures) report.Number { return f.Message.HotP99 }, report.Seconds},
	{"ratio of the two, median", func(f *million.Figures) report.Number { return f.Message.Ratio }, report.Ratio},
	{"table: find a registration", func(f *million.Figures) report.Number { return f.Table.Find }, report.Seconds},
	{"  one and the same", func(f *million.Figures) report.Number { return f.Table.Hot }, report.Seconds},
	{"timer: arm", func(f *million.Figures) report.Number { return f.Wheel.Arm }, report.Seconds},
	{"  move", func(f *million.Figures) report.Number { return f.Wheel.Move }, report.Seconds},
	{"  move one and the same", func(f *million.Figures) report.Number { return f.Wheel.Hot }, report.Seconds},
	{"  disarm", func(f *million.Figures) report.Number { return f.Wheel.Disarm }, report.Seconds},
	{"  advance until it is called", func(f *million.Figures) report.Number { return f.Wheel.Expire }, report.Seconds},
	{"  turn with up to 1,000, median", func(f *million.Figures) report.Number { return f.Wheel.Turn }, report.Seconds},
	{"  longest turn", func(f *million.Figures) report.Number { return f.Wheel.LongestTurn }, report.Seconds},
	{"  all due together, one of them", func(f *million.Figures) report.Number { return f.Wheel.Together }, report.Seconds},
	{"  longest turn", func(f *million.Figures) report.Number { return f.Wheel.TogetherTurn }, report.Seconds},
	{"idle timeout: look and arm again", func(f *million.Figures) report.Number { return f.Idle.Session }, report.Seconds},
	{"  turn with up to 1,000, median", func(f *million.Figures) report.Number { return f.Idle.Turn }, report.Seconds},
	{"  longest turn", func(f *million.Figures) report.Number { return f.Idle.LongestTurn }, report.Seconds},
	{"arena: get a slot of 256 B", func(f *million.Figures) report.Number { return f.Slots.Get }, report.Seconds},
	{"  put one and get it again", func(f *million.Figures) report.Number { return f.Slots.PutGet }, report.Seconds},
	{"  one and the same", func(f *million.Figures) report.Number { return f.Slots.Hot }, report.Seconds},
	{"all stuck: heap beside the slot", func(f *million.Figures) report.Number { return f.Stuck.HeapBytes }, report.Bytes},
	{"  read and put away, median", func(f *million.Figures) report.Number { return f.Stuck.Stash }, report.Seconds},
	{"  write in the end, median", func(f *million.Figures) report.Number { return f.Stuck.Deliver }, report.Seconds},
	{"collection: longest pause of ten", func(f *million.Figures) report.Number { return f.Collect.Pause }, report.Seconds},
	{"  longest pause of one, median", func(f *million.Figures) report.Number { return f.Collect.UsualPause }, report.Seconds},
	{"  longest pause, no message passes", func(f *million.Figures) report.Number { return f.Collect.RestPause }, report.Seconds},
	{"  time of one, median", func(f *million.Figures) report.Number { return f.Collect.Wall }, report.Seconds},
	{"  CPU of one", func(f *million.Figures) report.Number { return f.Collect.CPU }, report.Seconds},
	{"  message meanwhile, p99", func(f *million.Figures) report.Number { return f.Collect.MessageP99 }, report.Seconds},
	{"  message meanwhile, longest", func(f *million.Figures) report.Number { return f.Collect.Longest }, report.Seconds},
}

// simulated has a column for each process.
func (p *idlePage) simulated(r *million.Report) {
	p.heading("Towards a million: sessions that share their sockets")
	var t report.Table
	form, head := []string{""}, []string{"sessions"}
	for _, row := range r.Rows {
		form, head = append(form, string(row.Form)), append(head, report.Exact(int64(row.Sessions)))
	}
	t.Row(form...)
	t.Row(head...)
	for _, line := range simulatedRows {
		cells := []string{line.title}
		for _, row := range r.Rows {
			cells = append(cells, line.cell(row.Figures))
		}
		t.Row(cells...)
	}
	p.table(&t)
	p.left(r)
	p.simulatedLegend(r)
}

func (l *simulatedRow) cell(f *million.Figures) string {
	if f == nil {
		return report.Unknown
	}
	return l.write(float64(l.of(f)))
}

// left reports the rows that were not measured, and an extrapolation for them.
func (p *idlePage) left(r *million.Report) {
	for _, row := range r.Rows {
		if row.Missing != "" {
			p.prose("%s, %s sessions: not measured, for %s.", row.Form, report.Exact(int64(row.Sessions)), row.Missing)
		}
	}
	if len(r.Rows) < 2 {
		return
	}
	last, most := r.Rows[len(r.Rows)-1], r.Rows[len(r.Rows)-2]
	if last.Form == million.Goroutines && last.Figures != nil && last.Sessions < most.Sessions {
		p.prose("goroutines, %s sessions: not measured; by the %s of one they would take %s (extrapolated).",
			report.Exact(int64(most.Sessions)), report.Bytes(float64(last.Figures.RssAnonBytes)),
			report.Bytes(float64(last.Figures.RssAnonBytes)*float64(most.Sessions)))
	}
}

// simulatedLegend explains the table.
func (p *idlePage) simulatedLegend(r *million.Report) {
	p.line("")
	p.prose(`Every column is a process of its own. Sessions, session table, timer wheel and arena are Penstock's; the sockets are not one for
		each: session i is on pair i mod %d of unix sockets, for which each of its two registrations tells nothing. Messages of %d bytes are written
		into a pair, and the session is told of them by a call that finds its registration and then does what an event does, so reading and writing
		are system calls, and what is missing is epoll_wait and the kernel's own cache misses. Each message over a session chosen at random is paired
		with one over a session, on the same sockets, that is one of %d: what differs is whether a session is in the caches. All sessions have moved
		a message before their idle timers were due.`, r.SharedPairs, r.MessageBytes, r.SharedPairs)
	p.prose(`Timers, slots and registrations are taken in random order, the idle timers in the order in which the sessions began; turns are
		in processor time of the loop's thread, and the longest are those in which a long list of the wheel is spread over shorter ones. Stuck is every
		session with %d bytes that its destination does not take. Garbage is collected ten times over while no message passes, and while
		messages do. Of 1,000 sessions, what the
		process itself adds shows in the user memory. Goroutines wait for a channel, not for the poller, which would be dearer.`, slotBytes(r))
}

func slotBytes(r *million.Report) int {
	for _, row := range r.Rows {
		if row.Figures != nil && row.Figures.Slots.SlotBytes > 0 {
			return row.Figures.Slots.SlotBytes
		}
	}
	return 0
}
