package completion

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Names returns the names of things of a running process: "listener", "upstream", "endpoint", of the upstream that the
// line names, if it does, "split", beginnings of the parts of one, or "denial", the sources that are denied. It
// returns none if they are not known.
type Names func(l *Line, kind string) []string

// An answer is words that may stand at the end of a line, and the kind of others.
type answer struct {
	words []string // each with its description
	kind  string   // files, directories, words
}

// Complete writes what may stand at the end of the line.
func (l *Line) Complete(w io.Writer, names Names) error {
	a := l.answer(names)
	var b strings.Builder
	for _, word := range a.words {
		fmt.Fprintln(&b, word)
	}
	fmt.Fprintf(&b, "=%s\n", a.kind) // no name has that, and no other word begins so
	_, err := io.WriteString(w, b.String())
	return err
}

func (l *Line) answer(names Names) answer {
	a := answer{kind: "words"}
	switch {
	case l.flag != nil:
		l.values(&a, l.flag.Value, l.flag.PlaceHolder, names)
	case l.prefix != "": // of no flag
	case strings.HasPrefix(l.word, "-") && !l.plain:
		l.flagNames(&a)
	default:
		if len(l.args) == 0 {
			l.commandNames(&a)
		}
		if p := l.positional(); p != nil {
			l.values(&a, p, p.Tag.PlaceHolder, names)
		}
	}
	return a
}

// add adds a word, if it begins as the last one does.
func (l *Line) add(a *answer, word, help string) {
	if !strings.HasPrefix(word, l.word) {
		return
	}
	text := l.prefix + word
	if help = summary(help); help != "" {
		text += "\t" + help
	}
	a.words = append(a.words, text)
}

// summary is the beginning of a help text, which fits beside the word.
func summary(help string) string {
	help, _, _ = strings.Cut(strings.ReplaceAll(help, "\n", " "), ". ")
	help, _, _ = strings.Cut(help, ": ")
	const most = 70
	if r := []rune(help); len(r) > most {
		help = string(r[:most-1]) + "…"
	}
	return strings.TrimSuffix(help, ".")
}

func (l *Line) commandNames(a *answer) {
	for _, child := range l.node.Children {
		if !child.Hidden {
			l.add(a, child.Name, child.Help)
		}
	}
}

func (l *Line) flagNames(a *answer) {
	for _, flag := range l.flags() {
		if flag.Hidden {
			continue
		}
		l.add(a, "--"+flag.Name, flag.Help)
		if flag.Tag.Negatable != "" {
			l.add(a, "--no-"+flag.Name, flag.Help)
		}
	}
}

// kinds are the things that a process has names for, by the names of flags and arguments, or by their tag names.
var kinds = []string{"listener", "upstream", "endpoint", "split", "denial"}

// kind is the thing that a value names. That of an argument called name is the noun of the command.
func (l *Line) kind(v *kong.Value) string {
	if names := v.Tag.Get("names"); names != "" {
		return names
	}
	if v.Flag == nil && v.Name == "name" {
		for n := l.node; n != nil; n = n.Parent {
			if slices.Contains(kinds, n.Name) {
				return n.Name
			}
		}
	}
	return v.Name
}

// valuesOf returns the values of a flag or an argument that has a few: of its tag enum, or of values if the process
// decides about them.
func valuesOf(v *kong.Value) []string {
	list := strings.FieldsFunc(v.Tag.Get("values"), func(r rune) bool { return r == ',' })
	if v.Enum != "" {
		list = v.EnumSlice()
	}
	return slices.DeleteFunc(list, func(value string) bool { return value == "" }) // it stands for no value
}

// values adds the values of a flag or an argument.
func (l *Line) values(a *answer, v *kong.Value, placeholder string, names Names) {
	if list := valuesOf(v); len(list) > 0 {
		for _, value := range list {
			l.add(a, value, "")
		}
		return
	}
	kind := l.kind(v)
	switch {
	case slices.Contains(kinds, kind):
		for _, name := range names(l, kind) {
			if typed.MatchString(name) {
				l.add(a, name, "")
			}
		}
	case placeholder == "DIR":
		a.kind = "directories"
	case placeholder == "FILE" || kind == "file" || kind == "files" || strings.HasPrefix(l.word, "unix:"):
		a.kind = "files"
	case kind == "admin" || kind == "listen":
		l.add(a, "unix:", "")
	}
}

// typed are the names that a shell takes as they are, and that are no flags. Others are not offered, so that no name is
// a command.
var typed = regexp.MustCompile(`^[A-Za-z0-9_./%+@\[\]][A-Za-z0-9_./:%+@\[\]=-]*$`)
