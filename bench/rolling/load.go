package rolling

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/report"
)

// PartLoad is the name of the part that is all clients.
const PartLoad = "rolling-load"

// loadPlan is the first line that the load reads. Its first line says when it has begun; it
// then reads happened, and prints Figures for each address.
type loadPlan struct {
	Addresses []string      `json:"addresses"`
	Rate      float64       `json:"rate"`    // clients in a second, of each address
	Timeout   time.Duration `json:"timeout"` // of a client
	Length    time.Duration `json:"length"`
	Answer    int           `json:"answer"` // bytes of one, with its header
}

type begun struct {
	At time.Time `json:"at"`
}

// happened are the times at which endpoints failed.
type happened struct {
	Moments []moment `json:"moments"`
}

// moment is something that happened after From and was over before To, since the load's
// beginning.
type moment struct {
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
}

// RunPart is the load. It returns when its work is done, or ctx is, or in ends.
func RunPart(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := runLoad(ctx, in, out); err != nil {
		return fmt.Errorf("rolling: the load: %w", err)
	}
	return nil
}

func runLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var p loadPlan
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	if err := from.Decode(&p); err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	events := make(chan happened, 1)
	go func() {
		defer cancel() // also when in ends after that: the reader of the results is gone
		var h happened
		if from.Decode(&h) == nil {
			events <- h
			_ = from.Decode(&h)
		}
	}()
	start := time.Now()
	if err := to.Encode(begun{start}); err != nil {
		return err
	}
	ledgers := p.drive(ctx, start)
	select {
	case h := <-events:
		for i := range ledgers {
			if err := to.Encode(ledgers[i].sum(h.Moments)); err != nil {
				return err
			}
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drive has all clients come, and returns when the last has left. The addresses take turns,
// so that their clients are evenly spaced.
func (p *loadPlan) drive(ctx context.Context, start time.Time) []ledger {
	ledgers := make([]ledger, len(p.Addresses))
	endpoint.AtRate(ctx, start, p.Rate*float64(len(p.Addresses)), p.Length, func(i int, at time.Duration) {
		n := i / len(p.Addresses)
		i %= len(p.Addresses)
		began := start.Add(at)
		first, err := endpoint.Ask(ctx, endpoint.Request{
			Address: p.Addresses[i], From: source(n), Deadline: began.Add(p.Timeout), Answer: p.Answer,
		})
		c := client{began: at, ended: time.Since(start), wait: first.Sub(began)}
		if err != nil {
			c.lost = endpoint.Reason(err)
		}
		ledgers[i].add(c)
	})
	return ledgers
}

// sources is how many addresses clients come from, in turn. They are coprime to two and three
// endpoints, so that each address comes to each endpoint.
const sources = 17

// source is where the nth client comes from.
func source(n int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + n%sources)}) }

// client is the result of one.
type client struct {
	began, ended time.Duration // since the load's beginning
	wait         time.Duration // to the first byte, if it was served
	lost         string        // why it was lost; "" if it was served
}

// ledger are the clients of an address. It is safe for concurrent use.
type ledger struct {
	mu      sync.Mutex
	clients []client
}

func (l *ledger) add(c client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients = append(l.clients, c)
}

// sum adds up the clients. It is called when the last has left.
func (l *ledger) sum(moments []moment) *Figures {
	f := &Figures{Clients: int64(len(l.clients)), Reasons: make(map[string]int64)}
	var waits []time.Duration
	for _, c := range l.clients {
		switch {
		case c.lost == "":
			waits = append(waits, c.wait)
		case c.underWay(moments):
			f.UnderWay++
		default:
			f.Lost++
			f.Reasons[c.lost]++
		}
	}
	slices.Sort(waits)
	f.P50, f.P99, f.Longest = quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1)
	return f
}

// underWay reports whether an endpoint failed while the client was there.
func (c *client) underWay(moments []moment) bool {
	return slices.ContainsFunc(moments, func(m moment) bool { return c.began <= m.To && c.ended >= m.From })
}

// quantile is that of sorted times, in seconds; unknown if there are none.
func quantile(sorted []time.Duration, q float64) report.Number {
	if len(sorted) == 0 {
		return report.Unmeasured()
	}
	return report.Number(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Seconds())
}
