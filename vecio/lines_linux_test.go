package vecio_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// functionLines returns for "file function" the first and the last line of each
// function of that name.
func functionLines(t *testing.T, pkg string) map[string][][2]int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
	must(t, err)
	lines := make(map[string][][2]int)
	for _, path := range names {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, 0)
		must(t, err)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				key := filepath.Base(path) + " " + f.Name.Name
				lines[key] = append(lines[key], [2]int{files.Position(f.Pos()).Line, files.Position(f.End()).Line})
			}
		}
	}
	return lines
}
