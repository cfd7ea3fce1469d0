package config

// The ways in which a listener treats clients of PostgreSQL, and the protocol by which endpoints are asked for TLS.
const (
	PostgresPassthrough = "passthrough"
	PostgresTerminate   = "terminate"
	StartTLSPostgres    = "postgres"
	none                = "none"
)

// SpeaksPostgres reports whether the clients of a listener speak PostgreSQL.
func (ln *Listener) SpeaksPostgres() bool { return ln.Postgres != none && ln.Postgres != "" }

// postgres checks that a listener has the keys that its treatment of PostgreSQL needs, and no others.
func (k *checker) postgres(ln *Listener) {
	if k.bad[&ln.Postgres] || k.bad[ln] {
		return
	}
	at := k.at(&ln.Postgres, ln)
	switch {
	case ln.Postgres == PostgresTerminate && ln.TLS == nil && !k.bad[&ln.TLS]:
		k.complainAt(at, "write tls: as well, or postgres: passthrough", "TLS cannot end here: tls is missing")
	case ln.Postgres == PostgresPassthrough && ln.TLS != nil:
		k.complainAt(at, "write postgres: terminate, or leave tls out", "tls is of no use: TLS is passed through")
	case ln.SpeaksPostgres() && ln.Connect == "on_data":
		k.complainAt(k.at(&ln.Connect, ln), "leave it out", "with postgres: %s, the first message is always read before an endpoint is connected to", ln.Postgres)
	}
	for i := range ln.Routes {
		m := &ln.Routes[i].Match
		switch {
		case k.bad[m] || !ln.SpeaksPostgres():
		case len(m.Protocol)+len(m.Host)+len(m.Path)+len(m.Bytes) > 0:
			k.complainAt(k.at(m, &ln.Routes[i]), "write sni, user or database", "the clients of this listener speak PostgreSQL: protocol, host, path and bytes do not apply")
		case len(m.User)+len(m.Database) == 0:
		case ln.Postgres == PostgresPassthrough && (ln.RequireTLS || len(m.SNI)+len(m.ALPN) > 0):
			k.warnAt(k.at(m, &ln.Routes[i]), "write postgres: terminate at the listener", "no client takes this route, and those with TLS that get to it are refused: TLS is passed through, and hides user and database")
		}
	}
}

// passedThrough complains of an upstream that would wrap the TLS of clients in another one.
func (k *checker) passedThrough(c *Config) {
	byName := make(map[string]*Upstream, len(c.Upstreams))
	for _, u := range c.Upstreams {
		byName[u.Name] = u
	}
	for _, ln := range c.Listeners {
		if ln.Postgres != PostgresPassthrough {
			continue
		}
		for u := range ln.reaches(func(name string) *Upstream { return byName[name] }) {
			if u.TLS != nil {
				k.complainAt(k.at(&ln.Postgres, ln), "write postgres: terminate, or an upstream without tls", "the upstream %s has tls, and TLS is passed through", u.Name)
			}
		}
	}
	for _, u := range c.Upstreams {
		if u.StartTLS == StartTLSPostgres && u.TLS == nil && (u.HealthCheck == nil || !u.HealthCheck.TLS) && !k.bad[&u.StartTLS] {
			k.warnAt(k.at(&u.StartTLS, u), "write tls: as well, or leave it out", "starttls: postgres is of no use: neither clients nor checks of the upstream %s begin TLS here", u.Name)
		}
	}
}
