package config

// leastToken is the shortest token of the admin API, in bytes. A shorter one can be guessed.
const leastToken = 16

// admin checks the address of the admin API, and the conditions of its clients.
func (k *checker) admin(a *Admin) {
	if a == nil {
		return
	}
	k.adminPlace(a)
	k.adminClients(a)
	k.adminToken(&a.ReadToken, a, "read_token")
	k.adminToken(&a.ChangeToken, a, "change_token")
	if r, c := a.ReadToken.Value, a.ChangeToken.Value; r != "" && r == c {
		k.complainAt(k.at(&a.ReadToken, a), "write another token, or leave read_token out", "read_token is the change_token: whoever reads could change, too")
	}
	if t := a.TLS; t != nil {
		k.pair(&t.Cert, &t.Key, t)
		k.authorities(&t.ClientCA, t)
	}
}

// adminPlace complains of an address that the admin API cannot have.
func (k *checker) adminPlace(a *Admin) {
	b := &a.Bind
	at := k.at(b, a)
	switch {
	case b.Systemd != "":
		k.complainAt(at, "write unix:/path", "the admin API does not take a socket of systemd")
	case b.Address.Network == "" || k.bad[&a.TLS]: // it could not be read
	case b.Address.Abstract():
		k.complainAt(at, "write unix:/path", "an abstract socket is open to every user of this machine")
	case b.Address.Network != "unix" && a.TLS == nil && b.Address.Private() != nil:
		k.complainAt(at, "write unix:/path or 127.0.0.1:PORT, or add tls", "%s is open to other machines", b)
	}
}

// adminClients complains of conditions that do not fit the address, and of an address whose clients have none.
func (k *checker) adminClients(a *Admin) {
	b := &a.Bind
	token := a.ReadToken != (Secret{}) || a.ChangeToken != (Secret{}) || k.bad[&a.ReadToken] || k.bad[&a.ChangeToken]
	switch {
	case k.bad[b] || k.bad[&a.TLS] || b.Systemd != "": // adminPlace has complained, or it could not be read
	case b.Address.Network == "unix" || b.Auto():
		k.ofTCP(a)
	case a.Group != "":
		k.complainAt(k.at(&a.Group, a), "leave it out, or write unix:/path as bind", "the kernel does not say which user asks over TCP")
	case !token && (a.TLS == nil || a.TLS.ClientCA == ""):
		k.complainAt(k.at(b, a), "add change_token: file:PATH or read_token, or tls with client_ca, or write unix:/path", "everybody who can connect to %s could change everything", b)
	}
}

// ofTCP complains of keys that a unix socket does not need.
func (k *checker) ofTCP(a *Admin) {
	const fix = "leave it out, or write host:port as bind"
	switch {
	case a.ReadToken != (Secret{}):
		k.complainAt(k.at(&a.ReadToken, a), fix, "over a unix socket the user of a client decides, and no token")
	case a.ChangeToken != (Secret{}):
		k.complainAt(k.at(&a.ChangeToken, a), fix, "over a unix socket the user of a client decides, and no token")
	case a.TLS != nil:
		k.complainAt(k.at(&a.TLS, a), fix, "a unix socket has no TLS")
	}
}

// adminToken checks that a token is a secret one.
func (k *checker) adminToken(s *Secret, a *Admin, key string) {
	if k.credential(s, a, "the token") && len(s.Value) < leastToken {
		k.complainAt(k.at(s, a), "write a longer one: openssl rand -hex 32", "the token of %s has fewer than %d characters", key, leastToken)
	}
}
