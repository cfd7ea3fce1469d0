package mask

import (
	"bytes"
	"fmt"
)

// Codes of the messages that come before the first one with a type (PostgreSQL's documentation, 54.7, Message Formats).
const (
	pgCancel      = 80877102
	pgTLS         = 80877103
	pgGSS         = 80877104
	pgMajor       = 3
	pgMostStartup = 10_000 // bytes (MAX_STARTUP_PACKET_LENGTH in src/include/libpq/pqcomm.h)
)

// pgBinaryCopy is how COPY in binary begins: its texts have lengths, which are not read here.
const pgBinaryCopy = "PGCOPY\n\xff"

// pgAnswers and pgRequests have the bodies of messages by their type, as steps; "" is no type. The steps:
//
//	.  the rest is not masked
//	4  4 bytes
//	c  a count of 2 bytes, and as many of 2 bytes
//	e  fields of a byte and a text that ends with a zero byte, until a zero byte
//	n  a name that ends with a zero byte, which is not masked
//	s  a text that ends with a zero byte
//	t  the rest is a text, which goes on with that of the same type before
//	v  a count of 2 bytes, and as many texts behind their length of 4 bytes
//	w  one such text
var pgAnswers, pgRequests = func() (answers, requests [256]string) {
	for _, t := range []byte("RKSZCT123IncstvGH") {
		answers[t] = "."
	}
	for t, steps := range map[byte]string{'D': "v", 'E': "e", 'N': "e", 'A': "4ss", 'V': "w", 'd': "t"} {
		answers[t] = steps
	}
	for _, t := range []byte("pCDEHSXc") {
		requests[t] = "."
	}
	for t, steps := range map[byte]string{'Q': "s", 'P': "ns.", 'B': "nncv.", 'F': "4cv.", 'f': "s", 'd': "t"} {
		requests[t] = steps
	}
	return answers, requests
}()

type pgState uint8

const (
	pgGreeting pgState = iota // the answer to a request for encryption, or the first messages of a client, which have no type
	pgRefused                 // encryption was, or a notice has come: both begin with N
	pgCode                    // of a message of a client without a type
	pgType
	pgLength
	pgBody
)

// A postgresFramer reads the messages of a client or of a server. Texts are parameters, values, queries, and those of errors and of COPY.
type postgresFramer struct {
	fromClient bool
	state      pgState
	startup    bool   // the message is the last one without a type
	kind       byte   // of the message
	steps      string // of its body, that are left
	phase      uint8  // of the step
	left       uint32 // bytes of the body
	have       uint8  // bytes of a number
	number     uint32
	count      uint32 // of values or bytes that are left of the step
	value      uint32 // bytes that are left of a value
	begun      bool   // some of the text has been read
	copying    bool   // the message before was one of COPY
	copied     uint8  // bytes of pgBinaryCopy
}

func (f *postgresFramer) next(b []byte) (span, error) {
	switch f.state {
	case pgGreeting:
		if f.fromClient {
			return f.startupLength(b)
		}
		return f.greeting(b[0])
	case pgRefused:
		f.state = pgGreeting
		if b[0] == 0 {
			f.kind, f.state = 'N', pgLength
		}
		return span{}, nil
	case pgCode:
		return f.startupCode(b)
	case pgType:
		f.kind, f.state = b[0], pgLength
		return span{n: 1}, nil
	case pgLength:
		return f.length(b)
	}
	return f.body(b)
}

// greeting reads the first byte of a server.
func (f *postgresFramer) greeting(c byte) (span, error) {
	switch c {
	case 'S', 'G', recordHandshake:
		return span{}, fmt.Errorf("%w: the server agrees to encryption", ErrEncrypted)
	case 'N':
		f.state = pgRefused
		return span{n: 1}, nil
	}
	f.state = pgType
	return span{}, nil
}

