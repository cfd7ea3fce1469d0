package completion

import (
	"strings"

	"github.com/alecthomas/kong"
)

// A Line is a command line of which the last word is not complete.
type Line struct {
	node   *kong.Node        // the command
	flag   *kong.Flag        // whose value the last word is; nil: it is no value
	given  map[string]string // values of flags, and of arguments, by their names
	args   []string          // that are complete
	plain  bool              // after --: no flag follows
	prefix string            // of the last word that stays: "--flag=" before a value
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

// end reads the last word.
func (l *Line) end(word string) {
	l.word = word
	name, value, written := strings.Cut(word, "=")
	if l.flag == nil && !l.plain && written && strings.HasPrefix(name, "--") {
		l.prefix, l.word = name+"=", value
		l.flag = l.find(name)
	}
}

// commands are those whose flags and arguments may stand there: the command, and the one that stands for it
// if none of its own is named.
func (l *Line) commands() []*kong.Node {
	if l.node.DefaultCmd != nil {
		return []*kong.Node{l.node, l.node.DefaultCmd}
	}
	return []*kong.Node{l.node}
}

// flags are those that may stand there.
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
