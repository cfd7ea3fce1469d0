package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// leaveBy has a session of a listener leave user space, the nth of the process.
func (r *rig) leaveBy(t *testing.T, listener string, n int) *net.TCPConn {
	t.Helper()
	c := client(t, r.At(listener))
	r.Until("it has left", func() bool {
		echoes(t, c, "there and back")
		return r.Status().Lane.Left == int64(n)
	})
	return c
}

// silentTo is an echo that does not answer a question.
func silentTo(c *net.TCPConn, b []byte) bool { return b[0] == '?' || echoPiece(c, b) }

// adopts starts a process, has a session of each of some listeners leave user space, calls do unless that is nil, ends the process, and starts the next one, which adopts them.
// Its drain is the setting's.
func adopts(t *testing.T, set loadbalancer.Setting, first, second string, do func(clients []*net.TCPConn), listeners ...string) (next *rig, clients []*net.TCPConn) {
	t.Helper()
	pins := pinned(t)
	if pins == "" {
		return nil, nil
	}
	lane := "lane: {devices: [lo], sessions: 64, after: 5ms, default: require, leave: true, pins: " + pins + "}\n"
	before := start(t, lane+first)
	for n, listener := range listeners {
		clients = append(clients, before.leaveBy(t, listener, n+1))
	}
	if do != nil {
		do(clients)
	}
	must(t, before.End())
	if !strings.Contains(second, "lane: {") {
		second = lane + second
	}
	next = &rig{set.Start(t, strings.ReplaceAll(second, "PINS", pins))}
	for _, c := range clients {
		_ = c.SetDeadline(time.Now().Add(condition.Patience)) // to start may have taken as long
	}
	next.Until("they are adopted", func() bool { return next.Status().Lane.Adopted == int64(len(clients)) }) // some may have ended since
	return next, clients
}

// adoptedBy lists the adopted sessions that a query selects, by client.
func (r *rig) adoptedBy(t *testing.T, q admin.SessionQuery) map[string]admin.Session {
	t.Helper()
	list, err := r.Sessions(context.Background(), q, admin.SessionOrder{})
	must(t, err)
	all := make(map[string]admin.Session)
	for s := range list.Sessions {
		if s.Adopted {
			all[s.Client] = s
		}
	}
	return all
}

// lines returns the lines of the session log on ends, by the names of their fields and by client.
func (r *rig) lines(t *testing.T) map[string]map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.Dir, "sessions.log"))
	must(t, err)
	lines := make(map[string]map[string]any)
	for line := range bytes.Lines(b) {
		var got map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		name, _ := got["client"].(string)
		if lines[name] != nil {
			t.Errorf("twice: %s", line)
		}
		lines[name] = got
	}
	return lines
}

// wantEnd expects that a client's connection ends with an error, and that the line of its session has these values, as name=value.
func (r *rig) wantEnd(t *testing.T, c *net.TCPConn, end error, values ...string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	if err := gone(t, c); !errors.Is(err, end) {
		t.Errorf("%v: %v", values, err)
	}
	at := c.LocalAddr().String()
	r.Until("it has a line", func() bool { return r.lines(t)[at] != nil })
	line := r.lines(t)[at]
	for _, v := range values {
		if name, want, _ := strings.Cut(v, "="); fmt.Sprint(line[name]) != want {
			t.Errorf("want %s: %v", v, line)
		}
	}
}

const logged = "session_log: {to: sessions.log, format: json}\n"