// integer reads a number of so many bytes, and reports whether it is complete.
func (f *postgresFramer) integer(b []byte, size uint8) (n int, ok bool) {
	if f.have == 0 {
		f.number = 0
	}
	for ; n < len(b) && f.have < size; n++ {
		f.number = f.number<<8 | uint32(b[n])
		f.have++
	}
	if ok = f.have == size; ok {
		f.have = 0
	}
	return n, ok
}

func (f *postgresFramer) startupLength(b []byte) (span, error) {
	if f.have == 0 && b[0] == recordHandshake {
		return span{}, fmt.Errorf("%w: the client begins TLS", ErrEncrypted)
	}
	if f.have == 0 && b[0] != 0 { // a length begins with 0: the first messages have been read elsewhere
		f.state = pgType
		return span{}, nil
	}
	n, ok := f.integer(b, 4)
	if ok {
		if f.number < 8 || f.number > pgMostStartup {
			return span{}, fmt.Errorf("%w: a first message of %d bytes", ErrUnframed, f.number)
		}
		f.left, f.state = f.number-8, pgCode
	}
	return span{n: n}, nil
}

func (f *postgresFramer) startupCode(b []byte) (span, error) {
	n, ok := f.integer(b, 4)
	if !ok {
		return span{n: n}, nil
	}
	f.steps, f.state = ".", pgBody
	switch {
	case f.number>>16 == pgMajor:
		f.startup = true
	case f.number != pgTLS && f.number != pgGSS && f.number != pgCancel:
		return span{}, fmt.Errorf("%w: a first message of the protocol %d.%d", ErrUnframed, f.number>>16, f.number&0xffff)
	}
	return span{n: n}, nil
}

// length reads that of a message, and begins its body.
func (f *postgresFramer) length(b []byte) (span, error) {
	n, ok := f.integer(b, 4)
	if !ok {
		return span{n: n}, nil
	}
	steps := &pgAnswers
	if f.fromClient {
		steps = &pgRequests
	}
	f.steps = steps[f.kind]
	if f.steps == "" || f.number < 4 || f.number > 1<<30 { // PQ_LARGE_MESSAGE_LIMIT, MaxAllocSize
		return span{}, fmt.Errorf("%w: a message of type %q and %d bytes", ErrUnframed, f.kind, f.number)
	}
	f.left, f.phase, f.startup, f.state = f.number-4, 0, true, pgBody
	if f.kind != 'd' {
		f.copying, f.copied = false, 0
	}
	return span{n: n}, nil
}

// body reads the next step of a body.
func (f *postgresFramer) body(b []byte) (span, error) {
	if f.steps == "" {
		if f.left > 0 {
			return span{}, fmt.Errorf("%w: %d bytes too many in a message of type %q", ErrUnframed, f.left, f.kind)
		}
		if f.state = pgType; !f.startup {
			f.state = pgGreeting
		}
		return span{}, nil
	}
	b = b[:min(len(b), int(f.left))]
	switch step := f.steps[0]; step {
	case '.':
		return f.skip(b, f.left), nil
	case 't':
		return f.copy(b)
	case '4':
		return f.counted(b, 4)
	case 'c':
		if f.phase == 1 {
			return f.formats(b)
		}
		return f.counted(b, 2)
	case 'v', 'w':
		return f.values(b, step)
	}
	return f.strings(b)
}

// done is the end of a step, or of its phase.
func (f *postgresFramer) done() { f.steps, f.phase = f.steps[1:], 0 }

// skip passes most bytes of a step, which ends then.
func (f *postgresFramer) skip(b []byte, most uint32) span {
	n := min(len(b), int(most))
	f.left -= uint32(n)
	if n == int(most) {
		f.done()
	}
	return span{n: n}
}

func (f *postgresFramer) short() error {
	return fmt.Errorf("%w: a message of type %q is too short", ErrUnframed, f.kind)
}

// counted reads the number of a step: the step ends with it, or there are as many of something.
func (f *postgresFramer) counted(b []byte, size uint8) (span, error) {
	if int(f.left) < int(size-f.have) {
		return span{}, f.short()
	}
	n, ok := f.integer(b, size)
	f.left -= uint32(n)
	switch {
	case !ok:
	case f.steps[0] == '4' || f.number == 0:
		f.done()
	default:
		f.count, f.phase = f.number, 1
		if f.steps[0] == 'c' {
			f.count *= 2
		}
	}
	return span{n: n}, nil
}

