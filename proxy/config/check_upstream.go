package config

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/file"
)

func (k *checker) upstream(u *Upstream) {
	k.oneOf(u, place{}, `write endpoints: ["10.0.0.11:443"]`,
		choice{"endpoints", &u.Endpoints, len(u.Endpoints) > 0}, choice{"discover", &u.Discover, u.Discover != nil})
	names := newNames(k.decoder, "endpoint")
	for i := range u.Endpoints {
		e, fix := &u.Endpoints[i], "write another name"
		if e.Name == "" && e.Address.Network != "" {
			e.Name, fix = e.Address.String(), "leave one out, and give the other more weight"
		}
		names.define(&e.Name, k.at(&e.Name, e).or(k.at(&e.Address, e)), fix)
		k.endpoint(u, e)
	}
	k.misnamed(u.Endpoints)
	k.balanceOn(u)
	k.weights(u)
	k.backups(u)
	k.twice(u)
	k.zone(u)
	k.source(u)
	k.congestion(&u.Socket.Congestion, &u.Socket)
	k.retry(u)
	k.queue(u)
	if u.Discover != nil {
		k.discover(u.Discover)
	}
	if h := u.HealthCheck; h != nil {
		k.health(h)
		k.checkTLS(u, h)
	}
	k.ordered(u)
	k.percentages(u)
	k.fallback(u)
	if t := u.TLS; t != nil {
		k.origination(t)
	}
}

// misnamed complains of an endpoint with a name that is another endpoint's address. Commands take this text for the
// name, even if the operator means the address.
func (k *checker) misnamed(list []Endpoint) {
	at := make(map[string]*Endpoint, len(list))
	for i := range list {
		at[list[i].Address.String()] = &list[i]
	}
	for i := range list {
		e := &list[i]
		if other := at[e.Name]; e.Name != "" && other != nil && !SameDestination(e.Address, other.Address) {
			k.complainAt(k.at(&e.Name, e), "write another name, or leave it out", "the endpoint at %s has the address of another endpoint as its name: %s", e.Address, e.Name)
		}
	}
}

// endpoint finds conflicts of an endpoint with other settings of its upstream.
func (k *checker) endpoint(u *Upstream, e *Endpoint) {
	if e.Address.Network == "unix" {
		switch h := u.HealthCheck; {
		case h != nil && h.Port != 0:
			k.complainAt(k.at(&h.Port, h), "leave it out", "the endpoint %s is a unix socket, which has no port", e.Name)
		case u.TLS != nil && u.TLS.SNI == "":
			k.complainAt(k.at(u.TLS, u), "write sni: and the name in its certificate", "the endpoint %s is a unix socket, and its address has no name to verify", e.Name)
		}
		return
	}
	if !u.SourceAddress.IsValid() || e.Address.Network == "" {
		return
	}
	host, _ := splitHostPort(e.Address.Name)
	if addr, err := netip.ParseAddr(host); err == nil && addr.Unmap().Is4() != u.SourceAddress.Is4() {
		k.complainAt(k.at(&u.SourceAddress, u), "write an address of the same family", "%v cannot connect to the endpoint %s", u.SourceAddress, e.Name)
	}
}

func (k *checker) discover(d *Discover) {
	if k.bad[d] {
		return
	}
	k.oneOf(d, place{}, "write dns: {name: _pg._tcp.db.example}",
		choice{"dns", &d.DNS, d.DNS != nil}, choice{"file", &d.File, d.File != nil})
	dns := d.DNS
	if dns == nil {
		if d.File != nil {
			k.absent(d.File)
		}
		return
	}
	switch {
	case k.bad[&dns.Type] || k.bad[&dns.Port]: // already reported
	case dns.Type == "SRV" && dns.Port != 0:
		k.complainAt(k.at(&dns.Port, dns), "leave it out, or write type: A", "SRV records have their own ports")
	case dns.Type != "SRV" && dns.Port == 0:
		k.complainAt(k.at(&dns.Port, dns), "write port: 443, or type: SRV", "%s records have no port: port is missing", dns.Type)
	}
	for i := range dns.Servers {
		s := &dns.Servers[i]
		if s.Network == "" {
			continue
		}
		host, _ := splitHostPort(s.Name)
		if _, err := netip.ParseAddr(host); s.Network != "tcp" || err != nil {
			k.complainAt(k.at(s, dns), "write an IP address and a port, such as 10.0.0.2:53", "the address of a name server cannot be a name")
		}
	}
	k.atMost(dns, "min_ttl", &dns.MinTTL, "max_ttl", &dns.MaxTTL)
}

