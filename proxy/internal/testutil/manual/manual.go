// Package manual writes man pages from a command line: one for the program, and one for each command with its
// subcommands. They are man(7), for groff and mandoc.
package manual

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// A Section is a part of the program's page that the command line does not have: text as in a help text.
type Section struct{ Title, Text string }

// Pages returns the pages by the names of their files. The sections end the page of the program.
func Pages(app *kong.Application, sections ...Section) map[string]string {
	pages := map[string]string{app.Name + ".1": programPage(app, sections)}
	for _, command := range app.Children {
		if !command.Hidden {
			pages[pageName(command)+".1"] = commandPage(command)
		}
	}
	return pages
}

// pageName is the name of a command's page, as git has it: penstock-run.
func pageName(command *kong.Node) string { return command.Parent.Name + "-" + command.Name }

// begin writes the head of a page. It has no date: pages are the same whenever they are written.
func (r *roff) begin(name, program, summary string) {
	r.WriteString(`.\" Written from the command line by .ci/run generate.` + "\n")
	r.macro("TH", strings.ToUpper(name), "1", "", program, program+" manual")
	r.macro("SH", "NAME")
	r.line(escape(name) + ` \- ` + words(strings.TrimSuffix(summary, ".")))
}

func programPage(app *kong.Application, sections []Section) string {
	r := new(roff)
	summary, rest, _ := strings.Cut(app.Help, "\n")
	r.begin(app.Name, app.Name, lower(summary))
	r.macro("SH", "SYNOPSIS")
	r.line(bold(app.Name) + " " + italic("command") + " [" + italic("flags") + "]")
	r.macro("SH", "DESCRIPTION")
	r.text(rest)
	r.macro("SH", "COMMANDS")
	var see []string
	for _, command := range app.Children {
		if command.Hidden {
			continue
		}
		r.macro("TP")
		r.line(bold(command.Name))
		r.line(words(command.Help))
		see = append(see, bold(pageName(command))+"(1)")
	}
	for _, s := range sections {
		r.macro("SH", strings.ToUpper(s.Title))
		r.text(s.Text)
	}
	r.macro("SH", "SEE ALSO")
	r.line(strings.Join(see, ", "))
	return r.String()
}

// lower begins a sentence as a part of another one.
func lower(text string) string {
	if second := text[min(1, len(text)):]; second == "" || second[:1] != strings.ToLower(second[:1]) {
		return text // an abbreviation
	}
	return strings.ToLower(text[:1]) + text[1:]
}

func commandPage(command *kong.Node) string {
	r := new(roff)
	r.begin(pageName(command), command.Parent.Name, lower(firstSentence(command.Help)))
	r.macro("SH", "SYNOPSIS")
	for i, one := range shown(command) {
		if i > 0 {
			r.macro("br")
		}
		r.line(synopsis(one))
	}
	r.macro("SH", "DESCRIPTION")
	r.text(command.Help + "\n\n" + command.Detail)
	r.values(command, "SH")
	for _, child := range command.Children {
		if child.Hidden {
			continue
		}
		r.macro("SH", escape(strings.ToUpper(child.Name)))
		r.text(child.Help + "\n\n" + child.Detail)
		r.values(child, "SS")
	}
	r.macro("SH", "SEE ALSO")
	r.line(bold(command.Parent.Name) + "(1)")
	return r.String()
}

// shown are the commands of a page that can be run.
func shown(command *kong.Node) []*kong.Node {
	if command.Leaf() {
		return []*kong.Node{command}
	}
	var list []*kong.Node
	for _, child := range command.Children {
		if !child.Hidden {
			list = append(list, shown(child)...)
		}
	}
	return list
}

func firstSentence(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	return strings.ReplaceAll(first, "\n", " ")
}

// synopsis is how a command is written.
func synopsis(command *kong.Node) string {
	path := command.Name
	standsFor := command.Parent != nil && command.Parent.DefaultCmd == command
	if standsFor {
		path = "[" + path + "]"
	}
	for n := command.Parent; n != nil; n = n.Parent {
		path = n.Name + " " + path
	}
	text := bold(path)
	optional := false
	for _, f := range command.Flags {
		switch {
		case f.Hidden || f.Name == "help":
		case f.Required:
			text += " " + bold("--"+f.Name) + "=" + italic(f.FormatPlaceHolder())
		default:
			optional = true
		}
	}
	if optional {
		text += " [" + italic("flags") + "]"
	}
	for _, p := range command.Positional {
		text += " " + argument(p)
	}
	return text
}