// formats passes those of values.
func (f *postgresFramer) formats(b []byte) (span, error) {
	if f.count > f.left {
		return span{}, f.short()
	}
	n := min(len(b), int(f.count))
	f.left -= uint32(n)
	if f.count -= uint32(n); f.count == 0 {
		f.done()
	}
	return span{n: n}, nil
}

// values reads texts behind their lengths.
func (f *postgresFramer) values(b []byte, step byte) (span, error) {
	switch {
	case step == 'v' && f.phase == 0:
		return f.counted(b, 2)
	case f.phase < 2:
		if step == 'w' {
			f.count = 1
		}
		if int(f.left) < int(4-f.have) {
			return span{}, f.short()
		}
		n, ok := f.integer(b, 4)
		f.left -= uint32(n)
		if ok {
			return span{n: n}, f.valueBegins()
		}
		return span{n: n}, nil
	}
	n := min(len(b), int(f.value))
	s := span{n: n, text: true, first: !f.begun}
	f.left -= uint32(n)
	f.begun = true
	if f.value -= uint32(n); f.value == 0 {
		s.ends = true
		f.valueEnds()
	}
	return s, nil
}

// valueBegins is called with the length of a value, of which all bits are 1 if it is null.
func (f *postgresFramer) valueBegins() error {
	switch f.value = f.number; {
	case f.value == 0 || f.value == 1<<32-1:
		f.valueEnds()
	case f.value > f.left:
		return f.short()
	default:
		f.phase, f.begun = 2, false
	}
	return nil
}

func (f *postgresFramer) valueEnds() {
	if f.phase, f.begun = 1, false; f.count == 1 {
		f.done()
		return
	}
	f.count--
}

// copy reads the data of COPY.
func (f *postgresFramer) copy(b []byte) (span, error) {
	if f.left == 0 {
		f.done()
		return span{}, nil
	}
	for i := 0; i < len(b) && int(f.copied) < len(pgBinaryCopy); i++ {
		if b[i] != pgBinaryCopy[f.copied] {
			f.copied = 1<<8 - 1
			break
		}
		if f.copied++; int(f.copied) == len(pgBinaryCopy) {
			return span{}, fmt.Errorf("%w: COPY in binary", ErrUnframed)
		}
	}
	s := span{n: len(b), text: true, first: !f.copying}
	f.copying = true
	if f.left -= uint32(len(b)); f.left == 0 {
		s.ends = true
		f.done()
	}
	return s, nil
}

// Phases of a text that ends with a zero byte.
const (
	pgField  = iota // the byte before it, of the step e
	pgString        // it
	pgZero          // the byte behind it
)

// strings reads a text or a name that ends with a zero byte, or fields.
func (f *postgresFramer) strings(b []byte) (span, error) {
	if f.left == 0 {
		return span{}, f.short()
	}
	step := f.steps[0]
	if f.phase == pgField && step != 'e' {
		f.phase = pgString
	}
	if f.phase == pgString {
		return f.string(b, step != 'n')
	}
	f.left--
	switch zero := f.phase == pgZero; {
	case zero && step == 'e':
		f.phase = pgField
	case zero || b[0] == 0:
		f.done()
	default:
		f.phase = pgString
	}
	return span{n: 1}, nil
}

// string reads to the zero byte.
func (f *postgresFramer) string(b []byte, masked bool) (span, error) {
	n := bytes.IndexByte(b, 0)
	s := span{n: n, text: masked, first: masked && !f.begun, ends: masked && n >= 0}
	if n < 0 {
		if s.n = len(b); s.n == int(f.left) {
			return span{}, f.short()
		}
		f.begun = true
	} else {
		f.phase, f.begun = pgZero, false
	}
	f.left -= uint32(s.n)
	return s, nil
}
