package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// whatPerThousand is how many of 1,000 words of a package's comments may be "what": a noun names
// the thing, "what" describes it.
const whatPerThousand = 2

// fewWords is from how many "what" on a package of few words is judged.
const fewWords = 2

// avoided are words for persons, and for speech, that comments use of things.
var avoided = regexp.MustCompile(`(?i)\b(tell|tells|told|telling|somebody|nobody|anybody|everybody|whom|whoever)\b`)

// quoted is code in a comment, links to identifiers included.
var quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|\\[[^\\]]*\\]")

// TestCommentStyle holds the style of comments: nouns in place of "what", and things that do not
// speak. Names in code are not comments, so a doc comment may begin with one.
func TestCommentStyle(t *testing.T) {
	for _, dir := range goDirectories(t) {
		words, whats := 0, 0
		for _, c := range commentsOf(t, dir) {
			text := quoted.ReplaceAllString(c.text, "")
			fields := strings.Fields(strings.ToLower(text))
			words += len(fields)
			for _, w := range fields {
				if strings.Trim(w, ".,;:()") == "what" {
					whats++
				}
			}
			for _, w := range avoided.FindAllString(text, -1) {
				if !c.isName(w) {
					t.Errorf("%s: %q in a comment: write log, report or return; no client, another goroutine", c.pos, w)
				}
			}
		}
		if whats > fewWords && whats*1000 > whatPerThousand*words {
			t.Errorf("%s: %d of %d words of comments are \"what\": name the thing", dir, whats, words)
		}
	}
}

// A comment is a group of comments, and the name of the declaration that it belongs to.
type comment struct {
	pos, text string
	names     map[string]bool // of the package's declarations
}

// isName reports whether a word is a name of the package.
func (c *comment) isName(w string) bool { return c.names[w] }

// goDirectories returns the directories of the tree with Go files.
func goDirectories(t *testing.T) (list []string) {
	t.Helper()
	seen := make(map[string]bool)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "tools"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !seen[filepath.Dir(path)]:
			seen[filepath.Dir(path)] = true
			list = append(list, filepath.Dir(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// commentsOf returns the comments of a directory's Go files, but for tests and directives.
func commentsOf(t *testing.T, dir string) (list []comment) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range declared(f) {
			names[n] = true
		}
		for _, g := range f.Comments {
			list = append(list, comment{pos: fset.Position(g.Pos()).String(), text: g.Text(), names: names})
		}
	}
	return list
}

// declared returns the names of a file: of functions, types, fields, parameters and variables.
func declared(f *ast.File) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
		return true
	})
	return names
}
