package firstbytes

import (
	"bytes"
	"slices"
	"strings"
)

// maxInline is the longest inline command that is read.
const maxInline = 1 << 10

// inlineCommands are the inline commands that are recognised: those that a client begins with, and that other protocols
// do not.
var inlineCommands = []string{"AUTH", "CLIENT", "COMMAND", "ECHO", "HELLO", "INFO", "PING", "QUIT", "SELECT"}

const longestCommand = len("GEORADIUSBYMEMBER_RO")

// lookRedis recognises an array of bulk strings by the heads of the array and of the first string, and inline commands by
// their first line. (The Redis serialization protocol specification.)
func lookRedis(_ *Recogniser, b []byte, f *Facts) (need int) {
	v := Open
	switch {
	case b[0] == '*':
		need, v = respArray(b)
	case b[0] == ' ' || '\t' <= b[0] && b[0] <= '\r':
		v = Doubt
	default:
		need, v = inline(b)
	}
	if v == Doubt {
		v = f.doubt("the first line may be one of Redis")
	}
	f.verdicts[Redis] = v
	return need
}

// respArray looks for "*2\r\n$4\r\n". Redis does not look at the byte after a carriage return. Empty arrays it passes over, so that what follows
// them is in doubt, as are numbers that only some versions and settings of Redis take.
func respArray(b []byte) (need int, v Verdict) {
	at := 0
	for _, head := range []struct {
		first  byte
		digits int
	}{{'*', 7}, {'$', 9}} {
		if at == len(b) {
			return at + 1, Open
		}
		if b[at] != head.first {
			return 0, No
		}
		at++
		if head.first == '*' && at < len(b) && (b[at] == '-' || b[at] == '0') {
			return 0, Doubt
		}
		start := at
		for at < len(b) && '0' <= b[at] && b[at] <= '9' {
			at++
		}
		switch n := at - start; {
		case n > head.digits:
			return 0, Doubt
		case n == 0 && at < len(b), n > 1 && b[start] == '0':
			return 0, No
		}
		switch {
		case at == len(b):
			return at + 1, Open
		case b[at] != '\r':
			return 0, No
		case at+1 >= len(b):
			return at + 2, Open
		}
		at += 2
	}
	return 0, Yes
}

// inline looks for a line that begins with one of the inline commands. A word with quotes, which Redis removes, and one that may be another
// command are in doubt.
func inline(b []byte) (need int, v Verdict) {
	word := 0
	for word < len(b) && word <= longestCommand && (isLetter(b[word]) || strings.IndexByte("_-.", b[word]) >= 0) {
		word++
	}
	if word == len(b) {
		return len(b) + 1, Open // it may go on
	}
	if c := b[word]; c == '"' || c == '\'' {
		return 0, Doubt
	}
	command := strings.ToUpper(string(b[:word]))
	begins := slices.Contains(inlineCommands, command)
	module, _, _ := strings.Cut(command, ".")
	if !begins && !slices.Contains(otherCommands, command) && (module == command || !slices.Contains(modules, module)) || !strings.ContainsRune(" \t\r\n", rune(b[word])) {
		return 0, No
	}
	switch end := bytes.IndexByte(b, '\n'); {
	case end >= 0 && command == "GET" && looksLikeHTTP(b[:end]):
		return 0, No
	case end >= 0 && begins && !looksLikeHTTP(b[:end]):
		return 0, Yes
	case end < 0 && len(b) < maxInline:
		return len(b) + 1, Open
	}
	return 0, Doubt
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