// TestLaneAdopted: adopted sessions are of the listeners, upstreams and endpoints that the file still has, with their age: they are listed, selected, judged, counted and ended as
// others of these. A part that the file has no more is not known, and not guessed.
func TestLaneAdopted(t *testing.T) {
	t.Parallel()

	shop, parts := sockets.Server(t, sockets.Echo), answering(t, silentTo)
	text := logged + `listeners: [{name: web, bind: "127.0.0.1:0", upstream: shop}, {name: api, bind: "127.0.0.1:0", upstream: parts}%s]
upstreams:
  - {name: shop, health_check: off, queue: {timeout: 1m}, on_removed: reset, endpoints: [{name: one, address: ` + shop + `, connections: 2}]}
  - {name: parts, health_check: off, endpoints: [%q]}%s`
	began := time.Now()
	var left time.Time
	asks := func(clients []*net.TCPConn) {
		if _, err := io.WriteString(clients[1], "?"); err != nil { // most of its time its endpoint is waited for
			t.Fatal(err)
		}
		left = time.Now()
	}
	first := fmt.Sprintf(text, `, {name: old, bind: "127.0.0.1:0", upstream: past}`, parts, `
  - {name: past, health_check: off, endpoints: [`+shop+`]}`)
	r, clients := adopts(t, loadbalancer.Setting{}, first, fmt.Sprintf(text, "", "127.0.0.1:1", ""), asks, "web", "api", "old")
	if r == nil {
		return
	}
	web, api, old := clients[0], clients[1], clients[2]
	least := time.Since(left)
	all := r.adoptedBy(t, admin.SessionQuery{Verdict: admin.AnyVerdict})
	for c, want := range map[*net.TCPConn][3]string{web: {"web", "shop", "one"}, api: {"api", "parts", ""}, old: {admin.UnknownName, admin.UnknownName, ""}} {
		s := all[c.LocalAddr().String()]
		if [3]string{s.Listener, s.Upstream, s.Name} != want || s.State != "joined" || s.Verdict == "" || s.Engine != "lane" || s.Bytes.ClientToEndpoint.Lane+s.Bytes.EndpointToClient.Lane == 0 || s.Endpoint == "" || s.EndpointLocal == "" {
			t.Errorf("%v: %+v", want, s)
		}
		if most := time.Since(began); s.AgeUs < least.Microseconds() || s.AgeUs > most.Microseconds() {
			t.Errorf("%v: age %d us, want %v to %v", want, s.AgeUs, least, most)
		}
	}
	r.Until("most of its time its endpoint is waited for", func() bool {
		return len(r.adoptedBy(t, admin.SessionQuery{Verdict: "endpoint", Upstream: "parts"})) == 1
	})
	for name, one := range map[string]struct {
		q    admin.SessionQuery
		want *net.TCPConn
	}{
		"by ID":          {admin.SessionQuery{ID: all[old.LocalAddr().String()].ID}, old},
		"by listener":    {admin.SessionQuery{Listener: "web"}, web},
		"by upstream":    {admin.SessionQuery{Upstream: "parts"}, api},
		"by no listener": {admin.SessionQuery{Listener: admin.UnknownName}, old},
		"by no upstream": {admin.SessionQuery{Upstream: admin.UnknownName}, old},
		"by endpoint":    {admin.SessionQuery{Endpoint: "one", Listener: "web"}, web},
		"by verdict":     {admin.SessionQuery{Verdict: "endpoint", Upstream: "parts"}, api},
		"by age":         {admin.SessionQuery{Upstream: "parts", Older: least}, api},
	} {
		if got := r.adoptedBy(t, one.q); len(got) != 1 || got[one.want.LocalAddr().String()].Client == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for q, want := range map[admin.WhyQuery]int64{{}: 3, {Upstream: "parts"}: 1, {Session: all[api.LocalAddr().String()].ID}: 1, {Session: api.LocalAddr().String()}: 1, {Endpoint: "one"}: 1} {
		w, err := r.Server.Why(t.Context(), q)
		if err != nil || w.Count != want || w.Adopted != want || len(w.Sessions) != int(want) {
			t.Errorf("%+v finds %+v, %v", q, w, err)
			continue
		}
		if s := w.Sessions[0]; want == 1 && (!s.Adopted || !strings.Contains(s.Why, "only its time in the lane is known") || s.EndpointLeg == nil) {
			t.Errorf("%+v finds %+v", q, s)
		}
	}
	gently := admin.EndQuery{SessionQuery: admin.SessionQuery{Listener: "api"}, Quiet: 50 * time.Millisecond, Grace: 300 * time.Millisecond}
	if e, err := r.EndSessions(t.Context(), gently, "test"); err != nil || e.Touched != 1 || e.Kept != 1 {
		t.Errorf("while its client waits for an answer: %+v, %v", e, err)
	}
	end := func(c *net.TCPConn, q admin.SessionQuery, values ...string) {
		t.Helper()
		if e, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: q, Now: true}, "test"); err != nil || e.Ended != 1 || e.Touched != 1 {
			t.Error(e, err)
		}
		r.wantEnd(t, c, syscall.ECONNRESET, append(values, "adopted=true", "reason=operator", "engine=lane")...)
	}
	holds := client(t, r.At("web"))
	echoes(t, holds, "the other place")
	waits := client(t, r.At("web"))
	r.Until("their places are taken", func() bool {
		return slices.ContainsFunc(r.Status().Upstreams, func(u admin.Upstream) bool { return u.Name == "shop" && u.Pending == 1 })
	})
	end(web, admin.SessionQuery{Source: "127.0.0.1", Listener: "web", Older: least}, "listener=web", "upstream=shop", "endpoint=one")
	echoes(t, waits, "a place is free")
	end(api, admin.SessionQuery{Verdict: "endpoint", Upstream: "parts"}, "listener=api", "upstream=parts", "endpoint=<nil>", "verdict=endpoint")
	end(old, admin.SessionQuery{Listener: admin.UnknownName}, "listener="+admin.UnknownName, "upstream="+admin.UnknownName, "endpoint_address="+shop)
	if n := r.Listener("web").Connections.Active; n != 2 {
		t.Errorf("%d clients", n)
	}
}

