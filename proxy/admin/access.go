package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	users "os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/admission"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/keypair"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Access is an address of the API, and the rules for its clients. The zero Access has no address.
type Access struct {
	Bind string // for [ParseAddress]
	// Group is the name or number of a group. The processes of its users may read over a unix socket. The socket then
	// has mode 0666, unless the address sets another mode. "" is no group.
	Group string
	// ReadToken and ChangeToken are the tokens for TCP. A client with ReadToken may read, and a client with ChangeToken
	// may read and change. "" is no token.
	ReadToken, ChangeToken string
	// Cert and Key are the TLS files. Changed files are read again. "" is no TLS.
	Cert, Key string
	// ClientCA is the file of the authorities for client certificates. A client with such a certificate may read and
	// change. With "", clients are not asked for a certificate.
	ClientCA string
}

// ErrAccess is wrapped by the error of an [Access] that would be open to too many clients.
var ErrAccess = errors.New("the admin API would be open to too many clients")

// conditions are the rules of an Access, ready for use. They do not change.
type conditions struct {
	group        *uint32            // nil without a group
	read, change *[sha256.Size]byte // digests of the tokens; nil without one
	pair         *keypair.Pair      // nil without TLS
	tls          *tls.Config        // nil without TLS
	authorities  *x509.CertPool     // nil without client_ca
	clientCA     string             // file of the authorities
}

// open reads the files of an Access, and checks them. Bad files of a certificate or of authorities that former has too do not
// stop a change of anything else: former's contents stay.
func (a *Access) open(former *conditions, log *slog.Logger) (addr sockopt.Address, c *conditions, err error) {
	if addr, err = ParseAddress(a.Bind); err != nil {
		return addr, nil, err
	}
	if err := a.check(addr); err != nil {
		return addr, nil, err
	}
	if a.Group != "" && !hasMode(a.Bind) {
		addr.Mode = groupMode
	}
	c = &conditions{read: digest(a.ReadToken), change: digest(a.ChangeToken), clientCA: a.ClientCA}
	if c.group, err = groupOf(a.Group); err != nil {
		return addr, nil, err
	}
	if a.Cert == "" {
		return addr, c, nil
	}
	if c.pair, err = former.pair.Next(a.Cert, a.Key, log); err != nil {
		return addr, nil, err
	}
	c.authorities, err = authorities(a.ClientCA, file.ReadPEM)
	switch {
	case err != nil && former.authorities != nil && former.clientCA == a.ClientCA:
		log.Warn("the new authorities cannot be used, and the former ones stay in use", "files", []string{a.ClientCA}, "error", err)
		c.authorities = former.authorities
	case err != nil:
		return addr, nil, err
	}
	c.tls = &tls.Config{
		GetCertificate: c.pair.Get, MinVersion: tls.VersionTLS12, CipherSuites: keypair.CipherSuites(), NextProtos: []string{"http/1.1"},
		// Certificates are verified for each request, so that the answer can say why one is refused. A resumed TLS
		// session would keep the result of an earlier configuration.
		ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true,
	}
	return addr, c, nil
}

// check returns an error if the address would be open to too many clients.
func (a *Access) check(addr sockopt.Address) error {
	switch {
	case addr.Network == "unix":
		return nil
	case a.Cert == "" && addr.Private() != nil:
		return fmt.Errorf("%s: %w: without TLS, tokens would cross the network as clear text: write 127.0.0.1:PORT or unix:/path, or add tls", addr, ErrAccess)
	case a.ReadToken == "" && a.ChangeToken == "" && a.ClientCA == "":
		return fmt.Errorf("%s: %w: everybody who can connect could change everything: write unix:/path, or add a token or tls with client_ca", addr, ErrAccess)
	}
	return nil
}

// digest returns the digest of a token, for a comparison in constant time. It returns nil for "".
func digest(token string) *[sha256.Size]byte {
	if token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	return &sum
}

// groupOf returns the ID of a group, or nil for "".
func groupOf(name string) (*uint32, error) {
	if name == "" {
		return nil, nil
	}
	number := name
	if g, err := users.LookupGroup(name); err == nil {
		number = g.Gid
	}
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("there is no group %q on this host: write the name or the number of a group", name)
	}
	gid := uint32(id)
	return &gid, nil
}

// authorities reads the certificates of authorities with read. It returns nil for "".
func authorities(path string, read func(path string) ([]byte, error)) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("authorities: %s contains no certificate: write a PEM file", path)
	}
	return pool, nil
}

// credentials returns the credentials of a successor with the same Access.
func (a *Access) credentials() *Credentials {
	c := &Credentials{Token: a.ChangeToken, Cert: a.Cert, Key: a.Key, Own: a.Cert}
	if c.Token == "" {
		c.Token = a.ReadToken
	}
	return c
}

// Modes of a unix socket without ?mode= in its address. With groupMode every user may connect, and the user and groups
// of each client decide what it may do.
const (
	socketMode = 0o660
	groupMode  = 0o666
)

