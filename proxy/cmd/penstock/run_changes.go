package main

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock/proxy/config"
)

// summary formats the number of changes: 1 listener changed, 2 endpoints added, 1 removed.
func summary(changes []config.Change) string {
	counts := map[config.Kind]map[config.Action]int{}
	for _, c := range changes {
		if counts[c.Kind] == nil {
			counts[c.Kind] = map[config.Action]int{}
		}
		counts[c.Kind][c.Action]++
	}
	var parts []string
	for _, kind := range config.Kinds() {
		name := true // the name of the kind is not written yet
		for _, action := range [...]config.Action{config.Added, config.Removed, config.Changed} {
			n := counts[kind][action]
			switch {
			case n == 0:
				continue
			case kind.Single():
				parts = append(parts, fmt.Sprintf("%s %s", kind, action))
			case name:
				parts = append(parts, fmt.Sprintf("%s %s", count(n, string(kind)), action))
			default:
				parts = append(parts, fmt.Sprintf("%d %s", n, action))
			}
			name = false
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
