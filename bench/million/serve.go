package million

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/penstock/penstock/bench/report"
)

// Part is the name of the part that runs Serve. Its arguments are the form and the
// number of sessions.
const Part = "million"

// said is a line of a part's standard output.
type said struct {
	Doing   string   `json:"doing,omitempty"`
	Figures *Figures `json:"figures,omitempty"` // the last
}

// teller writes the lines of output.
type teller struct {
	out *json.Encoder
}

func (t *teller) doing(text string) {
	_ = t.out.Encode(said{Doing: text}) // if the reader is gone, the last line fails too
}

// Serve measures one form with n sessions. It writes its progress and at last its figures, in
// lines of JSON. It is the whole of a process: it leaves sockets and memory behind.
func Serve(form Form, n int, out io.Writer) error {
	t, begun := &teller{out: json.NewEncoder(out)}, time.Now()
	f := newFigures()
	var err error
	switch form {
	case Loop:
		err = f.ofLoop(n, t)
	case Goroutines:
		err = f.ofGoroutines(n, t)
	default:
		err = fmt.Errorf("million: no form %q: write %s or %s", form, Loop, Goroutines)
	}
	if err != nil {
		return err
	}
	f.ElapsedSeconds = seconds(time.Since(begun))
	return t.out.Encode(said{Figures: f})
}

// ofLoop measures Penstock.
func (f *Figures) ofLoop(n int, t *teller) error {
	t.doing("timers and slots without sessions")
	w, err := wheel(n)
	if err != nil {
		return err
	}
	s, err := slots(n)
	if err != nil {
		return err
	}
	f.Wheel, f.Slots = *w, *s
	c, err := newCrowd(n)
	if err != nil {
		return err
	}
	k, err := c.silent()
	if err != nil {
		return err
	}
	defer k.close()
	t.doing("sessions begin")
	if err := f.begin(n, func() error { return c.fill(begunFrom, begunTo) }); err != nil {
		return err
	}
	return f.ofCrowd(c, n, t)
}

// begin measures the memory that starting all sessions adds.
func (f *Figures) begin(n int, start func() error) error {
	before, err := held()
	if err != nil {
		return err
	}
	if err := start(); err != nil {
		return err
	}
	now, err := held()
	f.RssAnonBytes = report.Number(float64(now.rssAnon-before.rssAnon) / float64(n))
	f.HeapBytes = report.Number(float64(now.heap-before.heap) / float64(n))
	return err
}

// ofCrowd measures sessions that have begun.
func (f *Figures) ofCrowd(c *crowd, n int, t *teller) error {
	f.Table = *c.table()
	if err := f.talk(n, c.message, t, func(done, all int) { c.clock.between(talkFrom, talkTo, done, all) }); err != nil {
		return err
	}
	t.doing("idle timers are due")
	idle, err := c.idle(n)
	if err != nil {
		return err
	}
	t.doing("destinations do not read")
	stuck, err := c.stuck()
	if err != nil {
		return err
	}
	if len(c.ended) > 0 || c.driver.Sessions() != n {
		return fmt.Errorf("million: %d of %d sessions are left: %v", c.driver.Sessions(), n, c.ended)
	}
	f.Idle, f.Stuck = *idle, *stuck
	runtime.KeepAlive(c)
	return nil
}

// talk measures messages, and collections meanwhile.
func (f *Figures) talk(n int, message func(i int) (time.Duration, error), t *teller, progress func(done, all int)) error {
	t.doing("messages through all sessions")
	m, err := converse(n, message, progress)
	if err != nil {
		return err
	}
	t.doing("collections of garbage")
	g, err := collect(n, message)
	if err != nil {
		return err
	}
	f.Message, f.Collect = *m, *g
	return nil
}