// ParseAddress parses the address of the admin API: unix:/path, unix:/path?mode=0600, or host:port. The error wraps
// [sockopt.ErrAddress], and suggests a valid address.
func ParseAddress(bind string) (sockopt.Address, error) {
	addr, err := sockopt.Parse(bind)
	if err == nil && addr.Network == "unix" {
		err = addr.Private()
	}
	if err != nil {
		return sockopt.Address{}, err
	}
	if addr.Network == "unix" && addr.Mode == 0 {
		addr.Mode = socketMode
	}
	return addr, nil
}

func hasMode(bind string) bool { return strings.Contains(bind, "?mode=") }

// A role is what a client must be allowed to do for a request.
type role int

const (
	anybody role = iota
	reads
	changes
	succeeds // a successor may do this: a client that may change or, over TCP, that has the only token (a successor has no other one)
)

func (r role) String() string {
	return [...]string{"anybody", "reads", "changes", "changes, or reads with the read_token of a process without change_token and client_ca"}[r]
}

// A caller is the client of a request.
type caller struct {
	name    string // for logs, or "" if unknown
	may     role   // anybody, reads or changes
	heir    bool   // may also make a successor's request
	trusted bool   // may read the files that the process may read
	why     error  // why the caller may not do more; nil if it may change
}

// An accessError says that a client may not make a request. It wraps [ErrForbidden].
type accessError struct {
	text string
	code int
}

func (e *accessError) Error() string { return e.text }

func (e *accessError) Unwrap() error { return ErrForbidden }

func forbidden(format string, args ...any) error {
	return &accessError{fmt.Sprintf(format, args...), http.StatusForbidden}
}

func unauthorized(format string, args ...any) error {
	return &accessError{fmt.Sprintf(format, args...), http.StatusUnauthorized}
}

// guesses counts the requests without a valid token or certificate. They are logged in at most one line per minute.
type guesses struct {
	mu    sync.Mutex
	n     int       // guesses since the last line
	until time.Time // when the next line may be logged
}

func (g *guesses) note(log *slog.Logger, from string, err error, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n++; now.Before(g.until) {
		return
	}
	log.Warn("admin requests were refused", "client", from, "cause", err, "requests", g.n)
	g.n, g.until = 0, now.Add(time.Minute)
}

// permit returns an error if the caller may not make a request that needs a role.
func (c *caller) permit(r role) error {
	if c.may >= min(r, changes) || r == succeeds && c.heir {
		return nil
	}
	return c.why
}

// callerOf returns the client of a request, judged by the conditions that are in force now. An unknown client may do
// nothing.
func callerOf(r *http.Request) caller {
	g := guestOf(r)
	switch {
	case g == nil:
		return caller{why: forbidden("the client is unknown")}
	case g.unix:
		return g.user.caller(g.server.inForce.Load())
	default:
		return g.server.inForce.Load().caller(r)
	}
}

// A guest is the client of a connection.
type guest struct {
	server *Server
	unix   bool
	user   user // over a unix socket
}

func (s *Server) guest(conn net.Conn) *guest {
	return &guest{server: s, unix: conn.LocalAddr().Network() == "unix", user: userOf(conn)}
}

// guestOf returns the client of a request, or nil if it is unknown.
func guestOf(r *http.Request) *guest {
	if c := admission.Of(r); c != nil {
		return c.Peer.(*guest)
	}
	return nil
}

// mayHave returns the rank of a client, or the highest rank that a request over TCP may prove.
func (g *guest) mayHave() admission.Rank {
	if g.unix {
		from := g.user.caller(g.server.inForce.Load())
		return from.rank()
	}
	return admission.Changes
}

// rank returns the rank of a caller.
func (c *caller) rank() admission.Rank {
	switch {
	case c.trusted:
		return admission.Own
	case c.may == changes:
		return admission.Changes
	case c.may == reads:
		return admission.Reads
	}
	return admission.Nobody
}

// caller returns what a user of a unix socket may do.
func (u user) caller(of *conditions) caller {
	name := u.String()
	switch {
	case u.trusted():
		return caller{name: name, may: changes, trusted: true}
	case u.in(of.group):
		return caller{name: name, may: reads, why: forbidden("%s may read, but not change: run the command as root or as the user of the process (uid=%d)", name, os.Geteuid())}
	case !u.known:
		return caller{why: forbidden("the kernel does not say which user connects: connect as root or as the user of the process (uid=%d)", os.Geteuid())}
	}
	return caller{name: name, why: forbidden("%s may not use the admin API: connect as root or as the user of the process (uid=%d), or let a group of this user read (admin: {group: NAME})", name, os.Geteuid())}
}

