package admin_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tally"
)

const follows = "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + changeToken + "\r\n\r\n"

// A follower reads a stream of events, and keeps the state as a page does.
type follower struct {
	conn   net.Conn
	lines  *bufio.Scanner
	events int    // read
	kind   string // of the last one
	id     int64

	rows      map[string]map[string]any
	endpoints map[string]map[string]any
	numbers   map[string][]int64
	width     int // of the numbers of an endpoint, with its own
}

func (r room) follow(t *testing.T) *follower {
	t.Helper()
	f := &follower{conn: r.connect(t, follows)}
	answer, err := http.ReadResponse(bufio.NewReader(f.conn), nil)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("answered with %+v, %v", answer, err)
	}
	f.lines = bufio.NewScanner(answer.Body)
	f.lines.Buffer(nil, 64<<20)
	return f
}

// next reads an event. It reports false at the end of the stream.
func (f *follower) next(t *testing.T) bool {
	t.Helper()
	for f.lines.Scan() {
		name, value, _ := strings.Cut(f.lines.Text(), ": ")
		switch name {
		case "event":
			f.kind = value
		case "id":
			if _, err := fmt.Sscan(value, &f.id); err != nil {
				t.Error(err)
			}
		case "data":
			f.take(t, value)
		case "":
			f.events++
			return true
		}
	}
	return false
}

func (f *follower) take(t *testing.T, data string) {
	t.Helper()
	var e struct {
		Rows      map[string]map[string]any
		Gone      map[string][]string
		Endpoints map[string]map[string]any
		Left      []int    `json:"endpoints_gone"`
		Names     []string `json:"number_names"`
		Numbers   []int64
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if f.kind == "state" {
		f.rows, f.endpoints, f.numbers = map[string]map[string]any{}, map[string]map[string]any{}, map[string][]int64{}
		f.width = 1 + len(e.Names)
	}
	for kind, rows := range e.Rows {
		for name, row := range rows {
			if f.rows[kind] == nil {
				f.rows[kind] = map[string]any{}
			}
			f.rows[kind][name] = row
		}
	}
	for kind, names := range e.Gone {
		for _, name := range names {
			delete(f.rows[kind], name)
		}
	}
	for n, row := range e.Endpoints {
		f.endpoints[n] = row
	}
	for _, n := range e.Left {
		delete(f.endpoints, fmt.Sprint(n))
		delete(f.numbers, fmt.Sprint(n))
	}
	for i := 0; i < len(e.Numbers); i += f.width {
		f.numbers[fmt.Sprint(e.Numbers[i])] = e.Numbers[i+1 : i+f.width]
	}
}

// state returns the endpoints with their numbers by upstream and name, and the counters of the process.
func (f *follower) state() map[string]string {
	state := map[string]string{"process": fmt.Sprint(f.rows["process"][""].(map[string]any)["connections"])}
	for name := range f.rows["listeners"] {
		state["listener "+name] = fmt.Sprint(f.rows["listeners"][name].(map[string]any)["state"])
	}
	for n, e := range f.endpoints {
		state[fmt.Sprint(e["upstream"], "/", e["name"])] = fmt.Sprint(e["state"], e["why"], e["by_hand"], f.numbers[n])
	}
	return state
}

func want(st *admin.Status) map[string]string {
	var connections any
	b, _ := json.Marshal(st.Connections)
	_ = json.Unmarshal(b, &connections)
	state := map[string]string{"process": fmt.Sprint(connections)}
	for i := range st.Listeners {
		state["listener "+st.Listeners[i].Name] = string(st.Listeners[i].State)
	}
	for _, u := range st.Upstreams {
		for _, e := range u.Endpoints {
			var why, byHand any
			if e.Why != "" {
				why = e.Why
			}
			if len(e.ByHand) > 0 {
				list := make([]any, len(e.ByHand))
				for i, one := range e.ByHand {
					list[i] = one
				}
				byHand = list
			}
			in, out := e.Bytes.ClientToEndpoint, e.Bytes.EndpointToClient
			lost, all := e.Waited()
			numbers := []int64{e.Active, e.Total, e.Failures, e.Connects.Made, e.Connects.SumUs, in.Spliced, in.Copied, in.Lane, out.Spliced, out.Copied, out.Lane, e.Answers.Made, e.Answers.SumUs, all.Milliseconds(), lost.Milliseconds()}
			state[u.Name+"/"+e.Name] = fmt.Sprint(e.State, why, byHand, numbers)
		}
	}
	return state
}

// TestEventsAreTheStatus: a client that has followed the events of any changes has the status, and so has one that comes
// later.
func TestEventsAreTheStatus(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		random := rand.New(rand.NewPCG(1, 2))
		var now admin.Status
		r.balancer.status = func(_ int, st *admin.Status) {
			change(random, st)
			now = *st
		}
		last := func() map[string]string {
			r.balancer.mu.Lock()
			defer r.balancer.mu.Unlock()
			return want(&now)
		}
		first := r.follow(t)
		for range 60 {
			if !first.next(t) {
				t.Fatal("the stream ended")
			}
			if diff := cmp.Diff(last(), first.state()); diff != "" {
				t.Fatalf("event %d: %s", first.id, diff)
			}
			if first.events%10 == 5 {
				late := r.follow(t)
				late.next(t)
				if diff := cmp.Diff(first.state(), late.state()); late.kind != "state" || late.id != first.id || diff != "" {
					t.Fatalf("one that comes late, %s %d: %s", late.kind, late.id, diff)
				}
				late.conn.Close()
			}
		}
		if first.kind != "changes" {
			t.Errorf("the last event is %q", first.kind)
		}
	})
}

