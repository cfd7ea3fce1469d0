package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/penstock/penstock/proxy/sockopt"
)

// A question is a question to a name server. Its name is canonical: lower case, and with the
// dot at its end.
type question struct {
	name  string
	qtype uint16
}

func (q question) String() string { return dns.TypeToString[q.qtype] + " " + q.name }

// A service is an SRV record.
type service struct {
	priority, weight uint16
	port             uint16
	target           string // canonical
}

// records are the records of a name.
type records struct {
	addresses []netip.Addr
	services  []service
}

func (r records) empty() bool { return len(r.addresses) == 0 && len(r.services) == 0 }

// A finding is the answer to a question in a reply.
type finding struct {
	records
	ttl    time.Duration // the smallest one of the alias chain and the records
	next   string        // name to look up instead: an alias led out of the reply
	denied string        // reason that there is no record, NXDOMAIN or NODATA; else empty
	left   refusedRecords
}

// refusedRecords are records that cannot lead to an endpoint, and are left out.
type refusedRecords struct {
	n     int
	first string // the first one, and the reason
}

func (r *refusedRecords) add(format string, args ...any) {
	if r.n++; r.n == 1 {
		r.first = fmt.Sprintf(format, args...)
	}
}

// err returns an error for the answer to q, or nil if no record was left out.
func (r *refusedRecords) err(q question) error {
	switch r.n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%v: a record is left out: %s", q, r.first)
	}
	return fmt.Errorf("%v: %d records are left out, the first: %s", q, r.n, r.first)
}

// maxAliases is the largest number of CNAME records that are followed.
const maxAliases = 16

// read extracts the answer to q from a reply, following aliases.
func read(reply *dns.Msg, q question) finding {
	f := finding{ttl: forever}
	name, ended := q.name, false
	for i := 0; i < maxAliases && !ended; i++ {
		alias := f.take(reply.Answer, name, q.qtype)
		if !f.empty() || f.left.n > 0 {
			return f
		}
		if ended = alias == ""; !ended {
			name = alias
		}
	}
	negative, known := negativeTTL(reply.Ns)
	switch {
	case reply.Rcode == dns.RcodeNameError:
		f.denied = "NXDOMAIN"
	case !ended || (name != q.name && !known):
		f.next = name
		return f
	default:
		f.denied = "NODATA"
	}
	f.ttl = min(f.ttl, negative)
	return f
}

// forever is larger than any time to live.
const forever = time.Duration(1 << 62)

// take adds the records of name. If the name is an alias, take returns its target.
func (f *finding) take(records []dns.RR, name string, qtype uint16) (alias string) {
	for _, rr := range records {
		h := rr.Header()
		if h.Class != dns.ClassINET || dns.CanonicalName(h.Name) != name {
			continue
		}
		switch {
		case h.Rrtype == qtype:
			f.add(rr)
		case h.Rrtype == dns.TypeCNAME:
			alias = dns.CanonicalName(rr.(*dns.CNAME).Target)
		default:
			continue
		}
		f.ttl = min(f.ttl, time.Duration(h.Ttl)*time.Second)
	}
	return alias
}

func (f *finding) add(rr dns.RR) {
	switch r := rr.(type) {
	case *dns.A:
		f.addIP(r.A)
	case *dns.AAAA:
		f.addIP(r.AAAA)
	case *dns.SRV:
		target := dns.CanonicalName(r.Target)
		if r.Port == 0 && target != "." { // this target is no service (RFC 2782), whatever its port
			f.left.add("%s has port 0", strings.TrimSuffix(target, "."))
			return
		}
		f.services = append(f.services, service{r.Priority, r.Weight, r.Port, target})
	}
}

func (f *finding) addIP(ip []byte) {
	if a, ok := netip.AddrFromSlice(ip); ok {
		if why := sockopt.NoHost(a); why != "" {
			f.left.add("%s", why)
			return
		}
		f.addresses = append(f.addresses, a.Unmap())
	}
}

// unsaid is the time to live of a negative answer that does not give one.
const unsaid = 5 * time.Second

// negativeTTL returns how long a denial holds (RFC 2308, section 5), and whether the reply
// gives that time.
func negativeTTL(authority []dns.RR) (ttl time.Duration, known bool) {
	for _, rr := range authority {
		if soa, ok := rr.(*dns.SOA); ok {
			return time.Duration(min(soa.Hdr.Ttl, soa.Minttl)) * time.Second, true
		}
	}
	return unsaid, false
}

// A negativeAnswer is the error of a negative answer while the last good one is kept.
type negativeAnswer struct {
	questions []question
	why       string
	left      time.Duration
}

func (e *negativeAnswer) Error() string {
	return fmt.Sprintf("%v: %s; the last answer is kept for %v more", names(e.questions), e.why, e.left.Round(time.Millisecond))
}

func names(questions []question) string {
	var texts []string
	for _, q := range questions {
		texts = append(texts, q.String())
	}
	return strings.Join(texts, " and ")
}

// failures are the errors of one lookup.
type failures []error

// join returns nil if there are no errors. Otherwise it returns an error of one line with each
// distinct one.
func (f failures) join() error {
	var texts failures
	seen := map[string]bool{}
	for _, err := range f {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			texts = append(texts, err)
		}
	}
	if texts == nil {
		return nil
	}
	return texts
}

// maxReported is the largest number of failures in the text of one error.
const maxReported = 4

func (f failures) Error() string {
	var texts []string
	for _, err := range f[:min(len(f), maxReported)] {
		texts = append(texts, err.Error())
	}
	if more := len(f) - maxReported; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap supports errors.Is and errors.As.
func (f failures) Unwrap() []error { return f }

// A partialError reports that some records of an answer were left out. The others are used.
type partialError struct{ error }

// partial reports whether all parts of an error are partial. If so, the endpoints are those of
// the last answers.
func partial(err error) bool {
	switch err := err.(type) {
	case *partialError:
		return true
	case failures:
		return !slices.ContainsFunc(err, func(err error) bool { return !partial(err) })
	case interface{ Unwrap() error }:
		return partial(err.Unwrap())
	}
	return false
}
