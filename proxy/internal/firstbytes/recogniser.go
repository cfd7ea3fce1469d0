package firstbytes

import (
	"errors"

	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/postgres"
)

// MaxPatterns is how many patterns a recogniser may have.
const MaxPatterns = 64

// Wants says what the routes of a listener depend on.
type Wants struct {
	// Protocols are the protocols to recognise.
	Protocols Set
	// Host waits for the whole header of an HTTP/1 request, not only for its request line.
	Host bool
	// Startup waits for the whole StartupMessage of PostgreSQL, not only for its first 8 bytes.
	Startup bool
	// Patterns are looked for in every client's bytes. There are at most MaxPatterns.
	Patterns []Pattern
}

// A Recogniser looks for everything that the routes of one listener depend on. It never changes, and is safe for
// concurrent use. It allocates only the values of properties.
type Recogniser struct {
	wants  Wants
	binary Set // the protocols in Wants.Protocols that do not begin with text
	max    int
	plain  int // how many bytes decide about everything but TLS
}

// A protocol recognises the clients of a protocol.
type protocol struct {
	// look looks at all bytes so far, at least one, and notes in f what they show. Fewer than need bytes would show
	// nothing new. 0 means that there is nothing more to learn.
	look func(r *Recogniser, b []byte, f *Facts) (need int)
	// max is the largest need.
	max int
}

var protocols = [Silence]protocol{
	TLS:      {lookTLS, clienthello.Max},
	HTTP1:    {lookHTTP1, MaxHead},
	HTTP2:    {lookHTTP2, len(preface)},
	SSH:      {lookSSH, len(sshPrefix)},
	Postgres: {lookPostgres, postgres.Max},
	Redis:    {lookRedis, maxInline},
}

// New makes a recogniser. If it looks for HTTP/1 it looks for HTTP/2 as well: the host of HTTP/2 requests is not
// read, but that does not mean that there is none.
func New(wants Wants) *Recogniser {
	if wants.Protocols.Has(HTTP1) {
		wants.Protocols |= SetOf(HTTP2)
	}
	if wants.Protocols.Has(MalformedTLS) {
		wants.Protocols |= SetOf(TLS)
	}
	r := &Recogniser{wants: wants, binary: wants.Protocols & SetOf(TLS, Postgres)}
	for p := range Silence {
		if wants.Protocols.Has(p) && p != TLS {
			r.plain = max(r.plain, protocols[p].max)
		}
	}
	for i := range wants.Patterns {
		r.plain = max(r.plain, wants.Patterns[i].end())
	}
	r.max = max(r.plain, 1)
	if wants.Protocols.Has(TLS) {
		r.max = max(r.max, protocols[TLS].max)
	}
	return r
}

// Max returns how many bytes Look looks at, at most.
func (r *Recogniser) Max() int { return r.max }

// Look looks at all bytes that a client has sent so far, up to Max, and adds to f what they show. Fewer than need
// bytes, at most Max, would show nothing new. 0 means that there is nothing more to learn.
func (r *Recogniser) Look(b []byte, f *Facts) (need int) {
	if f.by != r {
		f.by, f.open = r, r.wants.Protocols&^SetOf(Silence, MalformedTLS)
	}
	if len(b) == 0 {
		return 1
	}
	f.seen = len(b)
	least := func(n int) {
		if need == 0 || n < need {
			need = n
		}
	}
	for p := range Silence {
		if !f.open.Has(p) {
			continue
		}
		if n := protocols[p].look(r, b, f); n > 0 {
			least(n)
		} else {
			f.open &^= SetOf(p)
		}
	}
	for i := range r.wants.Patterns {
		if f.Matches(r, i) != Open {
			continue
		}
		p, bit := &r.wants.Patterns[i], uint64(1)<<i
		switch p.look(b) {
		case Yes:
			f.matched |= bit
		case No:
			f.failed |= bit
		default:
			least(max(len(b), p.Offset) + 1) // the next byte may differ
		}
	}
	f.foreign()
	return need
}

// foreign notes that a client of one protocol lacks the properties of the others.
func (f *Facts) foreign() {
	f.settle()
	if f.verdicts[HTTP1] == Doubt {
		f.Host.Verdict, f.Path.Verdict = Doubt, Doubt
	}
	if f.verdicts[HTTP1] == No && f.Host.Verdict == Open {
		switch f.verdicts[HTTP2] {
		case No:
			f.Host.Verdict, f.Path.Verdict = No, No
		case Yes:
			f.Host.Verdict = f.doubt("host and path of HTTP/2 requests are not read")
			f.Path.Verdict = Doubt
		}
	}
	if f.verdicts[Postgres] == No {
		f.User.Verdict, f.Database.Verdict = No, No
	}
}

// Limits of patterns.
const (
	MaxOffset  = 4095 // the largest offset
	MaxPattern = 256  // the largest number of bytes
)

// A Pattern is bytes at a place. It must not change once a recogniser has it.
type Pattern struct {
	// Offset is the place of the first byte, at most MaxOffset.
	Offset int
	// Bytes are the expected bytes, at most MaxPattern.
	Bytes []byte
	// Mask has the same length as Bytes. Only the bits that are set in Mask are compared. nil means all bits.
	Mask []byte
}

// Equal reports whether both patterns are the same.
func (p *Pattern) Equal(o *Pattern) bool {
	return p.Offset == o.Offset && string(p.Bytes) == string(o.Bytes) && string(p.Mask) == string(o.Mask)
}

func (p *Pattern) end() int { return p.Offset + len(p.Bytes) }

func (p *Pattern) look(b []byte) Verdict {
	for i, want := range p.Bytes {
		if p.Offset+i >= len(b) {
			return Open
		}
		mask := byte(0xff)
		if p.Mask != nil {
			mask = p.Mask[i]
		}
		if (b[p.Offset+i]^want)&mask != 0 {
			return No
		}
	}
	return Yes
}

const (
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // RFC 9113, 3.4
	sshPrefix = "SSH-"                             // RFC 4253, 4.2
)

// lookTLS reads the whole ClientHello. If the bytes begin like a ClientHello it waits for the length that they
// announce, even if fewer bytes may already show that they are not one.
func lookTLS(_ *Recogniser, b []byte, f *Facts) (need int) {
	need, err := clienthello.Length(b)
	if err == nil && need > len(b) {
		return need
	}
	if err == nil {
		f.Hello, err = clienthello.Parse(b)
	}
	switch {
	case err == nil:
		f.verdicts[TLS] = Yes
	case errors.Is(err, clienthello.ErrNotTLS):
		f.verdicts[TLS] = No
	default:
		f.verdicts[TLS], f.HelloErr = f.doubt(err.Error()), err
	}
	return 0
}

func lookHTTP2(_ *Recogniser, b []byte, f *Facts) (need int) {
	need, f.verdicts[HTTP2] = lookPrefix(b, preface)
	return need
}

func lookSSH(_ *Recogniser, b []byte, f *Facts) (need int) {
	need, f.verdicts[SSH] = lookPrefix(b, sshPrefix)
	return need
}

// lookPrefix says whether b begins with prefix.
func lookPrefix(b []byte, prefix string) (need int, v Verdict) {
	n := min(len(b), len(prefix))
	switch {
	case string(b[:n]) != prefix[:n]:
		return 0, No
	case n < len(prefix):
		return n + 1, Open // the next byte may differ
	}
	return 0, Yes
}
