package page

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/tally"
)

// A pair is the moment of an event, and the one before it.
type pair struct{ now, before *moment }

func (p pair) perSecond(n, m int64) string {
	return display.Bytes(int64(math.Round(float64(n-m)*1000/float64(p.now.at-p.before.at)))) + "/s"
}

// expected returns the view that the page has after an event.
func (p pair) expected() view {
	st := &p.now.process
	levels := map[string]int64{"all": int64(len(p.now.endpoints)), "down": 0, "warning": 0, "off": 0, "ok": 0}
	for _, e := range p.now.endpoints {
		levels[e.Level]++
	}
	v := view{
		Event: p.now.id, Tiles: p.tiles(), Legends: p.legends(), Verdicts: p.verdicts(), Levels: map[string]string{},
		Listeners: p.listeners(), Upstreams: p.upstreams(), Endpoints: p.endpoints(),
		Head: map[string]string{
			"state": string(st.State), "generation": strconv.Itoa(st.Generation), "version": st.Version, "pid": strconv.Itoa(st.PID),
			"listeners-count": group(int64(len(p.now.listeners))), "upstreams-count": group(int64(len(p.now.upstreams))),
		},
	}
	for level, n := range levels {
		v.Levels[level] = group(n)
	}
	return v
}

func (p pair) tiles() map[string]string {
	st, was := &p.now.process, &p.before.process
	lag := slices.MaxFunc(st.Loops, func(a, b admin.Loop) int { return int(a.LagP99Us - b.LagP99Us) }).LagP99Us
	now, before := st.Bytes, was.Bytes
	all := now.ClientToEndpoint.All() + now.EndpointToClient.All() - before.ClientToEndpoint.All() - before.EndpointToClient.All()
	accepted := float64(st.Connections.Accepted-was.Connections.Accepted) * 1000 / float64(p.now.at-p.before.at)
	return map[string]string{
		"sessions": group(st.Connections.Active) + " | of at most " + group(st.Connections.Most),
		"accepted": group(int64(math.Round(accepted))) + " | " + group(st.Connections.Accepted) + " in all",
		"received": p.perSecond(now.ClientToEndpoint.All(), before.ClientToEndpoint.All()) + " | " + display.Bytes(now.ClientToEndpoint.All()) + " in all",
		"sent":     p.perSecond(now.EndpointToClient.All(), before.EndpointToClient.All()) + " | " + display.Bytes(now.EndpointToClient.All()) + " in all",
		"spliced":  share(float64(spliced(now)-spliced(before)), float64(all)) + " | of this second's bytes",
		"refused":  group(st.Connections.Refused) + " | clients in all",
		"failures": group(st.Counters["failures"]) + " | with removed endpoints",
		"lag":      micro(float64(lag)) + " | p99 of " + strings.TrimSuffix(group(int64(len(st.Loops)))+" loops", map[bool]string{true: "s"}[len(st.Loops) == 1]),
	}
}

func (p pair) legends() map[string]string {
	now, before := p.now.process.Bytes, p.before.process.Bytes
	l := map[string]string{
		"spliced": p.perSecond(spliced(now), spliced(before)), "copied": p.perSecond(copied(now), copied(before)), "lane": p.perSecond(forwarded(now), forwarded(before)),
		"active": group(p.now.process.Connections.Active), "mean": "–", "p99": "–",
	}
	var made, us int64
	buckets := make([]int64, len(tally.ConnectBounds)+1)
	for name, u := range p.now.upstreams {
		c, was := u.Connects, p.before.upstreams[name].Connects
		made, us = made+c.Made-was.Made, us+c.SumUs-was.SumUs
		for i := range buckets {
			buckets[i] += c.Buckets[i] - was.Buckets[i]
		}
	}
	if made > 0 {
		i, sum := 0, buckets[0]
		for float64(sum) < 0.99*float64(made) {
			i++
			sum += buckets[i]
		}
		l["mean"], l["p99"] = micro(float64(us)/float64(made)), micro(float64(tally.ConnectBounds[i].Microseconds()))
	}
	return l
}

