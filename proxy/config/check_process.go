package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/sessionlog"
	clients "github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/sockopt"
)

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
		k.complainAt(k.at(&a.ReadToken, a), "write another token, or leave read_token out", "read_token and change_token are equal: a client that may read could also change")
	}
	if t := a.TLS; t != nil {
		k.pair(&t.Cert, &t.Key, t)
		k.authorities(&t.ClientCA, t)
		k.changers(t)
	}
}

// changers checks that no other user may write the file of authorities: a client with their certificate may change
// everything.
func (k *checker) changers(t *AdminTLS) {
	path, at := string(t.ClientCA), k.at(&t.ClientCA, t)
	if mode, err := k.mode(path); err == nil && mode&0o002 != 0 { // an error was reported as the file was read
		k.complainAt(at, "chmod o-w "+path, "every user of this machine may write %s (mode %#o)", path, mode.Perm())
	}
}

// adminPlace complains of an address that the admin API cannot have.
func (k *checker) adminPlace(a *Admin) {
	b := &a.Bind
	at := k.at(b, a)
	switch {
	case b.Systemd != "":
		k.complainAt(at, "write unix:/path", "the admin API cannot use a socket of systemd")
	case b.Address.Network == "" || k.bad[&a.TLS]: // it could not be read
	case b.Address.Abstract():
		k.complainAt(at, "write unix:/path", "an abstract socket is open to every user of this machine")
	case b.Address.Network != "unix" && a.TLS == nil && b.Address.Private() != nil:
		k.complainAt(at, "write unix:/path or 127.0.0.1:PORT, or add tls", "%s is open to other machines", b)
	}
}

// adminClients complains of rules that do not fit the address, and of an address that anybody could use.
func (k *checker) adminClients(a *Admin) {
	b := &a.Bind
	token := a.ReadToken != (Secret{}) || a.ChangeToken != (Secret{}) || k.bad[&a.ReadToken] || k.bad[&a.ChangeToken]
	switch {
	case k.bad[b] || k.bad[&a.TLS] || b.Systemd != "": // reported already, or it could not be read
	case b.Address.Network == "unix" || b.Auto():
		k.ofTCP(a)
	case a.Group != "":
		k.complainAt(k.at(&a.Group, a), "leave it out, or write unix:/path as bind", "group has no effect over TCP: the kernel does not say which user connects")
	case !token && (a.TLS == nil || a.TLS.ClientCA == ""):
		k.complainAt(k.at(b, a), "add one of change_token: file:PATH, read_token: file:PATH, tls: {client_ca: PATH}; or write unix:/path", "everybody who can connect to %s could change everything", b)
	}
}

func (k *checker) ofTCP(a *Admin) {
	const fix = "leave it out, or write host:port as bind"
	switch {
	case a.ReadToken != (Secret{}):
		k.complainAt(k.at(&a.ReadToken, a), fix, "tokens have no effect over a unix socket: the user of the client decides")
	case a.ChangeToken != (Secret{}):
		k.complainAt(k.at(&a.ChangeToken, a), fix, "tokens have no effect over a unix socket: the user of the client decides")
	case a.TLS != nil:
		k.complainAt(k.at(&a.TLS, a), fix, "a unix socket has no TLS")
	}
}

func (k *checker) adminToken(s *Secret, a *Admin, key string) {
	if k.credential(s, a, "the token") && len(s.Value) < leastToken {
		k.complainAt(k.at(s, a), "write a longer token: openssl rand -hex 32", "the token of %s has fewer than %d characters", key, leastToken)
	}
}

func (k *checker) metrics(m *Metrics) {
	if m == nil {
		return
	}
	switch b := &m.Bind; {
	case b.Address.Network == "unix":
		k.complainAt(k.at(b, b), "write 127.0.0.1:9464, or scrape the admin API", "the metrics need a TCP address")
	case b.Systemd != "":
		k.complainAt(k.at(b, b), "write :9464, or scrape the admin API", "the metrics need a TCP address")
	case m.nobody() && !k.bad[&m.Allow]:
		k.warnAt(k.at(&m.Allow, m), "write "+m.allowSample()+", or another bind", "no source in allow can connect to %s", b)
	}
	if len(m.Allow) == 0 && k.given(&m.Allow) && !k.bad[&m.Allow] {
		k.complainAt(k.at(&m.Allow, m), "write the sources of the scrapers, or all", "allow is empty, so no source may scrape")
	}
	for _, rule := range m.Allow {
		if rule.Unix() {
			k.complainAt(k.at(&m.Allow, m), "leave it out", "%s matches only clients of unix sockets, and the metrics have no unix socket", rule)
		}
	}
	if t := m.TLS; t != nil {
		k.pair(&t.Cert, &t.Key, t)
	}
	k.token(m)
}

