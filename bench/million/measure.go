package million

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// Setup is the setup of a measurement.
type Setup struct {
	Group *process.Group // starts the processes; the caller owns it
	// Part runs Serve.
	Part   func(form Form, n int) process.Spec
	Counts []int // of sessions, each at least 1
	// Watch is called with the activity of a process.
	Watch func(form Form, n int, doing string)
}

// Report is the result of Measure, and the content of --json.
type Report struct {
	MessageBytes int   `json:"message_bytes"`
	SharedPairs  int   `json:"sessions_share_socket_pairs"` // two for each of so many sessions
	Rows         []Row `json:"rows"`
}

// Row is one process.
type Row struct {
	Form     Form     `json:"form"`
	Sessions int      `json:"sessions"`
	Missing  string   `json:"missing,omitempty"` // why there are no figures
	Figures  *Figures `json:"figures,omitempty"`
}

const (
	// mostGoroutines is for how many sessions there are goroutines: more take more
	// memory than machines have to spare.
	mostGoroutines = 10_000
	// spareMemory is for a process without sessions, and for everything else on the machine,
	// in bytes.
	spareMemory = 512 << 20
)

// sessionMemory is more than a session takes in its process, in bytes, everything
// that is measured about it included.
var sessionMemory = map[Form]int64{Loop: 2 << 10, Goroutines: 96 << 10}

// Counts are those of sessions up to the most, to show the curve.
func Counts(most int) []int {
	var counts []int
	for n := 1000; n < most; n *= 10 {
		counts = append(counts, n)
	}
	return append(counts, most)
}

// Measure runs a process for Penstock with each number of sessions, and one for goroutines.
// It writes each result into out as soon as it has it. A number of sessions that exceeds the
// memory is left out, and its row says so.
func Measure(ctx context.Context, s *Setup, out *Report) error {
	out.MessageBytes, out.SharedPairs = messageSize, shared
	for _, n := range s.Counts {
		if err := s.row(ctx, Loop, n, out); err != nil {
			return err
		}
	}
	return s.row(ctx, Goroutines, min(s.Counts[len(s.Counts)-1], mostGoroutines), out)
}

// row measures one form with n sessions.
func (s *Setup) row(ctx context.Context, form Form, n int, out *Report) error {
	r := Row{Form: form, Sessions: n}
	free, err := kilobytes("/proc/meminfo", "MemAvailable:")
	if need := sessionMemory[form]*int64(n) + spareMemory; err == nil && free < need {
		r.Missing = fmt.Sprintf("that takes up to %s of memory, and %s is available", report.Bytes(float64(need)), report.Bytes(float64(free)))
		out.Rows = append(out.Rows, r)
		return nil
	}
	if r.Figures, err = s.run(ctx, form, n); err != nil {
		return fmt.Errorf("%s with %d sessions: %w", form, n, err)
	}
	out.Rows = append(out.Rows, r)
	return nil
}

// run is a process, from its start to its figures.
func (s *Setup) run(ctx context.Context, form Form, n int) (*Figures, error) {
	c, err := s.Group.Start(s.Part(form, n))
	if err != nil {
		return nil, err
	}
	defer c.Kill()
	for {
		line, err := c.Stdout(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		}
		var say said
		if err := json.Unmarshal([]byte(line), &say); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if say.Figures != nil {
			return say.Figures, nil
		}
		s.Watch(form, n, say.Doing)
	}
}
