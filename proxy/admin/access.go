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

// Access is an address of the API, and the conditions under which its clients may read and change.
// The zero Access is no address.
type Access struct {
	Bind string // as [ParseAddress] takes it
	// Group is the name or the number of a group of users. Its processes may read over a unix socket;
	// the socket has mode 0666 then, unless the address says another. "": no group.
	Group string
	// ReadToken and ChangeToken are the tokens of TCP. A client with one of them may read, or read
	// and change. "": there is none.
	ReadToken, ChangeToken string
	// Cert and Key are the files of TLS, which are read again when they have changed; "": there is none.
	Cert, Key string
	// ClientCA is the file of the authorities of clients' certificates. A client with such a
	// certificate may read and change. "": no certificate is asked for.
	ClientCA string
}

// ErrAccess is wrapped by the error of an [Access] that would be open to more clients than it may be.
var ErrAccess = errors.New("the admin API would be open to too many")

// conditions are an Access, ready for use. They do not change.
type conditions struct {
	group        *uint32            // nil: none
	read, change *[sha256.Size]byte // of the tokens; nil: there is none
	pair         *keypair.Pair      // nil: there is no TLS
	tls          *tls.Config        // the same
	authorities  *x509.CertPool     // nil: none
}

// open reads the files of an Access, and checks it.
func (a *Access) open(log *slog.Logger) (addr sockopt.Address, c *conditions, err error) {
	if addr, err = ParseAddress(a.Bind); err != nil {
		return addr, nil, err
	}
	if err := a.check(addr); err != nil {
		return addr, nil, err
	}
	if a.Group != "" && !hasMode(a.Bind) {
		addr.Mode = groupMode
	}
	c = &conditions{read: digest(a.ReadToken), change: digest(a.ChangeToken)}
	if c.group, err = groupOf(a.Group); err != nil {
		return addr, nil, err
	}
	if a.Cert == "" {
		return addr, c, nil
	}
	if c.pair, err = keypair.New(a.Cert, a.Key, log); err != nil {
		return addr, nil, err
	}
	if c.authorities, err = authorities(a.ClientCA, file.ReadPEM); err != nil {
		return addr, nil, err
	}
	c.tls = &tls.Config{
		GetCertificate: c.pair.Get, MinVersion: tls.VersionTLS12, CipherSuites: keypair.CipherSuites(), NextProtos: []string{"http/1.1"},
		// Certificates are verified with each request, so that its answer can say why it is refused. A
		// resumed TLS session would keep the result of an earlier configuration.
		ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true,
	}
	return addr, c, nil
}

// check returns why the address would be open to too many.
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

// digest returns the digest of a token, for comparison in constant time; nil if there is none.
func digest(token string) *[sha256.Size]byte {
	if token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	return &sum
}

// groupOf returns the ID of a group; nil if none is named.
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

// authorities reads certificates of authorities with read; nil if no file is named.
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

// credentials are the credentials of a successor that has the same Access.
func (a *Access) credentials() *Credentials {
	c := &Credentials{Token: a.ChangeToken, Cert: a.Cert, Key: a.Key, Own: a.Cert}
	if c.Token == "" {
		c.Token = a.ReadToken
	}
	return c
}

// Modes of a unix socket without ?mode= in its address. With groupMode every user may connect: the user
// and the groups of the client decide what it may do.
const (
	socketMode = 0o660
	groupMode  = 0o666
)

// ParseAddress parses the address of the admin API: unix:/path, unix:/path?mode=0600, or host:port. The
// error wraps [sockopt.ErrAddress], and names a valid address.
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

// A role is the least that a client must be allowed for a request.
type role int

// Roles.
const (
	anybody role = iota
	reads
	changes
	succeeds // a successor: a client that may change, or over TCP has the only token that there is
)

// String returns the role for the document of the API.
func (r role) String() string {
	return [...]string{"anybody", "reads", "changes", "changes, or a successor"}[r]
}

// A caller is the client of a request.
type caller struct {
	name    string // in logs; "": unknown
	may     role   // anybody, reads or changes
	heir    bool   // may make the request of a successor too
	trusted bool   // may read the files that the process may read
	why     error  // why it may not do more; nil if it may change
}

// An accessError is the refusal of a request by the role of its client. It wraps [ErrForbidden].
type accessError struct {
	text string
	code int
}

func (e *accessError) Error() string { return e.text }

// Unwrap makes it an ErrForbidden.
func (e *accessError) Unwrap() error { return ErrForbidden }

func forbidden(format string, args ...any) error {
	return &accessError{fmt.Sprintf(format, args...), http.StatusForbidden}
}

func unauthorized(format string, args ...any) error {
	return &accessError{fmt.Sprintf(format, args...), http.StatusUnauthorized}
}

