package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

func TestFormat(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"only comments", "\n\n# a\n\n\n# b", "# a\n\n# b\n"},
		{"levels", "a:\n      b:\n       - c\n       -   d: 1\n           e:   2\n", "a:\n  b:\n    - c\n    - d: 1\n      e: 2\n"},
		{"lists are below their key", "a:\n- b\n-\n  - c\n  - d\n", "a:\n  - b\n  - - c\n    - d\n"},
		{"flows of one line stay", "a: {b:  1,c: [ 2,3 ],  d: {} ,e: []}", "a: {b: 1, c: [2, 3], d: {}, e: []}\n"},
		{"flows of several stay", "a: [1,\n2, {b: 3,\n c: 4}]\n", "a: [\n  1,\n  2,\n  {\n    b: 3,\n    c: 4\n  }\n]\n"},
		{"quotes stay", "a: 'it''s # no'\nb: \"\\u00e9\\\"\" \n\"c\": d\n", "a: 'it''s # no'\nb: \"\\u00e9\\\"\"\n\"c\": d\n"},
		{"blank lines", "\n\na: 1\n\n\n\nb: 2\n\n\n", "a: 1\n\nb: 2\n"},
		{"comments", "a:    #  x  \n  # before b\n  b: 1 #y\n  # after b\n# before c\n\nc: 2\n  # the end\n", "a:    #  x\n  # before b\n  b: 1 #y\n  # after b\n# before c\n\nc: 2\n# the end\n"},
		{"comments below each other", "a:   1      # x\nbcd: [2,3] # y\ne: 4# no\nf:  \"äöü\"  # z\n", "a: 1        # x\nbcd: [2, 3] # y\ne: 4# no\nf: \"äöü\"   # z\n"},
		{"comments in lists", "a:\n# one\n- b # two\n   # three\n- # four\n  c: 1\n", "a:\n  # one\n  - b # two\n  # three\n  # four\n  - c: 1\n"},
		{"comments in flows", "a: [ # one\n 1, # two\n # three\n 2 ] # four\n", "a: [ # one\n  1, # two\n  # three\n  2\n]    # four\n"},
		{"hashes that are none", "a: b#c\nd: 'x # y'\ne: [\"#\", x#]\n", "a: b#c\nd: 'x # y'\ne: [\"#\", x#]\n"},
		{"blocks of lines", "a:\n    b: |- # c\n        x # no\n\n          y\n    d: >+\n     z\n\n\ne: 1\n", "a:\n  b: |-   # c\n    x # no\n\n      y\n  d: >+\n    z\n\n\ne: 1\n"},
		{"text of several lines", "a: b\n   c\nd: \"e\n  f\"\n", "a: b c\nd: \"e f\"\n"},
		{"anchors", "x-a:   &a\n   b: 1\nc:\n - &d  {e: 1}\n - *d\n - <<:   *a\n - &g\n   h: 1\nf: !!str  5\n", "x-a: &a\n  b: 1\nc:\n  - &d {e: 1}\n  - *d\n  - <<: *a\n  - &g\n    h: 1\nf: !!str 5\n"},
		{"anchors and tags with quotes", "&\"a !b'  \"c  d\": &'e  'f '\n", "&\"a !b' \"c  d\": &'e 'f '\n"},
		{"quotes on the line behind an anchor", "name: &a\n  \"x # y\"\nb: 'c'\n", "name: &a \"x # y\"\nb: 'c'\n"},
		{"nothing as a value", "a:\nb:   ~\nc: {d: , e: 1}\n", "a:\nb: ~\nc: {d:, e: 1}\n"},
		{"documents", "---\na: 1 # b\n...\n", "a: 1 # b\n"},
		{"other ends of lines", "\ufeffa:   1\r\n# b\r\nc:\r\n- d\r\n", "a: 1\n# b\nc:\n  - d\n"},
		{"JSON", "{\"a\":[1,2],\n\"b\":{\"c\":null}}", "{\n  \"a\": [1, 2],\n  \"b\": {\"c\": null}\n}\n"},
	} {
		got, p := config.FormatText(c.text)
		if p != nil || got != c.want {
			t.Errorf("%s: %v\n got %q\nwant %q", c.name, p, got, c.want)
			continue
		}
		if again, p := config.FormatText(got); p != nil || again != got {
			t.Errorf("%s: formatted again: %v\n%q", c.name, p, again)
		}
	}
}

func TestFormatTellsProblems(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	if _, _, problems := config.Format(path); len(problems) != 1 || !strings.Contains(problems[0].String(), "cannot be read: no such file or directory") {
		t.Errorf("%v", problems)
	}
	if err := os.WriteFile(path, []byte("a: [1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, formatted, problems := config.Format(path); len(problems) != 1 || formatted != nil || string(text) != "a: [1" {
		t.Errorf("%v", problems)
	}
	// Text that cannot be preserved is refused and not lost.
	if got, p := config.FormatText("? {a: b}\n: c\n"); p == nil {
		t.Errorf("%q", got)
	}
}

// FuzzFormat: formatted text has the same values and comments, and does not change if
// formatted again.
func FuzzFormat(f *testing.F) {
	f.Add("# a\nb: [1, # c\n {d: 'e'}]\n\nf: |\n  g\n")
	f.Add(smallest)
	f.Add("a: &b\n  - c: \"d\n    e\"\n  - *b\n")
	f.Add("&\"d  -b\n\nG")
	f.Add("a: &b\n  \"x # y\"\n")
	f.Add("a: &b # c\n  'x # y'\n")
	f.Add("- - >+2\n    a\n\n# b\n- {c: , d}\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, p := config.FormatText(text)
		if p != nil {
			return
		}
		if !config.Parses(got) {
			t.Fatalf("%q becomes %q, which is no YAML", text, got)
		}
		if again, p := config.FormatText(got); p != nil || again != got {
			t.Fatalf("%q becomes %q, and that %q, %v", text, got, again, p)
		}
	})
}