// hosts returns the addresses from which clients can connect to the metrics. The prefix is invalid if clients may have
// any address.
func (m *Metrics) hosts() netip.Prefix {
	if m.Bind.Address.Network != "tcp" {
		return netip.Prefix{}
	}
	host, _ := splitHostPort(m.Bind.Address.Name)
	switch ip, err := netip.ParseAddr(host); {
	case err != nil || ip.IsUnspecified():
		return netip.Prefix{}
	case ip.Unmap().IsLoopback() && ip.Unmap().Is4():
		return netip.MustParsePrefix("127.0.0.0/8")
	case ip.IsLoopback():
		return netip.PrefixFrom(ip, ip.BitLen())
	case ip.Unmap().Is4():
		return netip.MustParsePrefix("0.0.0.0/0")
	}
	return netip.MustParsePrefix("::/0")
}

// nobody reports whether no source in allow can connect.
func (m *Metrics) nobody() bool {
	hosts := m.hosts()
	if !hosts.IsValid() || len(m.Allow) == 0 {
		return false
	}
	all := clients.Prefix(hosts)
	return !slices.ContainsFunc(m.Allow, func(r Rule) bool { return r.Everyone() || r.Covers(all) || all.Covers(r) })
}

// allowSample returns an example of allow that fits bind.
func (m *Metrics) allowSample() string {
	switch hosts := m.hosts(); {
	case hosts.IsValid() && hosts.Bits() > 0:
		return fmt.Sprintf("allow: [%q]", clients.Prefix(hosts))
	case hosts.IsValid() && hosts.Addr().Is6():
		return `allow: ["2001:db8::/32"]`
	}
	return "allow: [10.0.0.0/8]"
}

func (k *checker) token(m *Metrics) {
	if k.credential(&m.Token, m, "the token") && m.TLS == nil && m.Bind.Address.Private() != nil {
		k.warnAt(k.at(&m.Token, m), "add tls", "without TLS the token crosses the network as clear text")
	}
}

// hardware complains of CPUs and NUMA nodes that this machine does not have.
func (k *checker) hardware(l *ProcessLimits) {
	here, known := k.affinity(&l.Loops)
	k.node(&l.Memory, here)
	if n := l.Loops.Count; known && n > len(here) && !k.bad[&l.Loops.Count] {
		k.warnAt(k.at(&l.Loops.Count, &l.Loops), fmt.Sprintf("write count: %d or less", len(here)), "%d loops share %s", n, cpuCount(len(here)))
	}
}

// affinity checks the CPUs of loops. It returns the CPUs that the process would run on, if they are known.
func (k *checker) affinity(l *LoopLimits) (here topology.Set, known bool) {
	if len(l.Affinity) == 0 && l.Count == 0 || k.bad[&l.Affinity] {
		return nil, false
	}
	present, err := k.cpus()
	if err != nil {
		if len(l.Affinity) > 0 {
			k.unread(k.at(&l.Affinity, l), "CPU", l.CPUs().String(), err)
		}
		return nil, false
	}
	if len(l.Affinity) == 0 {
		return present, true
	}
	known = true
	for i := range l.Affinity {
		c := &l.Affinity[i]
		if k.bad[c] {
			known = false
			continue
		}
		if lacking := c.set().Without(present); len(lacking) > 0 {
			fix := c.set().And(present)
			if len(fix) == 0 {
				fix = present
			}
			k.complainAt(k.at(c, l), "write "+fix.String(), "this machine has no CPU %s", lacking)
			known = false
		}
	}
	return l.CPUs(), known
}

// node checks the NUMA node of the memory. here are the CPUs of the process, if it is bound to some.
func (k *checker) node(m *MemoryLimits, here topology.Set) {
	n, numbered := m.NUMA.Number()
	if !numbered || k.bad[&m.NUMA] {
		return
	}
	nodes, err := k.nodes()
	at := k.at(&m.NUMA, m)
	switch {
	case errors.Is(err, topology.ErrNoNUMA):
		k.complainAt(at, "write numa: "+Off+", or leave it out", "this kernel has no NUMA nodes")
	case err != nil:
		k.unread(at, "NUMA node", string(m.NUMA), err)
	case !nodes.Has(n):
		k.complainAt(at, fmt.Sprintf("write one of %s, auto or %s", nodes, Off), "this machine has no NUMA node %d", n)
	default:
		k.farther(m, here)
	}
}

