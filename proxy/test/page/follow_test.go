package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// A moment is the state as of one event.
type moment struct {
	id, at    int64
	names     []string // of the numbers of an endpoint
	process   admin.Status
	listeners map[string]admin.Listener
	upstreams map[string]admin.Upstream
	endpoints map[string]endpoint // by upstream/name
}

type endpoint struct {
	Upstream, Name, Address, State, Why, Level string
	Weight                                     int64
	ByHand                                     string           `json:"by_hand"`
	numbers                                    map[string]int64 // by name
	answered, judged                           [2]int64         // the last increase of the numbers of answers and of waits
}

// A follower keeps the moments of a stream of events of its own.
type follower struct {
	testing.TB
	mu      sync.Mutex
	moments map[int64]*moment
}

func follow(t testing.TB, client *admin.Client) *follower {
	t.Helper()
	f := &follower{TB: t, moments: make(map[int64]*moment)}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/events", nil)
	must(t, err)
	answer, err := client.RoundTrip(r)
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.read(bufio.NewScanner(answer.Body))
	}()
	t.Cleanup(func() {
		answer.Body.Close()
		<-done
	})
	return f
}

// read reads events until the stream ends.
func (f *follower) read(lines *bufio.Scanner) {
	lines.Buffer(nil, 64<<20)
	last, names := new(moment), map[string]string{} // of endpoints, by number
	var kind string
	var id int64
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "id":
			_, _ = fmt.Sscan(value, &id)
		case "data":
			if kind == "state" {
				last = new(moment)
			}
			last = last.next(f, id, value, names)
			f.mu.Lock()
			f.moments[id] = last
			f.mu.Unlock()
		}
	}
}

// next returns the moment after an event. f logs errors.
func (m *moment) next(f *follower, id int64, data string, names map[string]string) *moment {
	var e struct {
		At   int64
		Rows struct {
			Process   map[string]json.RawMessage
			Listeners map[string]admin.Listener
			Upstreams map[string]admin.Upstream
		}
		Endpoints map[string]endpoint
		Names     []string `json:"number_names"`
		Numbers   []int64
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		f.Errorf("event %d: %v", id, err)
	}
	if e.Names == nil {
		e.Names = m.names
	}
	n := &moment{id: id, at: e.At, names: e.Names, listeners: with(m.listeners, e.Rows.Listeners), upstreams: with(m.upstreams, e.Rows.Upstreams), endpoints: with(m.endpoints, nil)}
	n.process = m.process
	if row := e.Rows.Process[""]; row != nil {
		n.process = admin.Status{} // absent keys are zero
		if err := json.Unmarshal(row, &n.process); err != nil {
			f.Errorf("event %d: %v", id, err)
		}
	}
	for number, row := range e.Endpoints {
		names[number] = row.Upstream + "/" + row.Name
		was := n.endpoints[names[number]]
		row.numbers, row.answered, row.judged = was.numbers, was.answered, was.judged
		n.endpoints[names[number]] = row
	}
	for i := 0; i < len(e.Numbers); i += 1 + len(e.Names) {
		name := names[fmt.Sprint(e.Numbers[i])]
		row := n.endpoints[name]
		was := row.numbers
		row.numbers = make(map[string]int64)
		for j, of := range e.Names {
			row.numbers[of] = e.Numbers[i+1+j]
		}
		row.answered = increase(row.answered, was, row.numbers, "answers.made", "answers.sum_us")
		row.judged = increase(row.judged, was, row.numbers, "limited_ms", "waited_ms")
		n.endpoints[name] = row
	}
	return n
}

// increase returns the increase of a count and of its sum, or the last one if the count has not risen.
func increase(last [2]int64, was, now map[string]int64, count, sum string) [2]int64 {
	if now[count] == was[count] {
		return last
	}
	return [2]int64{now[count] - was[count], now[sum] - was[sum]}
}

// with returns a copy of a map with changes.
func with[V any](before, changes map[string]V) map[string]V {
	after := make(map[string]V, len(before))
	for name, v := range before {
		after[name] = v
	}
	for name, v := range changes {
		after[name] = v
	}
	return after
}

// at returns the moment of an event and the one before it; nil if it was not followed.
func (f *follower) at(id int64) (now, before *moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moments[id], f.moments[id-1]
}
