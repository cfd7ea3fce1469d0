package manual

import (
	"fmt"
	"strings"
)

// A roff is a man page that is being written.
type roff struct{ strings.Builder }

// escape escapes a text for the middle of a line.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}

// words escapes a text of which the hyphens between words may be broken at.
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

// text writes paragraphs, which empty lines separate. Those that are indented are kept as they are.
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