// farther warns of memory on a NUMA node that has none of the process's CPUs.
func (k *checker) farther(m *MemoryLimits, here topology.Set) {
	n, _ := m.NUMA.Number()
	near, err := k.cpusOf(n)
	if err != nil || len(here) == 0 || len(here.And(near)) > 0 {
		return
	}
	fix := "write another node"
	if len(near) > 0 {
		fix = fmt.Sprintf("write another node, or affinity: %q", near)
	}
	k.warnAt(k.at(&m.NUMA, m), fix, "none of the CPUs %s is on node %d: all of this memory would be remote", here, n)
}

// unread warns that a file of the kernel, which lists CPUs or nodes, cannot be read.
func (k *checker) unread(at place, kind, number string, err error) {
	k.warnAt(at, "look into /sys/devices/system on the machine where penstock will run", "it is unknown whether this machine has %s %s: %v", kind, number, err)
}

func cpuCount(n int) string {
	if n == 1 {
		return "one CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}

// lane checks that there is a place for pins, and warns of settings that nothing uses.
func (k *checker) lane(c *Config) {
	l := &c.Lane
	if k.bad[l] {
		return
	}
	if l.Leave && l.Pins == "" && !k.bad[&l.Pins] && !k.partial {
		k.complainAt(k.at(&l.Leave, l), "write pins: and a directory of a BPF file system, or leave it out", "sessions can continue without this process only if they are pinned")
	}
	if defaults := root().template.Interface().(Config).Lane; k.given(l) && !c.WantsLane() && !k.partial && !sameLane(*l, defaults) {
		hint := "write lane: auto at a listener, or leave it out"
		if l.Pins != "" {
			hint = "write lane: auto at a listener. Before you leave lane out, run penstock lane flush: pinned sessions would continue without any process"
		}
		k.warnAt(k.at(l, l), hint, "no listener uses the lane")
	}
	k.devices(l)
}

// sameLane reports whether two sections have the same values. A section with nothing but defaults may come from
// `penstock config`, which prints all of them.
func sameLane(a, b Lane) bool {
	a.Pos, b.Pos = Pos{}, Pos{}
	a.Devices, b.Devices = slices.Concat(a.Devices), slices.Concat(b.Devices) // empty is nil
	return reflect.DeepEqual(a, b)
}

// devices checks that device names are neither empty nor repeated. Whether the devices exist shows when the lane is
// opened.
func (k *checker) devices(l *Lane) {
	for i, name := range l.Devices {
		switch {
		case k.bad[&l.Devices]:
			return
		case name == "":
			k.complainAt(k.at(&l.Devices, l), "write a name such as eth0, or leave the entry out", "the name of a device is empty")
			return
		case slices.Contains(l.Devices[:i], name):
			k.complainAt(k.at(&l.Devices, l), "write it once", "the device %s is named twice", name)
			return
		}
	}
}

// source warns of a source address that no socket can be bound to now. The machine may get it later.
func (k *checker) source(u *Upstream) {
	if u.SourceAddress.IsValid() && !k.isLocal(u.SourceAddress) {
		k.warnAt(k.at(&u.SourceAddress, u), "write an address of this machine, or leave it out: without this address no endpoint can be reached",
			"this machine does not have the address %v now", u.SourceAddress)
	}
}

// isLocal reports whether a socket can be bound to an address, or true if it cannot find out. Binding sends nothing.
func isLocal(addr netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return !errors.Is(err, syscall.EADDRNOTAVAIL)
	}
	_ = c.Close()
	return true
}

// A namedFile is a file or socket and the value that names it.
type namedFile struct {
	path string
	key  string // of the value
	at   place  // of the value
}

// A writtenFile is a file or socket that the process makes, appends to or replaces.
type writtenFile struct {
	namedFile
	does string // beginning of a message about it
}

// file returns the identity of a path. All paths that lead to one file by symbolic links have the same identity. Hard
// links are not compared.
func (f *namedFile) file() string { return sockopt.Address{Network: "unix", Name: f.path}.Place() }

// names records that the current value names the file at path.
func (d *decoder) names(f *field, path string) {
	if path != "" && !d.trying {
		d.files = append(d.files, namedFile{path, f.key, d.here})
	}
}

// written complains if the process writes a file that is also named for another purpose: a state file would replace a
// key at the same path, and a session log would append to it.
func (k *checker) written(c *Config) {
	list := k.writtenFiles(c)
	if len(list) == 0 {
		return
	}
	own := make(map[string]*writtenFile, len(list))
	self := make(map[place]bool, len(list))
	for i := range list {
		w := &list[i]
		self[w.at] = w.at.src != nil
		dir := filepath.Dir(w.path)
		if mode, err := k.mode(dir); err == nil && mode.IsDir() && mode&0o002 != 0 && mode&fs.ModeSticky == 0 && self[w.at] {
			k.complainAt(w.at, "chmod o-w "+dir+", or write a path in another directory", "every user of this machine may write in %s (mode %#o), and replace %s", dir, mode.Perm(), w.path)
		}
		if self[w.at] {
			k.refused(w.path, w.key == "bind", w.at)
		}
		k.included(c, w)
		before := own[w.file()]
		switch {
		case before == nil:
			own[w.file()] = w
		case before.at.src == nil:
			k.namedTwice(before, &w.namedFile)
		default:
			k.namedTwice(w, &before.namedFile)
		}
	}
	for i := range k.files {
		if w := own[k.files[i].file()]; w != nil && !self[k.files[i].at] {
			k.namedTwice(w, &k.files[i])
		}
	}
	k.connectedTo(c, own)
}

// refused warns of a path at which penstock run would not write. Only a warning: the process may run as the other user.
func (k *checker) refused(path string, socket bool, at place) {
	if err := file.Refused(path, socket); err != nil {
		k.warnAt(at, "", "%v", err)
	}
}

// writtenFiles returns the files that the process writes. Sockets that overlap are reported by binds.
func (k *checker) writtenFiles(c *Config) (list []writtenFile) {
	if path := c.StatePath(k.env); path != "" && !k.bad[&c.StateFile] {
		list = append(list, writtenFile{namedFile{path, "state_file", k.places[&c.StateFile]}, "changes by hand would be written to"})
	}
	if l := c.SessionLog; l != nil && !k.bad[l] && !k.bad[&l.To] {
		to, err := sessionlog.ParseDestination(l.To)
		switch at := k.at(&l.To, l); {
		case err != nil:
		case to.File() != "":
			list = append(list, writtenFile{namedFile{to.File(), "to", at}, "lines of the session log would be written to"})
		case to.Socket() != "":
			k.refused(to.Socket(), false, at)
		}
	}
	sockets := make(map[string]bool)
	bind := func(b *Bind) {
		f := namedFile{b.Address.Name, "bind", k.at(b, b)}
		if b.Address.Network == "unix" && !b.Address.Abstract() && !sockets[f.file()] {
			sockets[f.file()] = true
			list = append(list, writtenFile{f, "a socket would be made at"})
		}
	}
	if c.Admin != nil {
		bind(&c.Admin.Bind)
	}
	for _, ln := range c.Listeners {
		for i := range ln.Bind {
			bind(&ln.Bind[i])
		}
	}
	return list
}

// connectedTo complains if the process writes a file that is also an endpoint's socket, unless the socket belongs to
// a listener.
func (k *checker) connectedTo(c *Config, own map[string]*writtenFile) {
	for _, u := range c.Upstreams {
		for i := range u.Endpoints {
			e := &u.Endpoints[i]
			if e.Address.Network != "unix" || e.Address.Abstract() {
				continue
			}
			f := namedFile{e.Address.Name, "address", k.at(&e.Address, e)}
			if w := own[f.file()]; w != nil && w.key != "bind" {
				k.namedTwice(w, &f)
			}
		}
	}
}

// included complains of a written file that is read as configuration.
func (k *checker) included(c *Config, w *writtenFile) {
	for _, path := range c.Files {
		if f := (namedFile{path: path}); f.file() == w.file() {
			k.complainAt(w.at, "write another path", "%s %s, which is a file of the configuration", w.does, w.path)
			return
		}
	}
	for _, pattern := range c.Globs {
		if matches, _ := filepath.Match(pattern, w.path); matches {
			k.complainAt(w.at, "write a path in another directory", "%s %s, but include reads this path as configuration", w.does, w.path)
			return
		}
	}
}

// namedTwice reports that w and f name the same file. It reports this at w, or at f if no key names w.
func (k *checker) namedTwice(w *writtenFile, f *namedFile) {
	if w.at.src == nil {
		k.complainAt(f.at, "write another path", "%s %s, the default of state_file, but %s uses this path too", w.does, w.path, f.key)
		return
	}
	k.complainAt(w.at, "write another path", "%s %s, but %s in %v uses this path too", w.does, w.path, f.key, f.at.pos())
}

// stateName is the name of the file of changes by hand in the directory that systemd makes.
const stateName = "penstock.state"

// StatePath returns the path of the file of changes by hand, or "". env may be nil, which means that no variable is
// set.
func (c *Config) StatePath(env Env) string {
	if c.StateFile != "" {
		return string(c.StateFile)
	}
	if env == nil {
		return ""
	}
	list, _ := env("STATE_DIRECTORY") // one directory, or several separated by colons (systemd.exec(5))
	if dir, _, _ := strings.Cut(list, ":"); filepath.IsAbs(dir) {
		return filepath.Join(dir, stateName)
	}
	return ""
}