// change makes a status with endpoints, listeners and counters of chance.
func change(random *rand.Rand, st *admin.Status) {
	st.Connections.Accepted = random.Int64N(3)
	st.Listeners = nil
	for i := range random.IntN(4) {
		st.Listeners = append(st.Listeners, admin.Listener{Name: fmt.Sprint("l", i), State: []admin.State{admin.Serving, admin.Paused}[random.IntN(2)]})
	}
	st.Upstreams = nil
	for i := range 2 {
		u := admin.Upstream{Name: fmt.Sprint("u", i)}
		for j := range 20 {
			if random.IntN(5) == 0 {
				continue
			}
			e := admin.Endpoint{Name: fmt.Sprint("e", j), Weight: 1, State: admin.Up, Active: random.Int64N(2), EndpointCounts: tally.EndpointCounts{Failures: random.Int64N(2)}}
			if random.IntN(4) == 0 {
				e.State, e.Why = admin.Down, "<b>refused\u202e"
			}
			e.Bytes.EndpointToClient.Copied = random.Int64N(2)
			e.Bytes.ClientToEndpoint.Lane = random.Int64N(2)
			e.Answers = &admin.Answers{Made: random.Int64N(2), SumUs: random.Int64N(2)}
			e.Limited = map[string]float64{"client": float64(random.IntN(2)) / 3, "endpoint": 0.1, "endpoint_network": float64(random.IntN(2)) / 7}
			if random.IntN(3) == 0 {
				e.ByHand = []string{"weight 1 by <b>", "drain by uid=7"}
			}
			u.Endpoints = append(u.Endpoints, e)
		}
		st.Upstreams = append(st.Upstreams, u)
	}
}

// TestManyEndpointsTakeTurns: an event has the numbers of 1,000 endpoints at most, and each has its turn.
func TestManyEndpointsTakeTurns(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		const endpoints = 5000
		r.balancer.status = func(look int, st *admin.Status) {
			u := &st.Upstreams[0]
			u.Endpoints = make([]admin.Endpoint, endpoints)
			for i := range u.Endpoints {
				u.Endpoints[i] = admin.Endpoint{Name: fmt.Sprint(i), State: admin.Up, Weight: 1, EndpointCounts: tally.EndpointCounts{Total: int64(look)}}
			}
			u.Endpoints[4999].State = []admin.State{admin.Up, admin.Down}[look%2]
		}
		f := r.follow(t)
		if f.next(t); len(f.numbers) != endpoints || len(f.endpoints) != endpoints {
			t.Fatalf("the whole state has %d endpoints", len(f.numbers))
		}
		for look := int64(2); look < 14; look++ {
			f.next(t)
			of := map[int64]int{}
			for n, e := range f.endpoints {
				of[look-f.numbers[n][1]]++
				if e["name"] == "4999" && (e["state"] == "down") != (look%2 == 1) {
					t.Errorf("look %d: the state is %v", look, e["state"])
				}
			}
			if look > 5 && (len(of) != 5 || of[0] != 1000 || of[4] != 1000) {
				t.Fatalf("look %d: numbers are behind by %v", look, of)
			}
		}
	})
}

