package sessionlog

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A formatter appends the line for an event, without a line break.
type formatter func(b []byte, e *Event, c *context) []byte

// The names of the formats.
const (
	FormatJSON     = "json"
	FormatHAProxy  = "haproxy-tcp"
	FormatTemplate = "template"
)

func formatterOf(format, template string) (formatter, error) {
	switch format {
	case FormatJSON:
		return appendJSON, nil
	case FormatHAProxy:
		return appendHAProxy, nil
	case FormatTemplate:
		t, err := parseTemplate(template)
		return t.append, err
	}
	return nil, fmt.Errorf("there is no format %q", format)
}

// appendJSON appends an object with the fields that the event has. All of it is ASCII.
func appendJSON(b []byte, e *Event, c *context) []byte {
	began := len(b)
	for i := range fields {
		f := &fields[i]
		if f.of != nil {
			if v := f.of(e); v != "" {
				b = append(appendJSONText(append(append(b, jsonKeys[i]...), '"'), v), '"')
			}
			continue
		}
		before := len(b)
		b = append(b, jsonKeys[i]...)
		key := len(b)
		if b = f.append(b, e, c); len(b) == key {
			b = b[:before]
		} else if !f.number {
			b = append(b, '"')
		}
	}
	b[began] = '{' // replaces the first comma; every line has a time
	return append(b, '}')
}

// jsonKeys are the fields' keys with comma and colon, and with the opening quote of a text that needs no escapes.
var jsonKeys = func() []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = `,"` + f.name + `":`
		if f.of == nil && !f.number {
			keys[i] += `"`
		}
	}
	return keys
}()

// plain returns the number of leading bytes of a text that need no escape.
func plain(text string) int {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return i
		}
	}
	return len(text)
}

const hexDigits = "0123456789abcdef"

