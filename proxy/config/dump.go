package config

import (
	"bytes"
	"reflect"
	"strings"
)

// YAML returns a single file with all values of c, including defaults, and without include. Loading it gives the same
// Config, except for positions. Secrets from files or variables are named, not shown. Secrets that were written
// literally are shown.
func (c *Config) YAML() []byte {
	w := &writer{}
	w.object(root(), reflect.ValueOf(c).Elem(), 0)
	return w.Bytes()
}

// JSON returns the same file as JSON.
func (c *Config) JSON() []byte {
	w := &writer{json: true}
	w.object(root(), reflect.ValueOf(c).Elem(), 0)
	w.WriteByte('\n')
	return w.Bytes()
}

// A writer writes structs as the decoder reads them.
type writer struct {
	bytes.Buffer
	json bool
}

func (w *writer) line(depth int) {
	if w.Len() > 0 {
		w.WriteByte('\n')
	}
	for range depth {
		w.WriteString("  ")
	}
}

// object writes v, a struct described by o. In YAML its first key goes on the current line if
// that was begun for it.
func (w *writer) object(o *object, v reflect.Value, depth int) {
	if w.json {
		w.WriteByte('{')
	}
	first := true
	for _, f := range o.fields {
		value := v.Field(f.index)
		if f.once || f.optional && !f.on && value.IsNil() {
			continue
		}
		switch {
		case w.json && !first:
			w.WriteString(",")
			w.line(depth + 1)
		case w.json:
			w.line(depth + 1)
		case !first || !w.item():
			w.line(depth)
		}
		first = false
		w.key(f.key)
		w.field(f, value, depth+1)
	}
	if w.json {
		w.line(depth)
		w.WriteByte('}')
	} else if depth == 0 {
		w.WriteByte('\n')
	}
}

// item reports whether the item of a list was just begun.
func (w *writer) item() bool { return bytes.HasSuffix(w.Bytes(), []byte("- ")) }

func (w *writer) key(key string) {
	if w.json {
		w.text(key)
	} else {
		w.WriteString(key)
	}
	w.WriteByte(':')
}

func (w *writer) field(f *field, v reflect.Value, depth int) {
	switch {
	case f.on && v.IsNil():
		w.WriteByte(' ')
		w.word(Off)
	case f.list && (f.obj == nil || v.Len() == 0):
		w.flow(f, v)
	case f.list:
		w.items(f, v, depth)
	case f.obj != nil:
		if w.json {
			w.WriteByte(' ')
		}
		w.object(f.obj, reflect.Indirect(v), depth)
	default:
		w.WriteByte(' ')
		w.scalar(f, v)
	}
}

func (w *writer) flow(f *field, v reflect.Value) {
	w.WriteString(" [")
	for i := range v.Len() {
		if i > 0 {
			w.WriteString(", ")
		}
		w.scalar(f, v.Index(i))
	}
	w.WriteByte(']')
}

func (w *writer) items(f *field, v reflect.Value, depth int) {
	if w.json {
		w.WriteString(" [")
	}
	for i := range v.Len() {
		if w.json && i > 0 {
			w.WriteByte(',')
		}
		w.line(depth)
		inner := depth
		if !w.json {
			w.WriteString("- ")
			inner++
		}
		w.object(f.obj, reflect.Indirect(v.Index(i)), inner)
	}
	if w.json {
		w.line(depth - 1)
		w.WriteByte(']')
	}
}

func (w *writer) scalar(f *field, v reflect.Value) {
	text := f.form.show(v)
	if f.shown != "" && text == f.shown { // as the reference shows it
		text = f.dflt
	}
	if secret, ok := v.Interface().(Secret); !ok || secret.Source == "" {
		text = escaped(text)
	}
	switch f.form.style {
	case styleInteger, styleNumber, styleBoolean:
		w.WriteString(text)
	case styleWordOrInteger:
		if strings.Trim(text, "0123456789") == "" {
			w.WriteString(text)
			return
		}
		w.text(text)
	case styleText:
		if len(f.enum) > 0 && text[0] > '9' {
			w.word(text)
			return
		}
		w.text(text)
	default:
		w.word(text)
	}
}

// word writes text that needs no quotes in YAML.
func (w *writer) word(text string) {
	if w.json {
		w.text(text)
	} else {
		w.WriteString(text)
	}
}

// text writes a string in quotes that is the same in JSON and YAML.
func (w *writer) text(s string) {
	const hex = "0123456789abcdef"
	w.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.WriteByte('\\')
			w.WriteRune(r)
		case r == '\n':
			w.WriteString(`\n`)
		case r == '\r':
			w.WriteString(`\r`)
		case r == '\t':
			w.WriteString(`\t`)
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff':
			w.WriteString(`\u`)
			for shift := 12; shift >= 0; shift -= 4 {
				w.WriteByte(hex[r>>shift&15])
			}
		default:
			w.WriteRune(r)
		}
	}
	w.WriteByte('"')
}
