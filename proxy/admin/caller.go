package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/admission"
)

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

// permit returns why a caller may not make a request of a role; nil: it may.
func (c *caller) permit(r role) error {
	if c.may >= min(r, changes) || r == succeeds && c.heir {
		return nil
	}
	return c.why
}

// callerOf returns the client of a request, by the conditions that are in force now. One that is not known may do
// nothing.
func callerOf(r *http.Request) caller {
	g := guestOf(r)
	switch {
	case g == nil:
		return caller{why: forbidden("the client is not known")}
	case g.unix:
		return g.user.caller(g.judge())
	default:
		return g.judge().caller(r)
	}
}

// A guest is the client of a connection.
type guest struct {
	server     *Server
	conditions *conditions // of the address, when it was accepted
	unix       bool
	user       user // of a unix socket
}

func (s *Server) guest(conn net.Conn, of *conditions) *guest {
	return &guest{server: s, conditions: of, unix: conn.LocalAddr().Network() == "unix", user: userOf(conn)}
}

// guestOf returns the client of a request; nil: it is not known.
func guestOf(r *http.Request) *guest {
	if c := admission.Of(r); c != nil {
		return c.Peer.(*guest)
	}
	return nil
}

// judge returns the conditions of a request that is complete now.
func (g *guest) judge() *conditions {
	if now := g.server.inForce.Load(); now != nil {
		return now
	}
	return g.conditions
}

// mayHave returns the rank that a client has, or that one of TCP may turn out to have by its request.
func (g *guest) mayHave() admission.Rank {
	if g.unix {
		from := g.user.caller(g.judge())
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
		return caller{name: name, may: reads, why: forbidden("%s may read, and not change: ask as root or as the user of the process (uid=%d)", name, os.Geteuid())}
	case !u.known:
		return caller{why: forbidden("the kernel does not say which user asks: ask as root or as the user of the process (uid=%d)", os.Geteuid())}
	}
	return caller{name: name, why: forbidden("%s may not ask here: ask as root or as the user of the process (uid=%d), or let a group of this user read (admin: {group: NAME})", name, os.Geteuid())}
}

// caller returns what the client of a request over TCP may do: by its certificate, or else by its token.
func (c *conditions) caller(r *http.Request) caller {
	whyNot := c.ask()
	if c.tls != nil && r.TLS == nil { // it has connected when none was needed
		return caller{why: unauthorized("it answers by TLS alone: connect again, with --ca FILE")}
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
		return caller{why: unauthorized("the header Authorization is not understood: %s, once", writeToken)}
	case change:
		return caller{name: "token=change", may: changes}
	case read:
		return caller{name: "token=read", may: reads, heir: c.change == nil && c.authorities == nil, why: forbidden("this token reads, and changes nothing: %s", c.askToChange())}
	}
	return caller{why: unauthorized("the token is not one of this process: write the token of its configuration (admin: change_token, read_token)")}
}

// matches compares a digest in constant time.
func matches(sum, want *[sha256.Size]byte) bool {
	return want != nil && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// certified returns the name of a client by its certificate. The one of this process itself is good, too:
// only this process, its successor and root can read its key.
func (c *conditions) certified(chain []*x509.Certificate) (name string, err error) {
	leaf := chain[0]
	if c.pair != nil && leaf.Equal(c.pair.Now().Leaf) {
		return "certificate=own", nil
	}
	if c.authorities == nil {
		return "", fmt.Errorf("no client has a certificate of its own here: %w", c.ask())
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: c.authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return "", fmt.Errorf("the certificate of the client is not one of client_ca: %w", err)
	}
	return "certificate=" + display.Text(leaf.Subject.String()), nil
}

// ask is the error of a client that shows nothing.
func (c *conditions) ask() error {
	switch token := c.change != nil || c.read != nil; {
	case token && c.authorities != nil:
		return fmt.Errorf("a token or a certificate is needed: %s, or %s", writeToken, showCertificate)
	case c.authorities == nil && !token:
		return fmt.Errorf("this process takes no requests over TCP any more")
	case token:
		return fmt.Errorf("a token is needed: %s", writeToken)
	}
	return fmt.Errorf("a certificate is needed: %s", showCertificate)
}

// askToChange is the advice for a client that may only read.
func (c *conditions) askToChange() string {
	if c.change == nil && c.authorities == nil {
		return "this process has none that changes (admin: change_token)"
	}
	if c.change == nil {
		return showCertificate
	}
	return "write the token of change_token"
}