// appendJSONText appends the inside of a JSON string. Only visible ASCII is written unchanged. A byte that is not UTF-8
// becomes \xNN in the text, and so does a backslash: otherwise a name could look like another one.
func appendJSONText(b []byte, text string) []byte {
	for len(text) > 0 {
		if n := plain(text); n > 0 {
			b, text = append(b, text[:n]...), text[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == '"':
			b = append(b, '\\', '"')
		case r == '\\' || r == utf8.RuneError && n == 1:
			b = append(b, '\\', '\\', 'x', hexDigits[text[0]>>4], hexDigits[text[0]&15])
		case r > 0xffff:
			r -= 0x10000
			b = appendUnit(appendUnit(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			b = appendUnit(b, r)
		}
		text = text[n:]
	}
	return b
}

// appendUnit appends a UTF-16 code unit.
func appendUnit(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// appendWord appends a text as one word of visible ASCII: other bytes, spaces, quotes and backslashes become \xNN.
func appendWord(b, text []byte) []byte {
	for _, c := range text {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '\'' {
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// appendHAProxy appends a line as HAProxy writes it with "option tcplog", after the header that a syslog server adds
// (HAProxy, Configuration Manual, 8.2.2).
func appendHAProxy(b []byte, e *Event, c *context) []byte {
	b = c.wall(e.now).Local().AppendFormat(b, "Jan _2 15:04:05 ")
	return appendTCPLog(append(append(append(append(b, c.host...), " penstock["...), c.pid...), "]: "...), e, c)
}

// appendTCPLog appends the line without the header.
func appendTCPLog(b []byte, e *Event, c *context) []byte {
	begin := c.wall(e.Accepted).Local()
	if at := e.From().AddrPort(); at.IsValid() {
		b = append(strconv.AppendUint(append(at.Addr().AppendTo(b), ':'), uint64(at.Port()), 10), ' ')
	} else {
		b = append(b, "unix:1 "...)
	}
	b = begin.AppendFormat(append(b, '['), "02/Jan/2006:15:04:05.000")
	b = append(b, ']', ' ')
	b = append(appendName(b, e.Listener, "-"), ' ')
	b = append(appendName(b, e.Upstream, nameOr(e.Listener, "-")), '/')
	b = append(appendName(b, e.Endpoint, "<NOSRV>"), ' ')
	b = append(appendMillis(b, e.queueTime()), '/')
	b = append(appendMillis(b, e.connectTime()), '/')
	if e.Kind != End {
		b = append(b, '+')
	}
	b = append(appendMillis(b, e.Since(e.now).Milliseconds()), ' ')
	b = append(strconv.AppendInt(b, e.Result.BToA.Bytes(), 10), ' ')
	b = append(append(b, e.state()...), ' ')
	for i, n := range [...]int64{e.Counts.Process, e.Counts.Listener, e.Counts.Upstream, e.Counts.Endpoint} {
		if i > 0 {
			b = append(b, '/')
		}
		if i > 1 && e.Kind == End {
			n = max(n-1, 0) // HAProxy counts it for its process and frontend alone when it logs the end
		}
		b = strconv.AppendInt(b, n, 10)
	}
	b = append(b, '/')
	if e.Redispatched {
		b = append(b, '+')
	}
	b = strconv.AppendInt(b, int64(e.Retries), 10)
	b = append(b, " 0/"...) // only upstreams have queues
	return strconv.AppendInt(b, int64(e.Before), 10)
}

func nameOr(name, other string) string {
	if name == "" {
		return other
	}
	return name
}

// appendName appends a configured name as a word, without characters that separate words.
func appendName(b []byte, name, other string) []byte {
	for i := range len(nameOr(name, other)) {
		c := nameOr(name, other)[i]
		if c <= ' ' || c >= 0x7f || c == '/' || c == '[' || c == ']' {
			c = '_'
		}
		b = append(b, c)
	}
	return b
}

func appendMillis(b []byte, ms int64) []byte { return strconv.AppendInt(b, ms, 10) }

// queueTime returns Tw in milliseconds, or -1 if the client did not reach the queue.
func (e *Event) queueTime() int64 {
	if e.Picked == 0 && e.Waits == 0 {
		return -1
	}
	return e.Queued.Milliseconds()
}

// connectTime returns Tc in milliseconds, or -1 without a connection.
func (e *Event) connectTime() int64 {
	d, known := between(e.Connecting, e.Joined)
	if !known {
		return -1
	}
	return d.Milliseconds()
}

// Limits, in bytes, of a template and of the line that it makes.
const (
	MaxTemplate = 1024
	maxLine     = 4096
)

// A template is a sequence of texts and fields.
type template []part

type part struct {
	text  string
	field *field // nil for a text
}

// CheckTemplate returns the first error of a template.
func CheckTemplate(text string) error {
	_, err := parseTemplate(text)
	return err
}

// parseTemplate reads a template: {field} stands for a field, and {{ for a brace.
func parseTemplate(text string) (t template, err error) {
	if len(text) > MaxTemplate {
		return nil, fmt.Errorf("a template has at most %d bytes, not %d", MaxTemplate, len(text))
	}
	for text != "" {
		before, rest, found := strings.Cut(text, "{")
		if before != "" {
			t = append(t, part{text: before})
		}
		if !found {
			break
		}
		if after, twice := strings.CutPrefix(rest, "{"); twice {
			t, text = append(t, part{text: "{"}), after
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return nil, fmt.Errorf("a } is missing after {: write {{ for a brace")
		}
		f := fieldNamed(name)
		if f == nil {
			return nil, fmt.Errorf("there is no field {%s}", name)
		}
		t, text = append(t, part{field: f}), after
	}
	if len(t) == 0 {
		return nil, fmt.Errorf("the template is empty")
	}
	return t, nil
}

func fieldNamed(name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

// append appends the line that the template makes. A field without a value is written as -.
func (t template) append(b []byte, e *Event, c *context) []byte {
	began := len(b)
	for _, p := range t {
		if p.field == nil {
			b = append(b, p.text...)
			continue
		}
		v := p.field.append(c.value[:0], e, c)
		switch {
		case len(v) == 0:
			b = append(b, '-')
		case string(v) == "-": // a name from the network could pass for a missing value
			b = append(b, `\x2d`...)
		default:
			b = appendWord(b, v)
		}
	}
	if len(b)-began > maxLine {
		b = b[:began+maxLine]
	}
	return b
}

func newContext() *context {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "-"
	}
	return &context{host: string(bytes.ToValidUTF8(appendWord(nil, []byte(host)), nil)), pid: strconv.Itoa(os.Getpid())}
}
