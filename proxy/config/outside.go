package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"

	"github.com/penstock/penstock/proxy/internal/file"
)

// expand replaces ${NAME} by the environment variable, and $$ by $, unless $ is not special in the file. It reports
// whether there was a variable. If a variable is not set, it complains at d.here, and ok is false.
func (d *decoder) expand(text string) (expanded string, variable, ok bool) {
	if d.literal || !strings.Contains(text, "$") {
		return text, false, true
	}
	var b strings.Builder
	ok = true
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String(), variable, ok
		}
		text = after
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case strings.HasPrefix(after, "{"):
			name, rest, closed := strings.Cut(after[1:], "}")
			value, known := d.variable(name, closed)
			b.WriteString(value)
			text, variable, ok = rest, true, ok && known
		default:
			b.WriteByte('$')
		}
	}
}

func (d *decoder) variable(name string, closed bool) (value string, ok bool) {
	at := d.here.within("${" + name)
	switch {
	case !closed:
		d.complainAt(at, "write ${NAME}, or $$ for a $", "} is missing after ${")
	case !variableName.MatchString(name):
		d.complainAt(at, "write letters, digits and _, or $$ for a $", "${%s} names no variable", printable(name))
	case d.env == nil:
	default:
		if value, ok = d.env(name); !ok {
			d.complainAt(at, "set "+name+", or write $${ for ${", "the variable %s is not set in the environment", name)
		} else if len(value) > maxBytes {
			d.complainAt(at, "set the variable to a shorter text", "the variable %s is longer than %s", name, showSize(maxBytes))
			return "", false
		} else if !d.spend(len(value), at) {
			return "", false
		}
	}
	return value, ok
}

// variableName matches the name of a variable.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// escaped returns the text that expand would turn into text.
func escaped(text string) string { return strings.ReplaceAll(text, "$", "$$") }

func (s *source) absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(s.dir, path)
}

func setPath(d *decoder, f *field, v reflect.Value, text string) *complaint {
	if c := checkLine(text); c != nil {
		return c
	}
	if d != nil {
		text = d.src.absolute(text)
		d.names(f, text)
	}
	v.SetString(text)
	return nil
}

func setContent(d *decoder, f *field, v reflect.Value, text string) *complaint {
	return setRead(d, f, v, text, (*decoder).contents)
}

// setModule is setContent for a WebAssembly module, which may be large. Empty text means no module.
func setModule(d *decoder, f *field, v reflect.Value, text string) *complaint {
	if text == "" && f != nil && !f.required {
		return nil
	}
	return setRead(d, f, v, text, (*decoder).module)
}

func setRead(d *decoder, f *field, v reflect.Value, text string, read func(*decoder, string) ([]byte, *complaint)) *complaint {
	var path Path
	if c := setPath(d, f, reflect.ValueOf(&path).Elem(), text); c != nil || d == nil {
		return c
	}
	data, c := read(d, string(path))
	v.Set(reflect.ValueOf(Content{Path: path, Bytes: data}))
	return c
}

// setSecret takes the text as written, before variables are replaced.
func setSecret(d *decoder, f *field, v reflect.Value, text string) *complaint {
	if d == nil {
		v.Set(reflect.ValueOf(Secret{Value: text}))
		return nil
	}
	name, isFile := strings.CutPrefix(text, "file:")
	value, variable, ok := d.expand(name)
	switch {
	case !ok:
		return nil // d.value has already complained
	case isFile:
		path := d.src.absolute(value)
		d.names(f, path)
		data, c := d.contents(path)
		if c != nil {
			return c
		}
		value = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
		v.Set(reflect.ValueOf(Secret{Value: value, Source: "file:" + escaped(path)}))
	case variable:
		v.Set(reflect.ValueOf(Secret{Value: value, Source: text}))
	default:
		v.Set(reflect.ValueOf(Secret{Value: value}))
	}
	return nil
}

// maxModule is the largest WebAssembly module, and maxModules bounds all modules.
const (
	maxModule  = 32 << 20
	maxModules = 8 * maxModule
)

// A moduleFile is the content of a module's file.
type moduleFile struct {
	bytes []byte
	sum   [sha256.Size]byte
}

// module returns the bytes of a module. Aliases of one module share them.
func (d *decoder) module(path string) ([]byte, *complaint) {
	m, known := d.modules[path]
	if !known {
		if d.inAll > maxModules {
			return nil, complain("use fewer modules, or smaller ones", "the modules have more than %s together", showSize(maxModules))
		}
		data, err := d.read(path, maxModule)
		d.named = append(d.named, path)
		if err != nil {
			return nil, complain(mend(err, maxModule), "%v", err)
		}
		if d.modules == nil {
			d.modules = make(map[string]moduleFile)
		}
		m = moduleFile{data, sha256.Sum256(data)}
		d.modules[path] = m
		d.inAll += len(data)
	}
	return m.bytes, nil
}

func (d *decoder) contents(path string) ([]byte, *complaint) {
	data, err := d.read(path, maxBytes)
	d.named = append(d.named, path)
	if err != nil {
		return nil, complain(mend(err, maxBytes), "%v", err)
	}
	if !d.spend(len(data), d.here) {
		data = nil
	}
	return data, nil
}

// mend returns the fix for a file that cannot be read.
func mend(err error, limit int) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "use the name of an existing file"
	case errors.Is(err, fs.ErrPermission):
		return "let this user read it"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "wait until it answers, or write another path"
	case errors.Is(err, syscall.EMFILE):
		return "let the process open more files: ulimit -n, or LimitNOFILE= in the unit"
	case errors.Is(err, syscall.ENFILE):
		return "let this machine open more files: sysctl fs.file-max"
	case errors.Is(err, file.ErrLink):
		return "" // the error says it
	case errors.Is(err, file.ErrTooLarge):
		return fmt.Sprintf("make it at most %s", showSize(int64(limit)))
	}
	return "write the name of a file"
}
