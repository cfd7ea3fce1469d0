package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

// A demoView writes lines, and on a terminal a picture below them that changes. It is safe for
// concurrent use.
type demoView struct {
	w    io.Writer
	live bool // on a terminal

	mu      sync.Mutex
	picture []string
	second  int // of the last line, unless live
}

func newDemoView(e *cli.Env) *demoView {
	_, live := cli.TerminalWidth(e.Stdout, e.Getenv)
	return &demoView{w: e.Stdout, live: live, second: -1}
}

// print writes text above the picture.
func (v *demoView) print(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	fmt.Fprint(v.w, text)
	v.redraw()
}

func (v *demoView) heading(text string) { v.print("\n" + text + "\n\n") }

// event writes a line of the course.
func (v *demoView) event(at time.Duration, text string) {
	v.print(fmt.Sprintf("%5.1f s  %s\n", at.Seconds(), text))
}

// draw replaces the picture. On no terminal its last line is written once in a second.
func (v *demoView) draw(at time.Duration, picture []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.live {
		if s := int(at.Seconds()); s != v.second {
			v.second = s
			fmt.Fprintf(v.w, "%5.1f s    %s\n", at.Seconds(), picture[len(picture)-1])
		}
		return
	}
	v.erase()
	v.picture = picture
	v.redraw()
}

// erase moves the cursor up and erases the picture (ECMA-48, CUU and ED).
func (v *demoView) erase() {
	if len(v.picture) > 0 {
		fmt.Fprintf(v.w, "\x1b[%dA\x1b[J", len(v.picture))
	}
}

func (v *demoView) redraw() {
	for _, line := range v.picture {
		fmt.Fprintln(v.w, line)
	}
}

// finish leaves the last picture where it is.
func (v *demoView) finish() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.picture = nil
}

// table returns the picture: a line for each endpoint, and one for all of the clients.
func (d *demo) table(s *admin.Status, r demoResult) []string {
	lines := []string{"", "  endpoint  state     active  clients served"}
	var states []string
	for _, u := range s.Upstreams {
		for _, ep := range u.Endpoints {
			lines = append(lines, fmt.Sprintf("  %-8s  %-8s  %6d  %14d", ep.Name, ep.State, ep.Active, r.served[ep.Name]))
			states = append(states, fmt.Sprintf("%s %s", ep.Name, ep.State))
		}
	}
	cut, unanswered := r.cut()
	return append(lines, fmt.Sprintf("%s; clients: %d served, %d cut, %d without an answer; the longest waited %v", strings.Join(states, ", "), r.all(), cut, unanswered, r.longest.Round(100*time.Microsecond)))
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
  penstock drain %s --upstream app --endpoint one
  penstock weight %s --upstream app --endpoint two 3

`, strings.Replace(d.address, ":", " ", 1), at, at, at))
}

// indent indents lines.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}