func (p pair) verdicts() map[string]string {
	limited, all := map[string]float64{}, 0.0
	for _, l := range p.now.listeners {
		for kind, s := range l.Limited {
			limited[kind] += s
			all += s
		}
	}
	v := map[string]string{}
	for _, kind := range []string{"client", "client_network", "endpoint", "endpoint_network", "proxy", "limit", "idle", "unknown"} {
		v[kind] = share(limited[kind], all)
	}
	return v
}

type rows = map[string]map[string]string

func (p pair) listeners() rows {
	list := rows{}
	for name, l := range p.now.listeners {
		now, before := l.Bytes, p.before.listeners[name].Bytes
		list[name] = map[string]string{
			"name": name + l.Addresses[0], "state": string(l.State),
			"in":  p.perSecond(now.ClientToEndpoint.All(), before.ClientToEndpoint.All()),
			"out": p.perSecond(now.EndpointToClient.All(), before.EndpointToClient.All()),
		}
		counters[admin.Listener](list[name], func(c *admin.Column) int64 { return c.Of(&l) })
	}
	return list
}

func (p pair) upstreams() rows {
	list := rows{}
	for name, u := range p.now.upstreams {
		was := p.before.upstreams[name]
		us, made := u.Connects.SumUs-was.Connects.SumUs, u.Connects.Made-was.Connects.Made
		if made == 0 {
			us, made = u.Connects.SumUs, u.Connects.Made
		}
		list[name] = map[string]string{
			"name": name + u.Balance, "state": "serving", "connect": mean(us, made),
			"in":  p.perSecond(u.Bytes.ClientToEndpoint.All(), was.Bytes.ClientToEndpoint.All()),
			"out": p.perSecond(u.Bytes.EndpointToClient.All(), was.Bytes.EndpointToClient.All()),
		}
		counters[admin.Upstream](list[name], func(c *admin.Column) int64 { return c.Of(&u) })
	}
	return list
}

func (p pair) endpoints() rows {
	list := rows{}
	for name, e := range p.now.endpoints {
		n, m := e.numbers, p.before.endpoints[name].numbers
		moved := func(direction string) string {
			spliced, copied, lane := "bytes."+direction+".spliced", "bytes."+direction+".copied", "bytes."+direction+".lane"
			return p.perSecond(n[spliced]+n[copied]+n[lane], m[spliced]+m[copied]+m[lane])
		}
		list[name] = map[string]string{
			"state": e.State, "upstream": e.Upstream, "name": e.Name + e.Address, "weight": group(e.Weight), "why": e.Why,
			"connect": mean(n["connects.sum_us"], n["connects.made"]), "in": moved("client_to_endpoint"), "out": moved("endpoint_to_client"),
			"answer": mean(e.answered[1], e.answered[0]), "waits": share(float64(e.judged[1]), float64(e.judged[0])), "act": "•••",
		}
		counters[admin.Endpoint](list[name], func(c *admin.Column) int64 { return n[strings.Join(c.Path, ".")] })
	}
	return list
}

// counters adds the numbers that the status has for a table.
func counters[T any](row map[string]string, of func(c *admin.Column) int64) {
	for _, c := range admin.Columns[T]() {
		if row[c.Key] = group(of(&c)); c.Nonzero && of(&c) == 0 {
			row[c.Key] = "–"
		}
	}
}

func spliced(b admin.Bytes) int64 { return b.ClientToEndpoint.Spliced + b.EndpointToClient.Spliced }

func copied(b admin.Bytes) int64 { return b.ClientToEndpoint.Copied + b.EndpointToClient.Copied }

func forwarded(b admin.Bytes) int64 { return b.ClientToEndpoint.Lane + b.EndpointToClient.Lane }

func group(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

func share(part, all float64) string {
	switch x := part / all; {
	case all == 0:
		return "–"
	case x > 0 && x < 0.001:
		return "< 0.1 %"
	default:
		return display.Fixed(100*x, 1) + " %"
	}
}

func mean(us, made int64) string {
	if made == 0 {
		return "–"
	}
	return micro(float64(us) / float64(made))
}

func micro(us float64) string {
	switch ms := us / 1000; {
	case us < 1000:
		return fmt.Sprintf("%.0f µs", math.Round(us))
	case ms < 9.95:
		return display.Fixed(ms, 1) + " ms"
	case ms < 1000:
		return display.Fixed(ms, 0) + " ms"
	default:
		return display.Fixed(ms/1000, 1) + " s"
	}
}