// caller returns what the client of a request over TCP may do, by its certificate or else by its token.
func (c *conditions) caller(r *http.Request) caller {
	whyNot := c.ask()
	if c.tls != nil && r.TLS == nil { // it connected before TLS was required
		return caller{why: unauthorized("the admin API answers only over TLS: connect with --ca FILE")}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		name, err := c.certified(r.TLS.PeerCertificates)
		if err == nil {
			return caller{name: name, may: changes}
		}
		whyNot = err
	}
	given := r.Header.Values("Authorization")
	if len(given) == 0 {
		return caller{why: unauthorized("%s", whyNot)}
	}
	kind, token, _ := strings.Cut(given[0], " ")
	sum := sha256.Sum256([]byte(token))
	change, read := matches(&sum, c.change), matches(&sum, c.read)
	switch {
	case len(given) > 1 || !strings.EqualFold(kind, "Bearer"):
		return caller{why: unauthorized("the header Authorization is not valid: %s, once", writeToken)}
	case change:
		return caller{name: "token=change", may: changes}
	case read:
		return caller{name: "token=read", may: reads, heir: c.change == nil && c.authorities == nil, why: forbidden("this token may read, but not change: %s", c.askToChange())}
	}
	return caller{why: unauthorized("the process does not know this token: write a token of its configuration (admin: change_token, read_token). If the file has a new one, send SIGHUP, or give the old one with --token-file")}
}

func matches(sum, want *[sha256.Size]byte) bool {
	return want != nil && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// certified returns the name of a client from its certificate. The process's own certificate is accepted too: only this
// process, its successor and root can read its key.
func (c *conditions) certified(chain []*x509.Certificate) (name string, err error) {
	leaf := chain[0]
	if c.pair != nil && leaf.Equal(c.pair.Now().Leaf) {
		return "certificate=own", nil
	}
	if c.authorities == nil {
		return "", fmt.Errorf("this process has no client_ca, so a client certificate has no effect: %w", c.ask())
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: c.authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return "", fmt.Errorf("client_ca did not issue the certificate of the client: %w", err)
	}
	return "certificate=" + display.Text(leaf.Subject.String()), nil
}

// ask returns the error for a client that shows neither a token nor a certificate.
func (c *conditions) ask() error {
	switch token := c.change != nil || c.read != nil; {
	case token && c.authorities != nil:
		return fmt.Errorf("a token or a certificate is needed: %s, or %s", writeToken, showCertificate)
	case c.authorities == nil && !token:
		return fmt.Errorf("this process no longer takes requests over TCP")
	case token:
		return fmt.Errorf("a token is needed: %s", writeToken)
	}
	return fmt.Errorf("a certificate is needed: %s", showCertificate)
}

// askToChange tells a client that may only read how it may change.
func (c *conditions) askToChange() string {
	if c.change == nil && c.authorities == nil {
		return "this process has no token that may change (admin: change_token)"
	}
	if c.change == nil {
		return showCertificate
	}
	return "write the token of change_token"
}

// A user is a client over a unix socket.
type user struct {
	uid, gid uint32
	groups   []uint32 // supplementary groups; nil if there are none, or if they are unknown
	pid      int32
	known    bool // the kernel reported the IDs
}

// String returns the user and the process for logs: uid=1000 pid=4711. It leaves out a process that is not visible in
// this process's PID namespace.
func (u user) String() string {
	text := fmt.Sprintf("uid=%d", u.uid)
	if u.pid > 0 {
		text += fmt.Sprintf(" pid=%d", u.pid)
	}
	return text
}

// trusted reports whether the user is root, or the user of this process. Such a client may change everything, and read
// the files that the process may read.
func (u user) trusted() bool { return u.mayRead(os.Geteuid(), wholeNamespace("uid")) }

// in reports whether the user is in a group; nil is no group. All groups that are not visible in this process's
// namespace share one ID.
func (u user) in(group *uint32) bool {
	return group != nil && u.among(*group, wholeNamespace("gid"))
}

// among is [user.in] for a group. whole means that every group has an ID of its own here.
func (u user) among(group uint32, whole bool) bool {
	return u.known && (group != overflow || whole) && (u.gid == group || slices.Contains(u.groups, group))
}

// mayRead reports whether the user may read the files that a process may read; process is the ID of its user. whole
// means that every user has an ID in this process's namespace. Otherwise all users without an ID there share one.
func (u user) mayRead(process int, whole bool) bool {
	return u.known && (u.uid == 0 || int(u.uid) == process && (whole || u.uid != overflow))
}

// wholeNamespace reports whether every user (uid) or group (gid) has an ID here: the initial user namespace has the map
// "0 0 4294967295" (user_namespaces(7)).
func wholeNamespace(kind string) bool {
	b, _ := os.ReadFile("/proc/self/" + kind + "_map") // on an error the answer is no
	f := strings.Fields(string(b))
	return len(f) == 3 && f[0] == "0" && f[2] == "4294967295"
}

// overflow is the ID of users and groups that are not visible in a user namespace (user_namespaces(7)).
const overflow = 65534

// userOf returns the user at the other end of a unix socket.
func userOf(conn net.Conn) (u user) {
	c, ok := conn.(syscall.Conn)
	if !ok || conn.LocalAddr().Network() != "unix" {
		return user{}
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return user{}
	}
	_ = raw.Control(func(fd uintptr) { // an error means that the socket is closed
		peer, err := sys.PeerCredentials(int(fd))
		u = user{uid: peer.UID, gid: peer.GID, pid: peer.PID, known: err == nil}
		if groups, err := sys.PeerGroups(int(fd)); err == nil && u.known {
			u.groups = groups
		}
	})
	return u
}
