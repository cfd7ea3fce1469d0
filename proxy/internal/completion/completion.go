// Package completion completes command lines in bash, zsh and fish. [Script] is what a shell reads. It asks the program
// itself, which answers by [Line.Complete] with the commands, flags and values of its command line, and with the names
// in a running process.
//
// An answer has a line for each possible word, with its description after a tab. Its last line, "=files", "=directories"
// or "=words", says whether names of files or directories are possible too.
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

// Names returns names of a running process by their kind: "listener"; "upstream"; "endpoint", of the upstream on the
// line if there is one; "split", the beginnings of its parts; or "denial", the denied sources. It returns none if they
// are unknown.
type Names func(l *Line, kind string) []string

// An answer has the words that may stand at the end of a line, and the kind of other words that may stand there.
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
	fmt.Fprintf(&b, "=%s\n", a.kind) // no name has this form, and no other word begins with =
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

// add adds a word if it begins like the last word.
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

// summary returns the beginning of a help text, which fits beside the word.
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

// kinds are the kinds of names in a process, by the names of flags and arguments, or by their tag names.
var kinds = []string{"listener", "upstream", "endpoint", "split", "denial"}

// kind returns the kind of thing that a value names. An argument called name names the noun of the command.
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

// valuesOf returns the values of a flag or argument with few values, from its tag enum, or from values if the process
// decides about them.
func valuesOf(v *kong.Value) []string {
	list := strings.FieldsFunc(v.Tag.Get("values"), func(r rune) bool { return r == ',' })
	if v.Enum != "" {
		list = v.EnumSlice()
	}
	return slices.DeleteFunc(list, func(value string) bool { return value == "" }) // it stands for no value
}

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

// typed matches the names that a shell takes as they are and that are no flags. Other names are not offered, so that no
// name is a command.
var typed = regexp.MustCompile(`^[A-Za-z0-9_./%+@\[\]][A-Za-z0-9_./:%+@\[\]=-]*$`)

// A Line is a command line with an incomplete last word.
type Line struct {
	node   *kong.Node        // the command
	flag   *kong.Flag        // the flag with the last word as its value, or nil
	given  map[string]string // values of flags, and of arguments, by their names
	args   []string          // complete arguments
	plain  bool              // after --: no flag follows
	prefix string            // the part of the last word before a value: "--flag="
	word   string            // the last word, or the part after the prefix
}

// Parse reads the words of a command line after the name of the program. The last word may be empty.
func Parse(app *kong.Application, words []string) *Line {
	l := &Line{node: app.Node, given: make(map[string]string)}
	if len(words) > 1 && words[0] == "help" { // the same as --help after the other words
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

// Given returns the value of a flag or argument by its name, or "" if it was not written.
func (l *Line) Given(name string) string { return l.given[name] }

// Arguments returns the arguments before the last word.
func (l *Line) Arguments() []string { return l.args }

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

// commands returns the commands that may have their flags and arguments here: the command, and its default subcommand
// if none is named.
func (l *Line) commands() []*kong.Node {
	if l.node.DefaultCmd != nil {
		return []*kong.Node{l.node, l.node.DefaultCmd}
	}
	return []*kong.Node{l.node}
}

// flags returns the flags that may stand here.
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

// find returns the flag for a word such as --config or -o, or nil.
func (l *Line) find(word string) *kong.Flag {
	for _, flag := range l.flags() {
		if word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short) {
			return flag
		}
	}
	return nil
}

// positional returns the argument that may stand here, or nil.
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