// TestLaneAdoptedRecord: the process after knows the ID of a session, its client by the PROXY header, all that it has moved, and as far as there is room its course.
func TestLaneAdoptedRecord(t *testing.T) {
	t.Parallel()

	pins := pinned(t)
	if pins == "" {
		return
	}
	text := logged + `lane: {devices: [lo], sessions: 64, after: 5ms, default: require, leave: true, pins: ` + pins + `}
listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}, {name: behind, bind: "127.0.0.1:0", upstream: u, accept_proxy: {}}, {name: quiet, bind: "127.0.0.1:0", upstream: u, accept_proxy: {}, session_log: false}]
upstreams: [{name: u, health_check: off, endpoints: [{name: one, address: ` + sockets.Server(t, sockets.Echo) + `}]}]`
	first := start(t, text)
	of := make(map[string]*net.TCPConn)
	moved := make(map[string]int64)
	for n, name := range []string{"web", "behind", "quiet"} {
		of[name] = client(t, first.At(name))
		if name != "web" {
			must(t, second(fmt.Fprintf(of[name], "PROXY TCP4 192.0.2.%d 192.0.2.9 %d 443\r\n", n, 4000+n)))
		}
		first.Until("it has left", func() bool {
			moved[name] += echoed(t, of[name], "there and back")
			return first.Status().Lane.Left == int64(n+1)
		})
	}
	must(t, first.End())
	before := first.lines(t)
	r := start(t, text)
	r.Until("they are adopted", func() bool { return len(r.adoptedBy(t, admin.SessionQuery{})) == len(of) })
	for name, source := range map[string]string{"web": of["web"].LocalAddr().String(), "behind": "192.0.2.1:4001", "quiet": "192.0.2.2:4002"} {
		_ = of[name].SetDeadline(time.Now().Add(condition.Patience)) // to start may have taken as long
		moved[name] += echoed(t, of[name], "adopted")
		host, _, _ := net.SplitHostPort(source)
		r.Until("its bytes are counted", func() bool {
			s := r.adoptedBy(t, admin.SessionQuery{Source: host, Listener: name})[source]
			return s.Listener == name && s.Name == "one" && s.Bytes.ClientToEndpoint.All() == moved[name] && s.Bytes.EndpointToClient.All() == moved[name] && s.Bytes.ClientToEndpoint.Lane < moved[name]
		})
	}
	for _, name := range []string{"web", "behind"} {
		c := of[name]
		_ = c.SetLinger(0)
		_ = c.Close()
		at := c.LocalAddr().String()
		r.Until("it has a line", func() bool { return r.lines(t)[at] != nil })
		line := r.lines(t)[at]
		if line["id"] != before[at]["id"] || line["bytes_to_endpoint"] != float64(moved[name]) || line["bytes_to_client"] != float64(moved[name]) || line["source"] != before[at]["source"] || line["adopted"] != true {
			t.Errorf("%s: %v, before that %v", name, line, before[at])
		}
		if name == "web" && (line["connect_us"] != before[at]["connect_us"] || line["client_first_us"] != before[at]["client_first_us"] || line["retries"] != 0.0 || line["connect_us"] == nil) {
			t.Errorf("its course: %v, before that %v", line, before[at])
		}
	}
}