func (k *checker) health(h *HealthCheck) {
	if h.FastInterval > h.Interval && !k.given(&h.FastInterval) {
		h.FastInterval = h.Interval
	}
	if h.Timeout > h.Interval && !k.given(&h.Timeout) {
		h.Timeout = h.Interval
	}
	k.atMost(h, "fast_interval", &h.FastInterval, "interval", &h.Interval)
	if k.given(&h.Timeout) && h.Timeout > h.Interval {
		k.warnAt(k.at(&h.Timeout, h), "make timeout shorter or interval longer",
			"timeout is %v, longer than interval (%v): an endpoint that does not answer is checked less often than interval says", h.Timeout, h.Interval)
	}
	if h.Standby.Value != "" && h.Type == "tcp" && h.Expect.Value == "" {
		k.complainAt(k.at(&h.Standby, h), "write expect: and the answer of an endpoint that serves", "standby needs expect: a check without an expected answer finds no standby")
	}
	if h.Type == "http" {
		if h.Send.Value != "" {
			k.complainAt(k.at(&h.Send, h), "leave it out, or write type: tcp", "an http check does not use send, but sends a request")
		}
		if h.Expect.Value != "" {
			k.complainAt(k.at(&h.Expect, h), "write http: {body: …}", "an http check does not use expect, but http.body")
		}
		if len(h.HTTP.Status) == 0 {
			k.complainAt(k.at(&h.HTTP.Status, h), "write status: [200]", "status is empty, so every check would fail")
		}
	} else if k.given(&h.HTTP) && !k.bad[&h.HTTP] && !k.bad[&h.Type] {
		k.httpOfTCP(h)
	}
	k.unescaped(&h.Send, h, "send")
	k.unescaped(&h.Expect, h, "expect")
	k.unescaped(&h.Standby, h, "standby")
	k.unescaped(&h.HTTP.Body, &h.HTTP, "body")
	if s := &h.Send; h.Type == "tcp" && s.Source == "" && logsIn(s.Value) {
		k.warnAt(k.at(s, h).discreet(), "write file:PATH or ${VARIABLE}", "send seems to contain a password: other users may read it here, and penstock config shows it")
	}
}

var escape = regexp.MustCompile(`\\(?:[0abefnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})`)

// unescaped warns of an escape that stands outside double quotes, where YAML keeps it as it is.
func (k *checker) unescaped(s *Secret, section any, key string) {
	if found := escape.FindString(s.Value); found != "" && s.Source == "" {
		k.warnAt(k.at(s, section).discreet(), "write it in double quotes", `%s has the characters %s, not the byte: only in double quotes YAML replaces them`, key, found)
	}
}

// logsIn reports whether a check sends a password, as checks for Redis, POP3 and FTP do.
func logsIn(text string) bool {
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.ToUpper(line), " ")
		if strings.TrimSpace(rest) != "" && (word == "AUTH" || word == "PASS") {
			return true
		}
	}
	return false
}

// checkTLS switches on TLS for a check that expects an answer at the endpoint's own port, if connections to this port
// use TLS. Without TLS the answer would be an error page, and the endpoint would be taken out of service.
func (k *checker) checkTLS(u *Upstream, h *HealthCheck) {
	if u.TLS != nil && h.Port == 0 {
		if h.asks() && !k.given(&h.TLS) {
			h.TLS = true
		}
		if h.TLS && !k.given(&h.SNI) {
			h.SNI = u.TLS.SNI
		}
	}
	if h.SNI != "" && !h.TLS && !k.bad[&h.TLS] {
		k.complainAt(k.at(&h.SNI, h), "write tls: true as well, or leave it out", "sni has no effect without TLS")
	}
}