// TestOneLookForAll: the status is looked at once a second for all streams, and not without a stream.
func TestOneLookForAll(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		time.Sleep(time.Minute)
		if r.balancer.looked() != 0 {
			t.Errorf("%d looks for no stream", r.balancer.looked())
		}
		var all []*follower
		for range 10 {
			all = append(all, r.follow(t))
		}
		began := time.Now()
		for range 30 {
			for _, f := range all {
				f.next(t)
			}
		}
		if took := time.Since(began); r.balancer.looked() != 30 || took != 29*time.Second || all[9].id != 30 {
			t.Errorf("%d looks in %v for 30 events of 10 streams, the last event is %d", r.balancer.looked(), took, all[9].id)
		}
		for _, f := range all {
			f.conn.Close()
		}
		time.Sleep(time.Minute)
		if n := r.balancer.looked(); n > 31 {
			t.Errorf("%d looks after the streams", n-30)
		}
	})
}

// TestSlowLooksAreRare: a status that takes long is looked at for a tenth of the time.
func TestSlowLooksAreRare(t *testing.T) {
	for took, pause := range map[time.Duration]time.Duration{10 * time.Millisecond: time.Second, 200 * time.Millisecond: 2 * time.Second, time.Second: 5 * time.Second} {
		inRoom(t, func(t *testing.T, r room) {
			r.balancer.status = func(int, *admin.Status) { time.Sleep(took) }
			f := r.follow(t)
			f.next(t)
			began := time.Now()
			for range 10 {
				f.next(t)
			}
			if got := time.Since(began) / 10; got != pause {
				t.Errorf("a look of %v is made once in %v, want %v", took, got, pause)
			}
		})
	}
}

// TestStreamsAreLimited: streams leave places to other clients.
func TestStreamsAreLimited(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		var all []*follower
		for range 16 {
			all = append(all, r.follow(t))
			all[len(all)-1].next(t)
		}
		if took := r.asked(t, follows, http.StatusServiceUnavailable); took > 0 {
			t.Errorf("the refusal took %v", took)
		}
		all[3].conn.Close()
		synctest.Wait()
		f := r.follow(t)
		if !f.next(t) {
			t.Error("no stream in place of one that has gone")
		}
	})
}

// TestStreamsAreNotWaitedFor: a stream whose client reads is not closed for the place of another client, however
// long it lasts.
func TestStreamsAreNotWaitedFor(t *testing.T) {
	inRoom(t, func(t *testing.T, r room) {
		f := r.follow(t)
		for range 15 {
			if !f.next(t) {
				t.Fatalf("the stream ended after %d events", f.events)
			}
			for range 70 {
				r.connect(t, "GET /v1/st")
			}
		}
	})
}

// TestUnreadStreamsEnd: a stream whose client does not read is closed, at once if its place is wanted, and
// those of others go on.
func TestUnreadStreamsEnd(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		inRoom(t, func(t *testing.T, r room) {
			r.asked(t, asks, http.StatusOK) // from now on it is known that a status is short
			unread := r.connect(t, follows)
			f := r.follow(t)
			if wanted {
				for range 63 {
					r.connect(t, asks) // read by none
				}
				time.Sleep(time.Second)
				if r.connect(t, asks); !closed(unread) {
					t.Error("it has its place still")
				}
			}
			for range 15 {
				if !f.next(t) {
					t.Fatal("the other stream ended")
				}
			}
			if !closed(unread) {
				t.Error("it is open after 15 s")
			}
		})
	}
}

// TestStreamsEndWithTheServer: streams end when the server leaves its address or is closed, and no other one begins.
func TestStreamsEndWithTheServer(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, room){
		"leave": func(_ *testing.T, r room) { r.Leave() },
		"close": func(t *testing.T, r room) { r.end(t) },
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, func(t *testing.T, r room) {
				f := r.follow(t)
				f.next(t)
				began := time.Now()
				left := make(chan struct{})
				go func() {
					defer close(left)
					leave(t, r)
				}()
				if f.next(t) || time.Since(began) > 0 {
					t.Errorf("an event after it, or an end after %v", time.Since(began))
				}
				f.conn.Close()
				<-left
				if name == "leave" {
					r.asked(t, follows, http.StatusServiceUnavailable)
				}
			})
		})
	}
}
