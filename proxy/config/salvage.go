package config

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// asked matches the first line of a section that has the address of the admin API, or that
// names other files that may have it.
var asked = regexp.MustCompile(`^["']?(admin|include)["']?[ \t]*:\s`)

// salvage reads the admin and include sections of l.src if the file as a whole is not YAML. It
// reads those that are valid YAML by themselves and occur once. It reports whether it has read
// any.
//
// A line within unclosed quotes begins no section, nor does a line of a file in braces. So an
// admin address is used only if the file clearly gives it.
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

// only returns a copy of the file with every line empty except those of the sections in keys.
// It returns false if there are none, if one occurs twice, or if one may be text.
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

// beginsSection reports whether a line ends the section before it. Brackets and list items
// continue that section.
func beginsSection(line string) bool {
	return !strings.ContainsAny(line[:1], " \t\r\n#]}-,")
}

// inQuotes reports whether a text ends within quotes, according to YAML.
func inQuotes(text string) bool {
	_, problem := (&source{data: text}).parse()
	return problem != nil && strings.Contains(problem.Message, "quoted scalar")
}
