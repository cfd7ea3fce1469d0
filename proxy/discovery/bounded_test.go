package discovery_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/proxy/discovery"
)

// mostMemory is the memory that reading a file of endpoints may take, whatever its content.
const mostMemory = 64 << 20

// written is a file with a text.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "endpoints")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// each returns n texts.
func each(n int, text func(i int) string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = text(i)
	}
	return list
}

// styles are the ways to write n endpoints, each with all of its keys.
func styles(n int) map[string]string {
	const all = `address: "[2001:db8:1:2:3:4:5:%x]:5432", name: endpoint-%[1]d, weight: 200, backup: true, zone: eu-west-1a, connections: 1000`
	quoted := func(i int) string {
		return fmt.Sprintf(`{"address": "[2001:db8:1:2:3:4:5:%x]:5432", "name": "endpoint-%[1]d", "weight": 200, "backup": true, "zone": "eu-west-1a", "connections": 1000}`, i)
	}
	return map[string]string{
		"JSON":           "[" + strings.Join(each(n, quoted), ",") + "]",
		"JSON in lines":  "[\n  " + strings.Join(each(n, func(i int) string { return strings.ReplaceAll(quoted(i), ", ", ",\n    ") }), ",\n  ") + "\n]\n",
		"groups of keys": strings.Join(each(n, func(i int) string { return fmt.Sprintf("- {"+all+"}\n", i) }), ""),
		"comments in each": strings.Join(each(n, func(i int) string {
			return strings.ReplaceAll(fmt.Sprintf("- "+all+"\n", i), ", ", "\n  # "+strings.Repeat("a comment ", 10)+"\n  ")
		}), ""),
		"keys in lines": strings.Join(each(n, func(i int) string {
			return strings.ReplaceAll(fmt.Sprintf("- "+all+"\n", i), ", ", "\n  ")
		}), "# the next one\n\n"),
	}
}

// TestTenThousand endpoints take less than 64 MB in any style. One more is refused.
func TestTenThousand(t *testing.T) {
	var want []discovery.Endpoint
	for name, text := range styles(discovery.MaxEndpoints) {
		path := written(t, text)
		var found []discovery.Endpoint
		var err error
		most, all := heap.Taken(func() { found, err = discovery.ReadFile(path) })
		t.Logf("%s: %d KiB take %d KiB, %d KiB one after the other", name, len(text)>>10, most>>10, all>>10)
		if most > mostMemory || len(text) < 2<<20 && all > mostMemory {
			t.Errorf("%s: it takes %d MiB, %d MiB one after the other", name, most>>20, all>>20)
		}
		if want == nil {
			want = found
		}
		if err != nil || len(found) != discovery.MaxEndpoints || !slices.Equal(found, want) {
			t.Errorf("%s: %d endpoints, %v", name, len(found), err)
		}
	}
	for name, text := range styles(discovery.MaxEndpoints + 1) {
		if _, err := discovery.Parse("eps", []byte(text)); err == nil || !strings.Contains(err.Error(), "there are more than 10000 endpoints: write fewer") {
			t.Errorf("%s: one more: %v", name, err)
		}
	}
}

// bombs are files of some megabytes without useful content.
func bombs() map[string]string {
	const size = 5 << 20
	many := func(text string) string { return strings.Repeat(text, size/len(text)) }
	laughs := "- &a0 [lol]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("- &a%d [%s]\n", i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return map[string]string{
		"empty lists":       "[" + many("[],") + "[]]",
		"empty groups":      "[" + many("{},") + "{}]",
		"one in the other":  many("["),
		"and closed":        strings.Repeat("[", size/2) + strings.Repeat("]", size/2),
		"deep groups":       many("{a: "),
		"dashes":            many("- "),
		"dashes in lines":   many("-\n"),
		"an empty one each": many("- []\n"),
		"words":             "[" + many("a,") + "a]",
		"pairs":             "[" + many("a: 1, ") + "]",
		"keys":              "{" + many("a: 1, ") + "}",
		"lines of keys":     many("a: 1\n"),
		"a list of lists":   "[[" + many("[],") + "[]]]",
		"in one endpoint":   "- {address: 'a:1', zone: [" + many("[],") + "[]]}\n",
		"a list in each":    strings.Repeat("- [[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]\n", 9000),
		"groups in each":    "[" + strings.TrimSuffix(strings.Repeat("{\"a\":[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]},", 9000), ",") + "]",
		"long lists":        strings.Repeat("- ["+strings.Repeat("[],", 1300)+"]\n", 1500),
		"long groups":       strings.Repeat("- {"+strings.Repeat("a: 1,", 800)+"}\n", 1500),
		"lists in each":     many("- [[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]\n"),
		"a long name":       "- {address: 'a:1', name: " + many("x") + "}\n",
		"lines of one text": "- >\n" + many("  abc\n"),
		"an open quote":     "- \"" + many("abc\n"),
		"comments":          many("# a\n"),
		"documents":         many("---\n"),
		"anchors":           "[" + many("&a ") + "]",
		"anchors in lines":  many("- &a\n"),
		"tags":              many("- !!str\n"),
		"bytes of no text":  many("\x00"),
		"bytes":             many("- \xff\n"),
		"lines":             many("\n"),
		"colons":            many(":"),
		"questions":         many("? "),
		"laughs":            laughs + many("- *a12\n"),
		"a large file":      "- a:1\n" + strings.Repeat("# a\n", 20<<18),
	}
}