// TestLaneAdoptedFound: an adopted session belongs to an endpoint that discovery finds only later, with what it moves from then on.
func TestLaneAdoptedFound(t *testing.T) {
	t.Parallel()

	endpoint, z := sockets.Server(t, sockets.Echo), new(zone)
	z.set(service(t, endpoint, 1), "one.test. 1 IN A 127.0.0.1")
	z.fail(true)
	text := `listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, `
	r, clients := adopts(t, loadbalancer.Setting{}, text+"endpoints: ["+endpoint+"]}]", text+fmt.Sprintf("discover: {dns: {name: _db._tcp.test, servers: [%q], min_ttl: 100ms}}}]", z.serve(t)), nil, "web")
	if r == nil {
		return
	}
	c := clients[0]
	if s := r.adoptedBy(t, admin.SessionQuery{})[c.LocalAddr().String()]; s.Upstream != "u" || s.Name != "" {
		t.Errorf("%+v", s)
	}
	echoes(t, c, "of no endpoint")
	z.fail(false)
	r.Until("its endpoint is found", func() bool { return r.adoptedBy(t, admin.SessionQuery{})[c.LocalAddr().String()].Name == endpoint })
	echoes(t, c, "of its endpoint")
	r.Until("they are counted", func() bool {
		st := r.Status()
		if e := st.Upstreams[0].Endpoints; len(e) == 1 {
			return e[0].Active == 1 && e[0].Bytes.ClientToEndpoint.All() == int64(len("of its endpoint")) && st.Listeners[0].Bytes.ClientToEndpoint.All() == int64(len("of no endpoint")+len("of its endpoint"))
		}
		return false
	})
	_ = c.Close()
	r.Until("its place is free", func() bool { return r.Status().Upstreams[0].Endpoints[0].Active == 0 })
}

// TestLaneAdoptedReturns: adopted sessions come back to user space as others, every byte of them counted, leave again, and are adopted once more.
func TestLaneAdoptedReturns(t *testing.T) {
	t.Parallel()

	text := `listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}, {name: old, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [` + sockets.Server(t, sockets.Echo) + `]}]`
	r, clients := adopts(t, loadbalancer.Setting{}, text, strings.Replace(text, "name: old", "name: new", 1), nil, "web", "old")
	if r == nil {
		return
	}
	before := r.adoptedBy(t, admin.SessionQuery{})
	must(t, second(r.SwitchLane(false, "test")))
	if c, err := r.ReturnLane("test"); err != nil || c.Returned != 2 || c.Reset != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, c := range clients {
		echoes(t, c, "in user space")
	}
	for at, s := range r.adoptedBy(t, admin.SessionQuery{}) {
		if want := before[at].Bytes.ClientToEndpoint.All() + int64(len("in user space")); s.Engine == "lane" || s.Bytes.ClientToEndpoint.All() != want || s.Bytes.EndpointToClient.All() != want || s.Client != at || s.Endpoint == "" {
			t.Errorf("%s: %+v", at, s)
		}
	}
	must(t, second(r.SwitchLane(true, "test")))
	more := int64(len("in user space"))
	r.Until("they leave again", func() bool {
		for _, c := range clients {
			echoes(t, c, "once more")
		}
		more += int64(len("once more"))
		return r.Status().Lane.Active == 2
	})
	must(t, r.End())
	b, err := os.ReadFile(filepath.Join(r.Dir, "penstock.yaml"))
	must(t, err)
	last := start(t, string(b))
	last.Until("they are adopted once more", func() bool { return len(last.adoptedBy(t, admin.SessionQuery{})) == 2 })
	for _, c := range clients {
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		at, want := c.LocalAddr().String(), before[c.LocalAddr().String()].Bytes.ClientToEndpoint.All()+more+echoed(t, c, "adopted once more")
		last.Until("all its bytes are counted", func() bool {
			b := last.adoptedBy(t, admin.SessionQuery{})[at].Bytes
			return b.ClientToEndpoint.All() == want && b.EndpointToClient.All() == want
		})
	}
}

// TestLaneAdoptedLimits: adopted sessions take places of the process and of their source, and give them back at their end.
func TestLaneAdoptedLimits(t *testing.T) {
	t.Parallel()

	text := `limits: {connections: 4}
listeners: [{name: one, bind: "127.0.0.1:0", upstream: u, limits: {per_source: 1}}, {name: two, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [` + sockets.Server(t, sockets.Echo) + `]}]`
	r, clients := adopts(t, loadbalancer.Setting{}, text, text, nil, "one", "two", "two")
	if r == nil {
		return
	}
	all := r.adoptedBy(t, admin.SessionQuery{})
	end := func(i int) {
		t.Helper()
		q := admin.SessionQuery{ID: all[clients[i].LocalAddr().String()].ID}
		if ended, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: q, Now: true}, "test"); err != nil || ended.Ended != 1 {
			t.Fatal(ended, err)
		}
	}
	refused(t, r.At("one"))
	if n := r.Refused("one", "per_source"); n != 1 {
		t.Errorf("%d clients were refused for their source", n)
	}
	echoes(t, client(t, r.At("two")), "the last place")
	r.Logs("the limit of connections is reached")
	if c := r.Status().Connections; c.Active != 4 || c.Most != 4 {
		t.Errorf("%+v", c)
	}
	waits := client(t, r.At("two"))
	end(1)
	echoes(t, waits, "the place of an adopted session")
	waits = client(t, r.At("one"))
	end(0)
	echoes(t, waits, "its source has room again")
	list, err := r.Sources(t.Context(), admin.SourceQuery{})
	if err != nil || len(list.Sources) != 1 || list.Sources[0].Connections != 4 {
		t.Errorf("%+v, %v", list, err)
	}
	echoes(t, clients[2], "it goes on")
}

