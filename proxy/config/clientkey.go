package config

import (
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/internal/clientkey"
)

// MetricsBy counts the sessions of a listener by a property of their clients. Clients with other values are counted
// together, so the number of series is that of the values and two more.
type MetricsBy struct {
	Pos    Pos
	Key    string   `key:"key" type:"clientkey" required:"yes" eg:"sni" doc:"Property: sni (the server name of the ClientHello), user or database (of the startup message of PostgreSQL) or tlv:0xe0 (the value of that TLV of the PROXY header)."`
	Values []string `key:"values" required:"yes" eg:"a.example" doc:"Values with series of their own, 64 at most. Sessions with another value are other, those without one are unknown."`
}

// The values of a series of clients with a value that is not listed, and without one.
const (
	OtherValue   = "other"
	UnknownValue = "unknown"
)

const (
	maxKeyValues = 64
	maxKeyValue  = 255 // bytes
)

func (m *MetricsBy) same(o *MetricsBy) bool {
	return m.Key == o.Key && slices.Equal(m.Values, o.Values)
}

// Needs reports whether a property of the clients of a listener matters beside its routes: to the policy of an
// upstream that they may get to, or to the metrics. upstream returns the one of a name, nil if there is none.
func (ln *Listener) Needs(kind clientkey.Kind, upstream func(name string) *Upstream) bool {
	is := func(text string) bool {
		key, err := clientkey.Parse(text)
		return err == nil && key.Kind == kind
	}
	if ln.MetricsBy != nil && is(ln.MetricsBy.Key) {
		return true
	}
	for u := range ln.reaches(upstream) {
		if is(u.BalanceOn) {
			return true
		}
	}
	return false
}

// reaches returns the upstreams that a listener's clients may get to, their fallbacks included, but for mirrors.
func (ln *Listener) reaches(upstream func(name string) *Upstream) map[*Upstream]bool {
	all := make(map[*Upstream]bool)
	add := func(name string) {
		for u := upstream(name); u != nil && !all[u]; u = upstream(name) {
			all[u] = true
			if u.Fallback == nil {
				return
			}
			name = u.Fallback.Upstream
		}
	}
	add(ln.Upstream)
	for i := range ln.Routes {
		add(ln.Routes[i].Upstream)
		for j := range ln.Routes[i].Split {
			add(ln.Routes[i].Split[j].Upstream)
		}
	}
	return all
}

// checkClientKey requires a property of a client.
func checkClientKey(text string) *complaint {
	if _, err := clientkey.Parse(text); err != nil {
		fix := "write " + enumeration(clientkey.Words(), "or")
		if meant := closest(text, clientkey.Words()); meant != "" {
			fix = didYouMean(meant)
		}
		return complain(fix, "%q is no property of a client", text)
	}
	return nil
}

// balanceOn complains of a property that the policy does not hash.
func (k *checker) balanceOn(u *Upstream) {
	if k.bad[&u.BalanceOn] || k.bad[&u.Balance] || u.Balance == "maglev" || u.BalanceOn == (clientkey.Key{}).String() {
		return
	}
	hashes := "nothing"
	if u.Balance == "source_ip" {
		hashes = "the source"
	}
	k.complainAt(k.at(&u.BalanceOn, u), "write balance: maglev, or leave balance_on out", "balance: %s hashes %s", u.Balance, hashes)
}

// metricsBy checks the values by which sessions are counted.
func (k *checker) metricsBy(ln *Listener, m *MetricsBy) {
	if k.bad[m] || k.bad[&m.Key] {
		return
	}
	key, _ := clientkey.Parse(m.Key)
	if key.Kind == clientkey.Source {
		k.complainAt(k.at(&m.Key, m), "write key: sni", "there is no series for a source")
		return
	}
	k.knowsKey(k.at(&m.Key, m), []*Listener{ln}, key, "every session is counted as "+UnknownValue)
	switch {
	case len(m.Values) == 0 && k.given(&m.Values) && !k.bad[&m.Values]:
		k.complainAt(k.at(&m.Values, m), `write values: ["a.example"]`, "no value has a series")
	case len(m.Values) > maxKeyValues:
		k.complainAt(k.at(&m.Values, m), "write 64 or fewer", "there are %d values", len(m.Values))
	}
	for i := range m.Values {
		v := &m.Values[i]
		if k.bad[v] {
			continue
		}
		if key.Kind == clientkey.SNI {
			*v = strings.ToLower(*v)
		}
		switch {
		case *v == "" || len(*v) > maxKeyValue:
			k.complainAt(k.at(v, m), "write 1 to 255 bytes", "%.20q is no value", *v)
		case *v == OtherValue || *v == UnknownValue:
			k.complainAt(k.at(v, m), "leave it out", "%s is the value of other clients", *v)
		case slices.Index(m.Values, *v) < i:
			k.complainAt(k.at(v, m), "leave it out", "the value %q is listed twice", *v)
		}
	}
}

// knownKeys warns of upstreams that hash a property which is not known of any of their clients.
func (k *checker) knownKeys(c *Config) {
	byName := make(map[string]*Upstream, len(c.Upstreams))
	for _, u := range c.Upstreams {
		byName[u.Name] = u
	}
	leading := make(map[*Upstream][]*Listener)
	for _, ln := range c.Listeners {
		for u := range ln.reaches(func(name string) *Upstream { return byName[name] }) {
			leading[u] = append(leading[u], ln)
		}
	}
	for _, u := range c.Upstreams {
		key, err := clientkey.Parse(u.BalanceOn)
		if err == nil && u.Balance == "maglev" && len(leading[u]) > 0 && !k.bad[&u.BalanceOn] {
			k.knowsKey(k.at(&u.BalanceOn, u), leading[u], key, "every client is hashed by its source")
		}
	}
}

// knowsKey warns unless clients of one of the listeners may have a property.
func (k *checker) knowsKey(at place, of []*Listener, key clientkey.Key, otherwise string) {
	switch key.Kind {
	case clientkey.Source, clientkey.SNI: // where it matters a ClientHello is read
		return
	case clientkey.User, clientkey.Database:
		if !slices.ContainsFunc(of, func(ln *Listener) bool {
			return k.bad[&ln.Postgres] || ln.Postgres == PostgresTerminate || ln.SpeaksPostgres() && !ln.RequireTLS ||
				slices.ContainsFunc(ln.Routes, func(r Route) bool { return len(r.Match.User)+len(r.Match.Database) > 0 })
		}) {
			k.warnAt(at, "write postgres: terminate at a listener", "no client has a %s, for no listener reads startup messages of PostgreSQL: %s", key, otherwise)
		}
		return
	}
	if !slices.ContainsFunc(of, func(ln *Listener) bool {
		return k.bad[&ln.AcceptProxy] || ln.AcceptProxy != nil && slices.Contains(ln.AcceptProxy.Versions, 2)
	}) {
		k.warnAt(at, "write accept_proxy: with version 2 at a listener", "no client has a TLV, for no listener accepts PROXY headers of version 2: %s", otherwise)
	}
}
