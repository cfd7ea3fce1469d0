package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/top"
)

// A demoView writes lines. On a terminal it shows the view of penstock top meanwhile, with the lines as its
// notes, and writes them when that ends. It is safe for concurrent use.
type demoView struct {
	w io.Writer

	mu     sync.Mutex
	live   *top.Program // nil: it is not shown
	ended  chan error   // of the view
	kept   strings.Builder
	second int // of the last result, unless it is shown
}

func newDemoView(e *cli.Env) *demoView { return &demoView{w: e.Stdout, second: -1} }

// show shows a process, if there is a terminal, until finish. When its user ends it, stop is called.
func (v *demoView) show(ctx context.Context, e *cli.Env, source top.Source, stop func()) {
	if !onTerminal(e) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = make(chan error, 1)
	p := top.New(ctx, top.Config{Source: source, Interval: demoInterval, Title: "penstock demo", Input: os.Stdin, Output: e.Stdout, Getenv: e.Getenv})
	v.live = p
	go func() {
		err := p.Run()
		stop()
		v.ended <- err
	}()
}

// demoInterval is the time between two looks.
const demoInterval = 500 * time.Millisecond

// print writes text.
func (v *demoView) print(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.live == nil {
		fmt.Fprint(v.w, text)
		return
	}
	v.kept.WriteString(text)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			v.live.Note(line)
		}
	}
}

func (v *demoView) heading(text string) { v.print("\n" + text + "\n\n") }

// event writes a line of the course.
func (v *demoView) event(at time.Duration, text string) {
	v.print(fmt.Sprintf("%5.1f s  %s\n", at.Seconds(), text))
}

// result shows the result so far. On no terminal it is written once in a second.
func (v *demoView) result(at time.Duration, states, clients string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.live != nil {
		v.live.Summarize(clients)
		return
	}
	if s := int(at.Seconds()); s != v.second {
		v.second = s
		fmt.Fprintf(v.w, "%5.1f s    %s; %s\n", at.Seconds(), states, clients)
	}
}

// finish ends the view, and writes the lines that it had as notes.
func (v *demoView) finish() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.live == nil {
		return nil
	}
	v.live.Quit()
	err := <-v.ended
	v.live = nil
	_, failed := io.WriteString(v.w, v.kept.String())
	return errors.Join(err, failed)
}

// statesOf is the states of the endpoints.
func statesOf(s *admin.Status) string {
	var states []string
	for _, u := range s.Upstreams {
		for _, ep := range u.Endpoints {
			states = append(states, fmt.Sprintf("%s %s", ep.Name, ep.State))
		}
	}
	return strings.Join(states, ", ")
}

// line is the result of the clients so far.
func (r *demoResult) line() string {
	cut, unanswered := r.cut()
	return fmt.Sprintf("clients: %d served, %d cut, %d without an answer; the longest waited %v", r.all(), cut, unanswered, r.longest.Round(100*time.Microsecond))
}

// printResult writes the clients' results.
func (v *demoView) printResult(r *demoResult, stayed bool) {
	var by []string
	for _, name := range demoNames {
		by = append(by, fmt.Sprintf("%s %d", name, r.served[name]))
	}
	v.heading("Results of the clients:")
	v.print(fmt.Sprintf("  %d served (%s), the longest waited %v for its first answer\n", r.all(), strings.Join(by, ", "), r.longest.Round(100*time.Microsecond)))
	cut, unanswered := r.cut()
	v.print(fmt.Sprintf("  %d lost their sessions with the endpoint that died\n  %d got no answer\n", cut, unanswered))
	if !stayed {
		v.heading("Try next:")
		v.print(`  penstock demo --stay                              go on, and change it yourself
  penstock proxy --listen :8080 --to HOST:PORT      forward a port
  penstock run penstock.yaml                        a load balancer, by a file as above
`)
	}
}

// printStay writes the commands for a demo that stays.
func (v *demoView) printStay(d *demo) {
	at := "--admin unix:" + d.socket
	v.heading("It goes on until Ctrl-C. Try:")
	v.print(fmt.Sprintf(`  echo hello | nc -N %s
  penstock status %s
  penstock endpoint drain %s app one
  penstock endpoint weight %s app two 3

`, strings.Replace(d.address, ":", " ", 1), at, at, at))
}

// indent indents lines.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}
