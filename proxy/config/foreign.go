package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// beginning is an example of how a file may begin.
const beginning = `listeners: [{name: web, bind: ":8080", upstream: app}]`

// others are lines that identify configurations of other programs, which users pass by mistake
// or in hope.
var others = []struct {
	program string
	line    *regexp.Regexp
}{
	{"HAProxy", regexp.MustCompile(`(?m)^(global|defaults|(frontend|backend|listen)\s+[^\s:{]+)\s*(#.*)?$`)},
	{"nginx", regexp.MustCompile(`(?m)^\s*(events|http|stream|server|upstream\s+\S+)\s*\{`)},
	{"Envoy", regexp.MustCompile(`(?m)^\s*"?(static_resources|dynamic_resources)"?\s*:`)},
	{"Traefik", regexp.MustCompile(`(?m)^(\[?entryPoints\]?|\[?(tcp|http)\.routers\]?)`)},
}

// foreign complains if a file belongs to another program, and reports whether it does.
func (l *loader) foreign() bool {
	text := l.src.data[:min(len(l.src.data), maxBytes)]
	for _, o := range others {
		if at := o.line.FindStringIndex(text); at != nil {
			line := 1 + strings.Count(text[:at[1]], "\n")
			l.complainAt(place{src: l.src, line: line, col: 1, width: 1}, "write YAML that begins like "+beginning, "this is a configuration of %s", o.program)
			return true
		}
	}
	return false
}

// known reports whether a file has any known key.
func known(n *yaml.Node) bool {
	for i := 0; i+1 < min(len(n.Content), maxWords); i += 2 {
		if key := target(n.Content[i]).Value; root().byKey[key] != nil || closest(key, root().keys()) != "" {
			return true
		}
	}
	return false
}

// noMapping complains of a file that is not a mapping.
func (l *loader) noMapping(n *yaml.Node) {
	fix := "write YAML that begins like " + beginning
	if n.Kind == yaml.SequenceNode {
		fix = "write listeners: or upstreams: before it, and indent it"
	}
	l.complainAt(l.src.at(n), fix, "a file is a group of keys, not %s", kindOf(n))
}
