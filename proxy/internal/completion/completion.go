// Package completion completes command lines in bash, zsh and fish. [Script] is what a shell reads; it asks
// the program itself, which answers by [Line.Complete] with the commands, flags and values of its command line
// and with the names that a running process has.
//
// An answer is a line for each word that may stand at that place, with its description behind a tab, and then
// one of the lines "=files", "=directories" and "=words": whether names of files, or of directories, may stand
// there too.
package completion

import (
	"embed"
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

// kind is the thing that a value names. An argument called name names the noun of the command.
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

// A Line is a command line with an incomplete last word.
type Line struct {
	node   *kong.Node        // the command
	flag   *kong.Flag        // the flag that the last word is a value of; nil: it is no value
	given  map[string]string // values of flags, and of arguments, by their names
	args   []string          // complete arguments
	plain  bool              // after --: no flag follows
	prefix string            // the part of the last word that stays: "--flag=" before a value
	word   string            // the last word, or the part after the prefix
}

// Parse reads the words of a command line after the name of the program. The last word may be empty.
func Parse(app *kong.Application, words []string) *Line {
	l := &Line{node: app.Node, given: make(map[string]string)}
	if len(words) > 1 && words[0] == "help" { // the same as --help behind the others
		words = words[1:]
	}
	if len(words) == 0 {
		return l
	}
	last := len(words) - 1
	for _, word := range words[:last] {
		l.take(word)
	}
	l.end(words[last])
	return l
}

// Given returns the value of a flag or of an argument by its name; "": it was not written.
func (l *Line) Given(name string) string { return l.given[name] }

// Arguments returns the arguments before the last word.
func (l *Line) Arguments() []string { return l.args }

// take reads a complete word.
func (l *Line) take(word string) {
	switch {
	case l.flag != nil:
		l.given[l.flag.Name], l.flag = word, nil
	case word == "--":
		l.plain = true
	case strings.HasPrefix(word, "-") && !l.plain && len(word) > 1:
		name, value, written := strings.Cut(word, "=")
		flag := l.find(name)
		switch {
		case flag == nil || flag.IsBool() || flag.IsCounter():
		case written:
			l.given[flag.Name] = value
		default:
			l.flag = flag
		}
	default:
		l.argument(word)
	}
}

// argument reads a command or an argument.
func (l *Line) argument(word string) {
	if len(l.args) == 0 {
		for _, child := range l.node.Children {
			if child.Name == word {
				l.node = child
				return
			}
		}
	}
	if p := l.positional(); p != nil {
		l.given[p.Name] = word
	}
	l.args = append(l.args, word)
}

func (l *Line) end(word string) {
	l.word = word
	name, value, written := strings.Cut(word, "=")
	if l.flag == nil && !l.plain && written && strings.HasPrefix(name, "--") {
		l.prefix, l.word = name+"=", value
		l.flag = l.find(name)
	}
}

// commands returns the commands that may have their flags and arguments there: the command, and its default
// if none of its subcommands is named.
func (l *Line) commands() []*kong.Node {
	if l.node.DefaultCmd != nil {
		return []*kong.Node{l.node, l.node.DefaultCmd}
	}
	return []*kong.Node{l.node}
}

// flags returns the flags that may stand there.
func (l *Line) flags() (list []*kong.Flag) {
	for i, command := range l.commands() {
		if i == 0 {
			for _, group := range command.AllFlags(true) {
				list = append(list, group...)
			}
			continue
		}
		list = append(list, command.Flags...)
	}
	return list
}

// find returns the flag of a word such as --config or -o; nil: there is none.
func (l *Line) find(word string) *kong.Flag {
	for _, flag := range l.flags() {
		if word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short) {
			return flag
		}
	}
	return nil
}

// positional returns the argument that may stand there; nil: none.
func (l *Line) positional() *kong.Positional {
	commands := l.commands()
	list := commands[len(commands)-1].Positional
	switch n := len(list); {
	case n == 0:
		return nil
	case len(l.args) < n:
		return list[len(l.args)]
	case list[n-1].IsCumulative():
		return list[n-1]
	}
	return nil
}

// Shells are the shells that have a script.
var Shells = []string{"bash", "zsh", "fish"}

//go:embed scripts
var scripts embed.FS

// Script returns the script for a shell.
func Script(shell string) (string, error) {
	text, err := scripts.ReadFile("scripts/penstock." + shell)
	if err != nil {
		return "", fmt.Errorf("there is no completion for %s", shell)
	}
	return string(text), nil
}