// TestBombs: none of them is accepted, and refusing one takes at most 64 MB.
func TestBombs(t *testing.T) {
	for name, text := range bombs() {
		path := written(t, text)
		var err error
		most, all := heap.Taken(func() { _, err = discovery.ReadFile(path) })
		t.Logf("%s: %d KiB, %d KiB one after the other", name, most>>10, all>>10)
		if most > mostMemory {
			t.Errorf("%s: it takes %d MiB", name, most>>20)
		}
		if err == nil {
			t.Errorf("%s: it is taken", name)
			continue
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if len(line) > 1000 {
				t.Errorf("%s: a problem of %d bytes: %.200q", name, len(line), line)
			}
		}
	}
}

// TestPlacesInPieces: an error is reported with its position in the whole file.
func TestPlacesInPieces(t *testing.T) {
	for name, text := range styles(1000) {
		word := "endpoint-777"
		if strings.HasPrefix(name, "JSON") {
			word = `"endpoint-777"`
		}
		before := strings.Index(text, word)
		text = strings.Replace(text, word, "5", 1)
		line, col := 1+strings.Count(text[:before], "\n"), before-strings.LastIndexByte(text[:before], '\n')
		_, err := discovery.Parse("eps", []byte(text))
		if want := fmt.Sprintf("eps:%d:%d: write text in quotes", line, col); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	long := strings.Repeat("- a:1\n", 2000)
	for text, want := range map[string]string{
		long:                                   "eps:2:3: endpoint \"a:1\" is in line 1 already",
		strings.Repeat("- x:1\n", 10) + "x: 1": "eps:11:1:",
		"[" + strings.Repeat(" ", 5000) + "'a:1']":               "eps:1:5002: a list in brackets of more than 4096 bytes is read as JSON, and here it is none",
		"[" + strings.Repeat(" ", 5000) + "\"a:1\",\n\n]":        "eps:3:1: a list in brackets of more",
		"[" + strings.Repeat(" ", 5000) + "\"a:1\"":              "eps:1:5007: a list in brackets of more",
		"[" + strings.Repeat(" ", 5000) + "\"a:1\"]\n# a\n- b:1": "eps:3:1: write one document",
		strings.Repeat("# a\n", 2000) + "a: 1":                   "eps:2001:1: write a list of endpoints",
		"- b:1\n" + strings.Repeat(" ", 5000) + "x\n":            "eps:1:1: an endpoint of more than 4096 bytes",
	} {
		if _, err := discovery.Parse("eps", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}

// FuzzPieces: a file read in pieces gives the same result as one read as a whole.
func FuzzPieces(f *testing.F) {
	for name, text := range styles(3) {
		f.Add([]byte(text), uint8(len(name)))
	}
	for _, seed := range []string{
		"- a:1\n# b\n- b:1\n", "  - a:1\n  - b:1", "[\"a:1\", \"b:1\"]", "\ufeff- a:1\n- b:1\n", "---\n- a:1\n- b:1\n", "- a:1\n...\n- b:1\n",
		"- \"a\n- b\"\n", "- 'a\n  # b'\n- c:1", "- >-\n  a:1\n  # b\n- c:1", "- a:1 # [\n- b:1\n", "- {address: a:1, # ,\n  weight: 2}\n- b:1", "[\"a:1\" # ,\n,\"b:1\"]", "-\n  a:1\n-\n  b:1",
	} {
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, most uint8) {
		if len(data) > 4<<10 {
			return
		}
		inPieces, err := discovery.ParseIn(int(most), "f", data)
		if err != nil {
			return
		}
		whole, err := discovery.ParseIn(len(data), "f", data)
		if err != nil || !slices.Equal(inPieces, whole) {
			t.Errorf("%q: in pieces %v, whole %v, %v", data, inPieces, whole, err)
		}
	})
}