// guesses are the requests without a valid token or certificate. One line a minute tells of them.
type guesses struct {
	mu    sync.Mutex
	n     int       // since the last line
	until time.Time // no further line before
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

// permit returns why a caller may not make a request of a role; nil: it may.
func (c *caller) permit(r role) error {
	if c.may >= min(r, changes) || r == succeeds && c.heir {
		return nil
	}
	return c.why
}

// callerOf returns the client of a request, by the conditions that are in force now. An unknown client may do
// nothing.
func callerOf(r *http.Request) caller {
	g := guestOf(r)
	switch {
	case g == nil:
		return caller{why: forbidden("the client is not known")}
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
	user   user // of a unix socket
}

func (s *Server) guest(conn net.Conn) *guest {
	return &guest{server: s, unix: conn.LocalAddr().Network() == "unix", user: userOf(conn)}
}

// guestOf returns the client of a request; nil: it is not known.
func guestOf(r *http.Request) *guest {
	if c := admission.Of(r); c != nil {
		return c.Peer.(*guest)
	}
	return nil
}

// mayHave returns the rank that a client has, or that a TCP client may turn out to have by its
// request.
func (g *guest) mayHave() admission.Rank {
	if g.unix {
		from := g.user.caller(g.server.inForce.Load())
		return from.rank()
	}
	return admission.Changes
}

// rank returns the right of a caller.
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

// caller returns what the client of a request over TCP may do: by its certificate, or else by its token.
func (c *conditions) caller(r *http.Request) caller {
	whyNot := c.ask()
	if c.tls != nil && r.TLS == nil { // it has connected when none was needed
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
	return caller{why: unauthorized("the process does not know this token: write a token of its configuration (admin: change_token, read_token)")}
}

func matches(sum, want *[sha256.Size]byte) bool {
	return want != nil && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// certified returns the name of a client by its certificate. The certificate of this process itself
// is good, too: only this process, its successor and root can read its key.
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

// ask is the error of a client that shows nothing.
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

// askToChange is the advice for a client that may only read.
func (c *conditions) askToChange() string {
	if c.change == nil && c.authorities == nil {
		return "this process has no token that may change (admin: change_token)"
	}
	if c.change == nil {
		return showCertificate
	}
	return "write the token of change_token"
}

// A user is a client of a unix socket.
type user struct {
	uid, gid uint32
	groups   []uint32 // supplementary ones; nil also if they are not known
	pid      int32
	known    bool // the kernel reported the IDs
}

// String returns the user and the process for logs: uid=1000 pid=4711. A process that the namespace of
// this one does not show has no number.
func (u user) String() string {
	text := fmt.Sprintf("uid=%d", u.uid)
	if u.pid > 0 {
		text += fmt.Sprintf(" pid=%d", u.pid)
	}
	return text
}

// trusted reports whether it is root, or the user of this process. These may change everything, and read
// the files that the process may read.
func (u user) trusted() bool { return u.mayRead(os.Geteuid(), wholeNamespace("uid")) }

// in reports whether a user is in a group; nil is no group. One ID may stand for all groups that
// the namespace of this process does not show.
func (u user) in(group *uint32) bool {
	return group != nil && u.among(*group, wholeNamespace("gid"))
}

// among is in; whole means that every group has an ID of its own here.
func (u user) among(group uint32, whole bool) bool {
	return u.known && (group != overflow || whole) && (u.gid == group || slices.Contains(u.groups, group))
}

// mayRead reports whether a user may read the files that a process of another user may read.
// whole means that every user has an ID in the namespace of this process. Otherwise one ID
// stands for all users that have no ID here.
func (u user) mayRead(process int, whole bool) bool {
	return u.known && (u.uid == 0 || int(u.uid) == process && (whole || u.uid != overflow))
}

// wholeNamespace reports whether every user (uid) or group (gid) has an ID here: "0 0 4294967295" is the
// map of the initial user namespace (user_namespaces(7)).
func wholeNamespace(kind string) bool {
	b, _ := os.ReadFile("/proc/self/" + kind + "_map") // on an error it is unknown
	f := strings.Fields(string(b))
	return len(f) == 3 && f[0] == "0" && f[2] == "4294967295"
}

// overflow is the ID of users and groups that a user namespace does not show (user_namespaces(7)).
const overflow = 65534

// userOf returns the client of a unix socket.
func userOf(conn net.Conn) (u user) {
	c, ok := conn.(syscall.Conn)
	if !ok || conn.LocalAddr().Network() != "unix" {
		return user{}
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return user{}
	}
	_ = raw.Control(func(fd uintptr) { // an error means that it is closed
		peer, err := sys.PeerCredentials(int(fd))
		u = user{uid: peer.UID, gid: peer.GID, pid: peer.PID, known: err == nil}
		if groups, err := sys.PeerGroups(int(fd)); err == nil && u.known {
			u.groups = groups
		}
	})
	return u
}