// TestLaneGoOn: while a process drains with lane.leave it waits for the sessions in user space, as its message says, and has those that go on without it, adopted ones among them,
// for none of its own: changes of the lane are refused, and reset nothing.
func TestLaneGoOn(t *testing.T) {
	t.Parallel()

	text := `listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}, {name: here, bind: "127.0.0.1:0", upstream: u, lane: off}]
upstreams: [{name: u, health_check: off, endpoints: [` + sockets.Server(t, sockets.Echo) + `]}]`
	r, adopted := adopts(t, loadbalancer.Setting{}, text, text, nil, "web")
	if r == nil {
		return
	}
	own, here := r.leaveBy(t, "web", 1), client(t, r.At("here"))
	echoes(t, here, "here")
	if s := r.Status().Lane; s.Active != 2 || s.GoOn != 0 {
		t.Errorf("%+v", s)
	}
	if changed, err := r.SwitchLane(true, "test"); err != nil || changed.State != admin.LaneOn {
		t.Error(changed, err)
	}
	r.SetAfter(func(time.Duration, func()) *time.Timer { return time.NewTimer(time.Hour) }) // the drain ends with its sessions
	r.Stop()
	r.Logs("msg=draining active=1 go_on=2 ")
	if s := r.Status(); s.Lane.Active != 0 || s.Lane.GoOn != 2 || s.Connections.Active != 1 {
		t.Errorf("%+v, %d connections", s.Lane, s.Connections.Active)
	}
	for name, change := range map[string]func() (admin.LaneChanged, error){
		"flush":  func() (admin.LaneChanged, error) { return r.FlushLane("test") },
		"return": func() (admin.LaneChanged, error) { return r.ReturnLane("test") },
		"on":     func() (admin.LaneChanged, error) { return r.SwitchLane(true, "test") },
		"off":    func() (admin.LaneChanged, error) { return r.SwitchLane(false, "test") },
	} {
		const want = "the process drains with lane.leave: sessions that have left user space (2) continue without this process: nothing was changed"
		if _, err := change(); !errors.Is(err, admin.ErrLeft) || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	echoes(t, here, "still here")
	_ = here.Close()
	must(t, r.End())
	echoes(t, own, "without a process")
	echoes(t, adopted[0], "without a process")
}

// TestLaneEndedBetween: sessions that end while no process has the lane have their last lines from the next one, with all their
// bytes.
func TestLaneEndedBetween(t *testing.T) {
	t.Parallel()
	pins := pinned(t)
	if pins == "" {
		return
	}
	text := logged + `lane: {devices: [lo], sessions: 64, after: 5ms, default: require, leave: true, pins: ` + pins + `}
listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [{name: one, address: ` + sockets.Server(t, sockets.Echo) + `}]}]`
	first := start(t, text)
	ends, resets := first.leaveBy(t, "web", 1), first.leaveBy(t, "web", 2)
	must(t, first.End())
	before := first.lines(t)
	for _, c := range []*net.TCPConn{ends, resets} {
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		echoes(t, c, "between")
	}
	must(t, ends.CloseWrite())
	if got, err := io.ReadAll(ends); len(got) > 0 || err != nil {
		t.Errorf("the client reads %q, %v", got, err)
	}
	_ = resets.SetLinger(0)
	must(t, resets.Close())
	r := start(t, text)
	for c, reason := range map[*net.TCPConn]string{ends: "eof", resets: "reset"} {
		at := c.LocalAddr().String()
		r.Until("it has a line", func() bool { return r.lines(t)[at] != nil })
		bytes := before[at]["bytes_to_endpoint"].(float64) + float64(len("between"))
		for name, want := range map[string]any{"id": before[at]["id"], "listener": "web", "upstream": "u", "endpoint": "one", "reason": reason, "adopted": true, "bytes_to_endpoint": bytes} {
			if got := r.lines(t)[at][name]; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	}
}