// httpOfTCP complains of settings for a request that a tcp check never makes. It accepts written defaults.
func (k *checker) httpOfTCP(h *HealthCheck) {
	c := &h.HTTP
	if c.Path == "/" && c.Host == "" && c.Body.Value == "" && len(c.Status) == 1 && c.Status[0] == 200 {
		return
	}
	k.complainAt(k.at(c, h), "write type: http as well, or leave http out", "http has no effect on a tcp check")
}

// ordered requires each minimum to be at most its maximum.
func (k *checker) ordered(u *Upstream) {
	k.atMost(u, "backoff", &u.Retry.Backoff, "max_backoff", &u.Retry.MaxBackoff)
	if o := u.OutlierDetection; o != nil {
		k.atMost(o, "base_ejection_time", &o.BaseEjectionTime, "max_ejection_time", &o.MaxEjectionTime)
	}
}

func (k *checker) atMost(section any, lessKey string, less *time.Duration, moreKey string, more *time.Duration) {
	if *less <= *more || k.bad[less] || k.bad[more] {
		return
	}
	at := k.at(less, section)
	if !k.given(less) {
		at = k.at(more, section)
	}
	k.complainAt(at, "make "+lessKey+" shorter or "+moreKey+" longer", "%s is %v, longer than %s (%v)", lessKey, *less, moreKey, *more)
}

func (k *checker) fallback(u *Upstream) {
	f := u.Fallback
	if f == nil || k.bad[f] {
		return
	}
	k.oneOf(f, place{}, "write upstream: and the name of an upstream",
		choice{"upstream", &f.Upstream, f.Upstream != ""}, choice{"respond", &f.Respond, f.Respond.Path != ""})
	k.upstreams.use(&f.Upstream, f)
}

func (k *checker) origination(t *UpstreamTLS) {
	k.own(&t.Cert, &t.Key, t)
	k.authorities(&t.CA, t)
}

// own checks the certificate that this side shows to its peers: a section needs both files, or neither.
func (k *checker) own(cert, key *Path, section any) {
	switch {
	case k.bad[cert] || k.bad[key]: // already reported
	case *cert != "" && *key == "":
		k.complainAt(k.at(cert, section), "write key: and the PEM file of its private key", "key is missing")
	case *key != "" && *cert == "":
		k.complainAt(k.at(key, section), "write cert: and the PEM file of its certificate", "cert is missing")
	}
	k.pair(cert, key, section)
}

// credential checks a secret that authenticates one side to the other, such as a token. It must come from a file or a
// variable, no other user may be able to read the file, and it must be one line. name is what messages call it.
// credential reports whether a valid secret is given. If it could not be read, this was already reported.
func (k *checker) credential(s *Secret, section any, name string) bool {
	if k.bad[s] || *s == (Secret{}) {
		return false
	}
	at, in, path := k.at(s, section), s.Source, s.path()
	mode, err := fs.FileMode(0), error(nil)
	if path != "" {
		in = path
		mode, err = k.mode(path)
	}
	switch line := s.Value; {
	case s.Source == "":
		k.complainAt(at.discreet(), "write file:PATH or ${VARIABLE}", "%s is written in the configuration, which other users may read", name)
	case line == "":
		k.complainAt(at, "write it into "+in+", or leave it out", "%s is empty", name)
	case strings.Contains(line, "\n"):
		k.complainAt(at, "leave only one line in "+in, "%s has %d lines", name, 1+strings.Count(line, "\n"))
	case strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }):
		k.complainAt(at, "write printable ASCII characters", "%s has characters that a header cannot have", name)
	case strings.TrimSpace(line) != line:
		k.complainAt(at, "leave them out of "+in, "%s has spaces at its beginning or its end", name)
	case err != nil:
		k.complainAt(at, mend(err, maxBytes), "%v", err)
	case mode&0o007 != 0:
		k.complainAt(at, "chmod o= "+path, "every user of this machine may use %s (mode %#o)", path, mode.Perm())
	default:
		return true
	}
	return false
}

