package masks

import "encoding/binary"

// A prefix is the beginning of a token.
type prefix struct {
	text  string
	least int // characters that must follow
	class uint8
}

// Classes of characters.
const (
	ofWords    uint8 = 1 << iota // letters, digits, _ . -
	ofBearers                    // the same, and ~ + / = (RFC 6750, 2.1)
	ofBase64                     // letters, digits, _ -
	ofCapitals                   // capital letters and digits
)

// tokens lists the prefixes of tokens. No prefix begins with another. A token begins where a word does.
// Everything after the prefix is masked, to the end of the word, and after Bearer also ~ + / and =.
var tokens = [...]prefix{
	{"bearer ", 8, ofBearers}, // also in capitals
	{jwtPrefix, leastJWT, ofBase64},
	{"sk-", 20, ofBase64},
	{"sk_live_", 16, ofBase64},
	{"sk_test_", 16, ofBase64},
	{"rk_live_", 16, ofBase64},
	{"rk_test_", 16, ofBase64},
	{"whsec_", 16, ofBase64},
	{"ghp_", 30, ofBase64},
	{"gho_", 30, ofBase64},
	{"ghu_", 30, ofBase64},
	{"ghs_", 30, ofBase64},
	{"ghr_", 30, ofBase64},
	{"github_pat_", 22, ofBase64},
	{"glpat-", 20, ofWords},
	{"xoxa-", 10, ofBase64},
	{"xoxb-", 10, ofBase64},
	{"xoxp-", 10, ofBase64},
	{"xoxr-", 10, ofBase64},
	{"xoxs-", 10, ofBase64},
	{"xapp-", 10, ofBase64},
	{"AKIA", 16, ofCapitals},
	{"ASIA", 16, ofCapitals},
	{"AIza", 35, ofBase64},
	{"SG.", 20, ofWords},
	{"hvs.", 20, ofBase64},
	{"npm_", 36, ofBase64},
	{"dop_v1_", 32, ofBase64},
	{"pypi-", 16, ofBase64},
	{"hf_", 30, ofBase64},
}

// A JWT (RFC 7519) is a header, which is a JSON object in base64, a dot, and more.
const (
	jwtPrefix = "eyJ"
	jwtToken  = 1 // index in tokens
	leastJWT  = 6
	mostJWT   = 500 // characters of the header that follow the prefix
	leastRest = 4   // characters that follow the dot
)

// maxPrefix is the length of the longest prefix.
const maxPrefix = 11

// prefixNext[n][c] has a bit for each prefix with c as its character n, and prefixLast[n] for each prefix of
// n+1 characters.
var prefixNext, prefixLast = func() (next [maxPrefix][256]uint32, last [maxPrefix]uint32) {
	for t := range tokens {
		p := &tokens[t]
		for n := range len(p.text) {
			next[n][p.text[n]] |= 1 << t
			if t == 0 && isLetter(p.text[n]) {
				next[n][p.text[n]^0x20] |= 1 << t
			}
		}
		last[len(p.text)-1] |= 1 << t
	}
	return next, last
}()

// classes has the classes of each character.
var classes = func() (set [256]uint8) {
	for c := range set {
		b := byte(c)
		if isLetter(b) || isDigit(b) || b == '_' || b == '-' {
			set[c] |= ofBase64 | ofWords | ofBearers
		}
		if isDigit(b) || isLetter(b) && b < 'a' {
			set[c] |= ofCapitals
		}
		switch b {
		case '.':
			set[c] |= ofWords | ofBearers
		case '~', '+', '/', '=':
			set[c] |= ofBearers
		}
	}
	return set
}()

// A tokenScanner finds tokens.
type tokenScanner struct {
	state tokenState
	token uint8  // index in tokens, when it is known
	fits  uint32 // one bit for each prefix that fits the bytes read
	n     int    // characters read of the prefix, or after it
	rest  int    // how many of them come from the dot of a JWT on
}

type tokenState uint8

