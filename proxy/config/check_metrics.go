package config

// metrics checks the address of the metrics, and its conditions for scrapers.
func (k *checker) metrics(m *Metrics) {
	if m == nil {
		return
	}
	if b := &m.Bind; b.Systemd != "" || b.Address.Network == "unix" {
		k.complainAt(k.at(b, b), "write :9464, or scrape the admin API", "the metrics have an address of TCP alone")
	}
	if len(m.Allow) == 0 && k.given(&m.Allow) && !k.bad[&m.Allow] {
		k.complainAt(k.at(&m.Allow, m), "write the sources of the scrapers, or all", "no source may scrape")
	}
	for _, rule := range m.Allow {
		if rule.Unix() {
			k.complainAt(k.at(&m.Allow, m), "leave it out", "%s matches clients of unix sockets, and there are none", rule)
		}
	}
	if t := m.TLS; t != nil {
		k.pair(&t.Cert, &t.Key, t)
	}
	k.token(m)
}

// token checks that the token is a secret one.
func (k *checker) token(m *Metrics) {
	if k.credential(&m.Token, m, "the token") && m.TLS == nil && m.Bind.Address.Private() != nil {
		k.warnAt(k.at(&m.Token, m), "add tls", "without TLS the token crosses the network as clear text")
	}
}
