package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/proxy/rollback"
)

// somePort returns a port at which usually no other process listens.
func somePort() int { return 10_000 + rand.IntN(10_000) }

// endpointsEach is the number of endpoints of an upstream in a row of reloads.
const endpointsEach = 10

// row makes many reloads in a row, while some clients are idle and others come and go.
func (s *Setup) row(ctx context.Context, ports []int) (*Long, error) {
	l := &Long{Listeners: s.RowListeners, Endpoints: s.RowListeners * endpointsEach}
	dir, shape, remove, err := s.place("row", l.Listeners, l.Endpoints)
	if err != nil {
		return l, err
	}
	defer remove()
	b, err := s.begin(ctx, dir, rowText(shape, ports, 0), shape.Admin)
	if err != nil {
		return l, err
	}
	defer b.child.Kill()
	p := plan{Idle: s.Idle, Busy: s.Busy}
	for i := range l.Listeners {
		p.Addresses = append(p.Addresses, shape.address(i))
	}
	clients, err := s.clients(ctx, p)
	if err != nil {
		return l, err
	}
	defer clients.Kill()
	began := time.Now()
	for l.Reloads < s.Reloads && err == nil {
		if err = b.once(ctx, rowText(shape, ports, l.Reloads+1)); err != nil {
			break
		}
		l.Reloads++
		l.Elapsed = report.Number(time.Since(began).Seconds())
		err = s.look(ctx, l, b)
	}
	if err != nil {
		return l, err
	}
	if err := clients.Send("end"); err != nil {
		return l, err
	}
	var e event
	err = clients.Receive(ctx, &e)
	l.Clients = e.Clients
	l.judge()
	return l, contestant.Describe(cmp.Or(err, e.err()))
}

// once makes one reload.
func (b *running) once(ctx context.Context, text string) error {
	if err := b.write(text); err != nil {
		return err
	}
	_, err := b.admin.Reload(ctx, rollback.Options{})
	return err
}

// looks is how often in a row the resources of the process are read.
const looks = 10

// look reads the resources that the process holds.
func (s *Setup) look(ctx context.Context, l *Long, b *running) error {
	every := max(s.Reloads/looks, 1)
	if l.Reloads%every != 0 && l.Reloads != s.Reloads {
		return nil
	}
	sum, err := b.summary(ctx)
	if err != nil {
		return err
	}
	m, err := b.child.Memory()
	if err != nil {
		return err
	}
	l.Held = append(l.Held, Held{
		Reloads: l.Reloads, RssAnon: report.Number(m.RssAnon), Descriptors: m.Descriptors, Goroutines: sum.Goroutines,
	})
	s.Notify(rounds.Progress{Doing: "in a row", Result: fmt.Sprintf("%d of %d reloads", l.Reloads, s.Reloads)})
	return nil
}

// rowText returns the n-th configuration of a row. A limit changes, and one of ten endpoints is replaced.
func rowText(s *shape, ports []int, n int) string {
	return s.text(func(e int) int {
		if e%endpointsEach == n%endpointsEach {
			return ports[1]
		}
		return ports[0]
	}, 1_000_000+n%2)
}

// clients starts clients, and returns once the idle clients are connected.
func (s *Setup) clients(ctx context.Context, p plan) (*process.Child, error) {
	var e event
	child, err := s.Group.Begin(ctx, s.Program.Spec("the clients", s.Program.Part, PartClients), p, &e)
	if err == nil {
		err = e.err()
	}
	if err != nil {
		child.Kill()
		return nil, contestant.Describe(err)
	}
	return child, nil
}

func (e *event) err() error {
	if e.Error != "" {
		return errors.New("the clients failed: " + e.Error)
	}
	return nil
}

// A shape is the size of a configuration.
type shape struct {
	Admin     string // unix socket
	Port      int    // the listeners' port
	Listeners int    // number of listeners, each with its own upstream
	Endpoints int    // number of endpoints of all upstreams
	Interval  string // interval of health checks, or "" for none
}

func endpoint(n, port int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+n>>14, n>>7&127, 1+n&127, port)
}

// address returns the address of a listener. Each listener has another one, and no client connects from it.
func (s *shape) address(listener int) string {
	return fmt.Sprintf("127.200.%d.%d:%d", listener>>7, 1+listener&127, s.Port)
}

// text returns a configuration. The n-th endpoint is at port(n). rate is a number in each listener that can be
// changed at will.
func (s *shape) text(port func(n int) int, rate int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "admin: {bind: \"unix:%s\"}\nlisteners:\n", s.Admin)
	for i := range s.Listeners {
		fmt.Fprintf(&b, "  - {name: l%d, bind: %q, upstream: u%d, allow: [\"127.0.0.0/8\"], limits: {per_source_per_second: %d}}\n", i, s.address(i), i, rate)
	}
	b.WriteString("upstreams:\n")
	check := "off"
	if s.Interval != "" {
		check = "{interval: " + s.Interval + "}"
	}
	for i, n := 0, 0; i < s.Listeners; i++ {
		fmt.Fprintf(&b, "  - {name: u%d, on_removed: keep, health_check: %s, endpoints: [", i, check)
		for ; n < (i+1)*s.Endpoints/s.Listeners; n++ {
			fmt.Fprintf(&b, "%q, ", endpoint(n, port(n)))
		}
		b.WriteString("]}\n")
	}
	return b.String()
}