const (
	betweenWords tokenState = iota
	inWord                  // in a word that is no token
	inPrefix
	behindPrefix // not yet known to be a token
	inToken
)

func (s *tokenScanner) scan(b []byte, at int, f *found) (undecided int) {
	for i := at; i < len(b); {
		switch s.state {
		case betweenWords, inWord:
			i = s.nextWord(b, i)
		case inPrefix:
			if s.prefixByte(b[i]) {
				i++
			}
		case behindPrefix:
			switch {
			case !s.tokenByte(b[i]):
				s.state = inWord
				continue // read the byte again
			case s.complete():
				f.matches++
				f.cover(b, i+1-s.n, i+1)
				s.state = inToken
			}
			i++
		default:
			class := tokens[s.token].class&ofBearers | ofWords
			end := i
			for end < len(b) && classes[b[end]]&class != 0 {
				end++
			}
			f.cover(b, i, end)
			if i = end; i < len(b) {
				s.state = betweenWords
			}
		}
	}
	if s.state == behindPrefix {
		return s.n
	}
	return 0
}

// nextWord returns the beginning of the next word that may be a prefix.
func (s *tokenScanner) nextWord(b []byte, i int) int {
	before := uint64(s.state) // 1 if the byte before belongs to a word
	for ; i+9 <= len(b); i += 8 {
		words := inWords(binary.LittleEndian.Uint64(b[i:]))
		starts := words &^ (words<<8 | before<<7)
		before = words >> 63
		for ; starts != 0; starts &= starts - 1 {
			at := i + first(starts)
			if prefixNext[0][b[at]]&prefixNext[1][b[at+1]] != 0 {
				return s.begin(at)
			}
		}
	}
	for ; i < len(b); i++ {
		switch {
		case classes[b[i]]&ofWords == 0:
			before = 0
		case before == 0 && (i+1 == len(b) || prefixNext[0][b[i]]&prefixNext[1][b[i+1]] != 0):
			return s.begin(i)
		default:
			before = 1
		}
	}
	s.state = tokenState(before)
	return i
}

// begin begins to read a word that may be a prefix.
func (s *tokenScanner) begin(at int) int {
	s.state, s.n, s.fits = inPrefix, 0, 1<<len(tokens)-1
	return at
}

// inWords returns the high bit of each byte in the class ofWords.
func inWords(w uint64) uint64 {
	t := w &^ high
	l := t | 0x20*each
	letters := (l + (0x80-'a')*each) &^ (l + (0x80-'z'-1)*each)
	digits := (t + (0x80-'-')*each) &^ (t + (0x80-'9'-1)*each) & ((t ^ '/'*each) + 0x7f*each) // - . 0 to 9
	line := ^((t ^ '_'*each) + 0x7f*each)
	return (letters | digits | line) & high &^ w
}

// prefixByte takes the next byte of a prefix, or returns false if none fits.
func (s *tokenScanner) prefixByte(c byte) bool {
	if s.fits &= prefixNext[s.n][c]; s.fits == 0 {
		s.state = inWord
		return false
	}
	if last := s.fits & prefixLast[s.n]; last != 0 {
		s.state = behindPrefix
		for s.token = 0; last>>s.token != 1; s.token++ {
		}
		s.n, s.rest = 0, 0
		return true
	}
	s.n++
	return true
}

// tokenByte takes the next byte after a prefix, or returns false if no token has it there.
func (s *tokenScanner) tokenByte(c byte) bool {
	ok := classes[c]&tokens[s.token].class != 0
	if s.token == jwtToken {
		switch {
		case s.rest > 0 || c == '.' && s.n >= leastJWT:
			ok = ok || s.rest == 0
			s.rest++
		case s.n == mostJWT:
			ok = false
		}
	}
	if ok {
		s.n++
	}
	return ok
}

// complete reports whether the bytes after the prefix are enough for a token.
func (s *tokenScanner) complete() bool {
	if s.token == jwtToken {
		return s.rest == 1+leastRest
	}
	return s.n == tokens[s.token].least
}

func (s *tokenScanner) settle([]byte, *found) {}