// argument is how an argument is written.
func argument(p *kong.Positional) string {
	text := italic(p.Name)
	if p.Tag.PlaceHolder != "" {
		text = italic(p.Tag.PlaceHolder)
	}
	if p.IsCumulative() {
		text += " ..."
	}
	if !p.Required {
		text = "[" + text + "]"
	}
	return text
}

// A roff is a man page that is being written.
type roff struct{ strings.Builder }

// escape escapes a text for the middle of a line.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}

// words escapes a text. A line may be broken at the hyphens between its words.
func words(text string) string {
	var list []string
	for word := range strings.FieldsSeq(text) {
		if strings.HasPrefix(word, "-") || strings.Contains(word, "--") {
			list = append(list, escape(word))
			continue
		}
		list = append(list, strings.ReplaceAll(escape(word), `\-`, "-"))
	}
	return strings.Join(list, " ")
}

// macro writes a request with arguments.
func (r *roff) macro(name string, args ...string) {
	r.WriteString("." + name)
	for _, arg := range args {
		fmt.Fprintf(r, " \"%s\"", strings.ReplaceAll(arg, `"`, `\(dq`))
	}
	r.WriteString("\n")
}

// width is the most bytes of a line of text.
const width = 80

// line writes a text, in lines that break at its spaces.
func (r *roff) line(text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			r.whole(line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	r.whole(line)
}

// whole writes a line as it is. It is no request even if it begins as one.
func (r *roff) whole(line string) {
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	r.WriteString(line + "\n")
}

// text writes paragraphs, which empty lines separate. Indented paragraphs are kept as they are.
func (r *roff) text(text string) {
	first := true
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if strings.HasPrefix(paragraph, "    ") {
			r.example(paragraph)
			continue
		}
		if !first {
			r.macro("PP")
		}
		first = false
		r.line(words(paragraph))
	}
}

// example writes lines as they are.
func (r *roff) example(lines string) {
	r.macro("PP")
	r.macro("RS 4")
	r.macro("nf")
	for line := range strings.SplitSeq(lines, "\n") {
		r.whole(escape(strings.TrimPrefix(line, "    ")))
	}
	r.macro("fi")
	r.macro("RE")
}

func bold(text string) string   { return `\fB` + escape(text) + `\fR` }
func italic(text string) string { return `\fI` + escape(text) + `\fR` }

// values writes the arguments and the flags of a command, as sections or as parts of one.
func (r *roff) values(command *kong.Node, section string) {
	if len(command.Positional) > 0 {
		r.macro(section, "ARGUMENTS")
	}
	for _, p := range command.Positional {
		r.macro("TP")
		r.line(argument(p))
		r.line(words(p.Help))
	}
	first := true
	own, common := []*kong.Flag{}, []*kong.Flag{} // of a group
	for _, f := range command.Flags {
		if f.Group == nil {
			own = append(own, f)
		} else {
			common = append(common, f)
		}
	}
	for _, f := range append(own, common...) {
		if f.Hidden || f.Name == "help" {
			continue
		}
		if first {
			r.macro(section, "OPTIONS")
			first = false
		}
		r.macro("TP")
		r.line(flag(f))
		r.line(words(f.Help))
	}
}

// flag is how a flag is written.
func flag(f *kong.Flag) string {
	text := bold("--" + f.Name)
	switch {
	case f.Tag.Negatable != "":
		text = bold("--[no-]" + f.Name)
	case f.Enum != "" && f.PlaceHolder == "":
		text += "=" + italic(strings.Join(f.EnumSlice(), "|"))
	case !f.IsBool() && !f.IsCounter():
		text += "=" + italic(f.FormatPlaceHolder())
	}
	if f.Short != 0 {
		text = bold("-"+string(f.Short)) + ", " + text
	}
	return text
}