func (s *Secret) path() string {
	path, ok := strings.CutPrefix(s.Source, "file:")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(path, "$$", "$")
}

// fileMode returns the mode of a file. It follows links.
func fileMode(path string) (fs.FileMode, error) {
	info, err := file.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Mode(), nil
}

// congestion complains of a congestion control that this kernel does not list, or that this process may not use. If
// it cannot find out, it only warns.
func (k *checker) congestion(name *string, section any) {
	if *name == "" || k.bad[name] {
		return
	}
	at := k.at(name, section)
	available, allowed, err := k.controls()
	switch {
	case err != nil:
		k.uncontrolled(at, *name, err)
		return
	case !slices.Contains(available, *name):
		k.complainAt(at, mendCongestion(available)+", or load the module tcp_"+*name, "this kernel does not have the congestion control %s", *name)
		return
	case slices.Contains(allowed, *name):
		return
	}
	switch _, err := k.control(*name); {
	case err == nil: // allowed with CAP_NET_ADMIN
	case errors.Is(err, syscall.EPERM):
		k.complainAt(at, mendCongestion(allowed)+", or give this process CAP_NET_ADMIN", "the congestion control %s needs CAP_NET_ADMIN, and this process does not have it", *name)
	default:
		k.uncontrolled(at, *name, err)
	}
}

// uncontrolled warns that the kernel may lack the named congestion control.
func (k *checker) uncontrolled(at place, name string, err error) {
	k.warnAt(at, "look into /proc/sys/net/ipv4/tcp_available_congestion_control on the machine where penstock will run. If that kernel does not have it, sockets use the system's congestion control",
		"it is unknown whether this kernel has the congestion control %s: %v", name, err)
}

// mendCongestion lists what may be written.
func mendCongestion(list []string) string {
	return "write one of " + strings.Join(slices.Sorted(slices.Values(list)), ", ")
}

// maxPEM is the size limit of a certificate file. All authorities of a system take about 250 KiB.
const maxPEM = 4 << 20

func (k *checker) termination(t *ListenerTLS) {
	if len(t.Certificates) == 0 && k.given(&t.Certificates) && !k.bad[&t.Certificates] {
		k.complainAt(k.at(&t.Certificates, t), "write certificates: [{cert: a.pem, key: a.key}], or leave tls out", "TLS cannot be terminated without a certificate")
	}
	taken := make(map[[2]string]bool) // names, each with the kind of key
	for i := range t.Certificates {
		c := &t.Certificates[i]
		k.pair(&c.Cert, &c.Key, c)
		leaf := k.pairs[Certificate{Cert: c.Cert, Key: c.Key}].leaf
		if leaf == nil {
			continue
		}
		kind := leaf.PublicKeyAlgorithm.String()
		if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); ok {
			kind = key.Params().Name // a client may know one curve only
		}
		used := i == 0
		for _, name := range leaf.DNSNames {
			of := [2]string{strings.ToLower(name), kind}
			used = used || !taken[of]
			taken[of] = true
		}
		if !used {
			k.warnAt(k.at(&c.Cert, c), "leave it out, or put it first", "no client gets the certificate in %s: it has no DNS name that the ones before it do not have", c.Cert)
		}
	}
	k.authorities(&t.ClientCA, t)
}

// pair reads a certificate and its key as they will be used. If the pair was read before, the
// same complaints are reported at the new place.
func (k *checker) pair(cert, key *Path, section any) {
	id := Certificate{Cert: *cert, Key: *key}
	found, ok := k.pairs[id]
	if !ok {
		found = k.readPair(id)
		k.pairs[id] = found
		k.readable(key, section)
	}
	for _, of := range []struct {
		*complaint
		field *Path
	}{{found.cert, cert}, {found.key, key}} {
		if of.complaint != nil {
			k.complainAt(k.at(of.field, section), of.fix, "%s", of.message)
		}
	}
	if w := found.late; w != nil {
		k.warnAt(k.at(cert, section), w.fix, "%s", w.message)
	}
}

