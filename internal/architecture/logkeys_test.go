package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// logKey is a key of a log line as it may be.
var logKey = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)

// TestLogKeys: the program's log lines have the keys that docs/session-log.md lists, or the fields of the session log, and no
// others: one thing has one key.
func TestLogKeys(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../docs/session-log.md"))(t)
	_, fields, _ := strings.Cut(string(page), "\n## Fields\n")
	fields, _, _ = strings.Cut(fields, "\n## ")
	_, keys, ok := strings.Cut(string(page), "\n## The program's own log\n")
	if !ok {
		t.Fatal("docs/session-log.md has no section on the program's own log")
	}
	keys, _, _ = strings.Cut(keys, "\n## ")
	listed, known := make(map[string]bool), make(map[string]bool)
	for _, key := range firstCells(keys) {
		listed[key], known[key] = true, true
	}
	for _, key := range firstCells(fields) {
		known[key] = true
	}
	used, written := make(map[string]bool), make(map[string]bool)
	for _, dir := range []string{"../../proxy", "../../lane"} {
		must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testutil" || d.Name() == "test"):
				return fs.SkipDir
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					written[strings.Trim(lit.Value, "\"`")] = true
				}
				return true
			})
			for _, key := range logKeys(file) {
				if used[key] = true; !known[key] {
					t.Errorf("%s logs %s=, which docs/session-log.md does not list", path, key)
				}
			}
			return nil
		}))
	}
	for key := range listed {
		if !written[key] {
			t.Errorf("docs/session-log.md lists %s, which nothing logs", key)
		}
	}
	for _, key := range []string{"upstream", "endpoint", "endpoint_address", "listener", "client", "error", "cause", "by"} {
		if !used[key] {
			t.Errorf("no line with %s= was found: the search is wrong", key)
		}
	}
}

// firstCells returns the names in the first cells of a page's tables.
func firstCells(text string) (names []string) {
	for _, row := range regexp.MustCompile(`(?m)^\|([^|]+)\|`).FindAllStringSubmatch(text, -1) {
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// logKeys returns the keys of a file's log lines: of calls with a message, of loggers' With, and of lists of attributes.
func logKeys(file *ast.File) (keys []string) {
	add := func(pairs []ast.Expr) {
		for i := 0; i < len(pairs); i += 2 {
			lit, ok := pairs[i].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return // not a key, or one that a list has
			}
			if key, err := strconv.Unquote(lit.Value); err == nil {
				keys = append(keys, key)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "append" && len(n.Args) > 2 && len(n.Args)%2 == 1 && isAttrs(n.Args[0]) {
				add(n.Args[1:])
			}
			of, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			from := map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "Log": 3, "With": 0}
			if at, ok := from[of.Sel.Name]; ok && isLogger(of.X) && len(n.Args) > at {
				add(n.Args[at:])
			}
		case *ast.CompositeLit:
			list, ok := n.Type.(*ast.ArrayType)
			if !ok {
				break
			}
			if of, ok := list.Elt.(*ast.Ident); ok && of.Name == "any" && len(n.Elts)%2 == 0 && looksLikeKeys(n.Elts) {
				add(n.Elts)
			}
		}
		return true
	})
	return keys
}

// isLogger reports whether an expression is a logger, by its name.
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.Contains(strings.ToLower(x.Name), "log")
	case *ast.SelectorExpr:
		return strings.Contains(strings.ToLower(x.Sel.Name), "log")
	case *ast.CallExpr:
		return isLogger(x.Fun)
	}
	return false
}

// isAttrs reports whether an expression is a list of attributes: by its name, or by its content.
func isAttrs(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return slices.Contains([]string{"attrs", "until"}, x.Name)
	case *ast.CompositeLit:
		return looksLikeKeys(x.Elts)
	case *ast.CallExpr:
		of, ok := x.Fun.(*ast.SelectorExpr)
		return ok && of.Sel.Name == "waitedFor"
	}
	return false
}

// looksLikeKeys reports whether every second element of a list could be a key.
func looksLikeKeys(list []ast.Expr) bool {
	for i := 0; i < len(list); i += 2 {
		lit, ok := list[i].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || !logKey.MatchString(strings.Trim(lit.Value, `"`)) {
			return false
		}
	}
	return len(list) > 0
}
