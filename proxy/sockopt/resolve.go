package sockopt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// familyPatience is how long a lookup of one family may take. It goes on after its callers have given up: their
	// time may be too short to find a name server that answers.
	familyPatience = 10 * time.Second
	// otherPatience is how long the addresses of one family wait for the other family's, as
	// RFC 8305, section 3 proposes.
	otherPatience = 50 * time.Millisecond
	// serverPatience is how long one of the name servers may take to answer. A server that has been silent may take
	// silentPatience while another one answers, and againPatience while none does.
	serverPatience, silentPatience, againPatience = time.Second, 100 * time.Millisecond, 2 * time.Second
)

// names is the resolver of this process.
var names = newResolver()

// Resolve returns the addresses of a host, in the order in which to connect to them. IPv4 and IPv6 are looked up at the
// same time. The addresses of one query are enough, even if the other query is denied, fails, or is never answered. A
// name server that is silent delays only the first lookups, if another one answers. The error is a *net.DNSError, or
// wraps the errors of both families.
func Resolve(ctx context.Context, host string) ([]netip.Addr, error) { return names.resolve(ctx, host) }

// ResolveOrLast is [Resolve] for endpoints: while the lookup of a host fails, or is not answered within a second, it
// returns the addresses that the host had before, for a day. So clients reach endpoints even while a name server is
// away. The lookup goes on. Once a lookup has failed, further ones run in the background, a second apart.
func ResolveOrLast(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	return names.resolveOrLast(ctx, host)
}

// Unresolved returns why the last lookup of a host failed, while [ResolveOrLast] returns the host's former addresses.
// Otherwise it returns nil.
func Unresolved(host string) error {
	names.mu.Lock()
	defer names.mu.Unlock()
	if k := names.known[host]; k != nil {
		return k.failed
	}
	return nil
}

const (
	// lastPatience is how long a lookup may take before the former addresses of a host are used.
	lastPatience = time.Second
	// askAgain is how long after a failed lookup a host is looked up again.
	askAgain = time.Second
	// lastFor is how long addresses are known after they were found.
	lastFor = 24 * time.Hour
)

// A known is what is known of a host from its last lookups.
type known struct {
	ips    []netip.Addr // never empty
	found  time.Time
	failed error     // why the last lookup failed; nil: it did not
	next   time.Time // when the next lookup may begin, after a failed one
}

func (r *resolver) resolveOrLast(ctx context.Context, host string) ([]netip.Addr, error) {
	last, failing, due := r.last(host)
	if last == nil {
		ips, err := r.resolve(ctx, host)
		r.note(host, ips, err)
		return ips, err
	}
	if due {
		go func() {
			ips, err := r.resolve(context.WithoutCancel(ctx), host) // which ends within familyPatience
			r.note(host, ips, err)
		}()
	}
	if failing {
		return last, nil
	}
	short, cancel := context.WithTimeout(ctx, lastPatience)
	defer cancel()
	ips, err := r.resolve(short, host)
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	r.note(host, ips, err)
	if err != nil {
		return last, nil
	}
	return ips, nil
}

// last returns the last addresses of a host, nil if none are known, whether the last lookup has failed, and whether another one is
// to begin now.
func (r *resolver) last(host string) (ips []netip.Addr, failing, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, now := r.known[host], time.Now()
	if k == nil || now.Sub(k.found) > lastFor {
		delete(r.known, host)
		return nil, false, false
	}
	if k.failed != nil && now.After(k.next) {
		due, k.next = true, now.Add(familyPatience)
	}
	return k.ips, k.failed != nil, due
}

func (r *resolver) note(host string, ips []netip.Addr, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch k, now := r.known[host], time.Now(); {
	case err == nil:
		if k == nil && len(r.known) >= r.sweep {
			maps.DeleteFunc(r.known, func(_ string, k *known) bool { return now.Sub(k.found) > lastFor })
			r.sweep = max(2*len(r.known), 1<<10)
		}
		r.known[host] = &known{ips: ips, found: now}
	case k != nil:
		k.failed, k.next = err, now.Add(askAgain)
	}
}

// A resolver asks for names as the operating system is configured to.
type resolver struct {
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	mu       sync.Mutex
	silent   map[string]bool // name servers that have not answered the last question
	answered string          // the last name server to have answered; "": unknown
	known    map[string]*known
	sweep    int // how many known hosts there may be until hosts of former days are dropped
}

func newResolver() *resolver {
	r := &resolver{silent: map[string]bool{}, known: map[string]*known{}}
	r.lookup = (&net.Resolver{Dial: r.dial}).LookupNetIP
	return r
}

