package config

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// asked finds the line of a section that says where a process is asked, or in which other files
// that may be.
var asked = regexp.MustCompile(`^["']?(admin|include)["']?[ \t]*:\s`)

// salvage reads of l.src, which is no YAML as a whole, the sections that say where its process
// is asked: those that are YAML by themselves, and are there once. It reports whether it has
// read any.
//
// A line within quotes that are not closed begins no section, nor does one of a file in braces:
// nobody is asked at an address that the file does not clearly say.
func (l *loader) salvage() bool {
	for _, keys := range [][]string{{"admin", "include"}, {"admin"}} {
		kept, found := l.src.only(keys)
		if !found {
			continue
		}
		if n, problem := kept.parse(); problem == nil && n != nil && n.Kind == yaml.MappingNode {
			l.sections(n)
			return true
		}
	}
	return false
}

// only returns a file in which all lines are empty but for those of some of the sections that
// asked finds; false if there are none, or one is there twice, or may be text.
func (s *source) only(keys []string) (kept *source, found bool) {
	var b strings.Builder
	seen := make(map[string]bool)
	within, at := false, 0
	for line := range strings.Lines(s.data) {
		if m := asked.FindStringSubmatch(line); m != nil && slices.Contains(keys, m[1]) {
			if seen[m[1]] || inQuotes(s.data[:at]) {
				return nil, false
			}
			within, seen[m[1]] = true, true
		} else if beginsSection(line) {
			within = false
		}
		if line[0] == '{' {
			return nil, false
		}
		if within {
			b.WriteString(strings.TrimRight(line, "\r\n"))
		}
		b.WriteByte('\n')
		at += len(line)
	}
	return &source{name: s.name, dir: s.dir, data: b.String()}, len(seen) > 0
}

// beginsSection reports whether a line ends the section before it. Brackets and items of lists
// go on with it.
func beginsSection(line string) bool {
	return !strings.ContainsAny(line[:1], " \t\r\n#]}-,")
}

// inQuotes reports whether a text ends within quotes, to YAML.
func inQuotes(text string) bool {
	_, problem := (&source{data: text}).parse()
	return problem != nil && strings.Contains(problem.Message, "quoted scalar")
}