// readable warns of a private key that every user may read.
func (k *checker) readable(key *Path, section any) {
	if *key == "" {
		return
	}
	if mode, err := k.mode(string(*key)); err == nil && mode&0o007 != 0 { // an error was reported as the file was read
		k.warnAt(k.at(key, section), "chmod o= "+string(*key), "every user of this machine may use the private key %s (mode %#o)", *key, mode.Perm())
	}
}

// unpaired holds the complaints about a certificate and its key; nil means none.
type unpaired struct {
	cert, key *complaint
	late      *complaint // a warning: the certificate is not valid now
	leaf      *x509.Certificate
}

// readPair reads the files of a pair. A missing file name was already reported.
func (k *checker) readPair(id Certificate) (found unpaired) {
	var cert, key []byte
	cert, found.cert = k.readPEM(id.Cert)
	key, found.key = k.readPEM(id.Key)
	if id.Cert == "" || id.Key == "" || found.cert != nil || found.key != nil {
		return found
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		found.key = complain("write a certificate and its private key, both as PEM files",
			"%s and %s do not belong together: %s", id.Cert, id.Key, strings.TrimPrefix(err.Error(), "tls: "))
		return found
	}
	found.leaf = pair.Leaf
	switch now := time.Now(); {
	case now.After(pair.Leaf.NotAfter):
		found.late = complain("renew it", "peers do not accept the certificate in %s: it expired at %s", id.Cert, pair.Leaf.NotAfter.Local().Format(time.DateTime))
	case now.Before(pair.Leaf.NotBefore):
		found.late = complain("wait, or issue another certificate", "peers do not accept the certificate in %s: it is not valid before %s", id.Cert, pair.Leaf.NotBefore.Local().Format(time.DateTime))
	}
	return found
}

func (k *checker) readPEM(path Path) ([]byte, *complaint) {
	if path == "" {
		return nil, nil
	}
	data, err := k.read(string(path), maxPEM)
	if err != nil {
		return nil, complain(mend(err, maxPEM), "%v", err)
	}
	return data, nil
}

// authorities reads a file of certificates that verify peers.
func (k *checker) authorities(path *Path, section any) {
	if *path == "" {
		return
	}
	data, err := k.read(string(*path), maxPEM)
	switch {
	case err != nil:
		k.complainAt(k.at(path, section), mend(err, maxPEM), "%v", err)
	case !x509.NewCertPool().AppendCertsFromPEM(data):
		k.complainAt(k.at(path, section), "write a PEM file of certificates", "there is no certificate in %s", *path)
	default:
		if w := late(*path, data, time.Now()); w != nil {
			k.warnAt(k.at(path, section), w.fix, "%s", w.message)
		}
	}
}

// late returns a warning if an authority is not valid at a time, or nil.
func late(path Path, data []byte, now time.Time) *complaint {
	all, bad := 0, []string(nil)
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		of, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil { // as AppendCertsFromPEM does
			continue
		}
		all++
		switch name := printable(of.Subject.String()); {
		case now.After(of.NotAfter):
			bad = append(bad, fmt.Sprintf("%s expired at %s", name, of.NotAfter.Local().Format(time.DateTime)))
		case now.Before(of.NotBefore):
			bad = append(bad, fmt.Sprintf("%s is not valid before %s", name, of.NotBefore.Local().Format(time.DateTime)))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	which := bad[0]
	if len(bad) > 1 {
		which += fmt.Sprintf(", and %d more", len(bad)-1)
	}
	return complain("replace them by valid certificates, or leave them out", "certificates of %d of the %d authorities in %s are not accepted: %s", len(bad), all, path, which)
}