// A family is the answer for one of the families of addresses.
type family struct {
	six bool
	ips []netip.Addr
	err error
}

func (r *resolver) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	answers := make(chan family, 2)
	for _, network := range []string{"ip4", "ip6"} {
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), familyPatience)
			defer cancel()
			ips, err := r.lookup(ctx, network, host)
			answers <- family{network == "ip6", ips, err}
		}()
	}
	var found [2][]netip.Addr
	var failed [2]error
	var enough <-chan time.Time
	for range 2 {
		select {
		case a := <-answers:
			at := 0
			if a.six {
				at = 1
			}
			if found[at], failed[at] = a.ips, a.err; len(a.ips) > 0 {
				enough = time.After(otherPatience)
			}
			continue
		case <-enough:
		case <-ctx.Done():
			failed[0], failed[1] = gaveUp(ctx, host), nil
		}
		break
	}
	if len(found[0])+len(found[1]) == 0 {
		return nil, bothFailed(failed[0], failed[1])
	}
	return inOrder(found[0], found[1]), nil
}

// gaveUp returns the error of a lookup after the end of its context.
func gaveUp(ctx context.Context, host string) error {
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &net.DNSError{Err: "no name server has answered", Name: host, IsTimeout: true, IsTemporary: true}
}

// ownPort is the port of this machine from which a name server was asked: two questions differ in it.
var ownPort = regexp.MustCompile(`:\d+->`)

// bothFailed returns the error of a host without an address.
func bothFailed(four, six error) error {
	switch {
	case four == nil || six != nil && ownPort.ReplaceAllString(six.Error(), "") == ownPort.ReplaceAllString(four.Error(), ""):
		return six
	case six == nil:
		return four
	}
	return fmt.Errorf("IPv4: %w; IPv6: %w", four, six)
}

// inOrder has the family first that this machine reaches: IPv6, as RFC 6724 prefers it, unless there is no
// route, or the addresses are unique local ones.
func inOrder(four, six []netip.Addr) []netip.Addr {
	if len(six) > 0 && (six[0].Is4In6() || netip.MustParsePrefix("fc00::/7").Contains(six[0]) || !routed(six[0])) {
		return append(four, six...)
	}
	return append(six, four...)
}

// routed reports whether this machine has a route to an address: connect(2) of a datagram socket sends nothing.
func routed(ip netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 9)))
	if err == nil {
		c.Close()
	}
	return err == nil
}

func (r *resolver) dial(ctx context.Context, network, server string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	if udp, ok := c.(*net.UDPConn); ok {
		return &query{udp, r, server}, nil
	}
	return &longQuery{Conn: c}, nil
}

// mostAddresses is how many addresses of an answer are used. Package net makes a socket for each one to sort them, and a
// zone may name thousands.
const mostAddresses = 100

// A longQuery is a question to a name server by TCP.
type longQuery struct {
	net.Conn
	answer []byte // what Read has not returned yet
}

// Read returns the answer without the addresses after the first mostAddresses.
func (q *longQuery) Read(b []byte) (int, error) {
	if len(q.answer) == 0 {
		m, err := (&dns.Conn{Conn: q.Conn}).ReadMsg()
		if err != nil {
			return 0, err
		}
		left := mostAddresses
		m.Answer = slices.DeleteFunc(m.Answer, func(r dns.RR) bool {
			if t := r.Header().Rrtype; t == dns.TypeA || t == dns.TypeAAAA {
				left--
			}
			return left < 0
		})
		m.Compress = true
		text, err := m.Pack()
		if err != nil {
			return 0, err
		}
		q.answer = append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)
	}
	n := copy(b, q.answer)
	q.answer = q.answer[n:]
	return n, nil
}

// A query is a question to a name server, by UDP.
type query struct {
	*net.UDPConn
	resolver *resolver
	server   string
}

// SetDeadline sets the given deadline, or the server's, if that is earlier.
func (q *query) SetDeadline(t time.Time) error {
	if end := time.Now().Add(q.resolver.patience(q.server)); end.Before(t) {
		t = end
	}
	return q.UDPConn.SetDeadline(t)
}

func (q *query) Read(b []byte) (int, error) {
	n, err := q.UDPConn.Read(b)
	q.resolver.noteServer(q.server, err)
	return n, err
}

// patience returns how long a server may take to answer.
func (r *resolver) patience(server string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.silent[server]:
		return serverPatience
	case r.answered != "" && r.answered != server:
		return silentPatience
	}
	return againPatience
}

// noteServer records whether a server has answered.
func (r *resolver) noteServer(server string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		delete(r.silent, server)
		r.answered = server
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.silent[server] = true
		if r.answered == server {
			r.answered = ""
		}
	}
}
