package firstbytes

import "github.com/penstock/penstock/proxy/clienthello"

// MaxPatterns is how many patterns a recogniser may have.
const MaxPatterns = 64

// Wants are the things that the routes of a listener depend on.
type Wants struct {
	// Protocols are those to be recognised.
	Protocols Set
	// Host has the whole header of an HTTP/1 request waited for, and not its first line alone.
	Host bool
	// Startup has the whole StartupMessage of PostgreSQL waited for, and not its first 8 bytes alone.
	Startup bool
	// Patterns are looked for in the bytes of any client, MaxPatterns at most.
	Patterns []Pattern
}

// A Recogniser looks for the things that the routes of one listener depend on. It is made once and never changed, and safe for
// concurrent use. It allocates the values of properties and nothing else.
type Recogniser struct {
	wants  Wants
	binary Set // those of Wants.Protocols whose first bytes are no text
	max    int
}

// A protocol recognises the clients of one protocol.
type protocol struct {
	// look looks at all bytes so far, of which there is one at least, and notes in f the properties that they show. need is how many there
	// have to be before it is worth looking again, since fewer change nothing; 0: there is nothing more to learn.
	look func(r *Recogniser, b []byte, f *Facts) (need int)
	// max is the largest need.
	max int
}

var protocols = [Silence]protocol{
	TLS:      {lookTLS, clienthello.Max},
	HTTP1:    {lookHTTP1, MaxHead},
	HTTP2:    {lookHTTP2, len(preface)},
	SSH:      {lookSSH, len(sshPrefix)},
	Postgres: {lookPostgres, maxStartup},
	Redis:    {lookRedis, maxInline},
}

// New makes a recogniser. Where HTTP/1 is looked for HTTP/2 is, too: the host of its requests is not read, which is not to
// say that they have none.
func New(wants Wants) *Recogniser {
	if wants.Protocols.Has(HTTP1) {
		wants.Protocols |= SetOf(HTTP2)
	}
	if wants.Protocols.Has(MalformedTLS) {
		wants.Protocols |= SetOf(TLS)
	}
	r := &Recogniser{wants: wants, binary: wants.Protocols & SetOf(TLS, Postgres)}
	for p := range Silence {
		if wants.Protocols.Has(p) {
			r.max = max(r.max, protocols[p].max)
		}
	}
	for i := range wants.Patterns {
		r.max = max(r.max, wants.Patterns[i].end())
	}
	r.max = max(r.max, 1)
	return r
}

// Max is how many bytes are looked at, at most.
func (r *Recogniser) Max() int { return r.max }

// Look looks at all bytes that a client has sent so far, as far as Max, and notes in f the properties that they show
// beside those that fewer have shown. It returns how many bytes there have to be before it is worth looking again, which are at most Max;
// 0: there is nothing more to learn.
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
			least(max(len(b), p.Offset) + 1) // the next byte may be another
		}
	}
	f.foreign()
	return need
}

// foreign notes that clients of other protocols lack the properties of one.
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
			f.Host.Verdict = f.doubt("the host and path of HTTP/2 are not read")
			f.Path.Verdict = Doubt
		}
	}
	if f.verdicts[Postgres] == No {
		f.User.Verdict, f.Database.Verdict = No, No
	}
}
