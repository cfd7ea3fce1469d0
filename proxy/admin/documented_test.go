package admin

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestKindsAreDocumented: docs/reload.md has each kind of problem, and no other one.
func TestKindsAreDocumented(t *testing.T) {
	read := func(path string) (text string) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	found := func(pattern, text string) (words []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			words = append(words, m[1])
		}
		return words
	}
	source := read("problem.go") + read("problem_upstream.go") + read("problem_denials.go")
	want := append(found(`f\.add\([a-z]+, [^"]*"([a-z_]+)"`, source), found(`"(endpoint_[a-z]+)"`, source)...)
	var got []string
	for _, cells := range found("(?m)^\\| (`[^|]+) \\| (?:outage|warning)", read("../../docs/reload.md")) {
		got = append(got, found("`([a-z_]+)`", cells)...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if got, want := slices.Compact(got), slices.Compact(want); !slices.Equal(got, want) || len(want) < 20 {
		t.Errorf("the page has %q, want %q", got, want)
	}
}
