package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// A source is one parsed Go file of the module.
type source struct {
	path string // from the module's directory
	ast  *ast.File
}

// sources parses every Go file of the module, whatever it builds for.
func sources(t *testing.T) (*token.FileSet, []source) {
	t.Helper()
	files := token.NewFileSet()
	var all []source
	must.Do(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		all = append(all, source{filepath.ToSlash(rel), f})
		return err
	}))
	return files, all
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) inLibrary() bool {
	return !s.isTest() && slices.ContainsFunc(library, func(name string) bool { return strings.HasPrefix(s.path, name+"/") })
}

// TestSystemCallsInSys: no package but internal/sys makes a raw system call, or
// ends the process from inside the library.
func TestSystemCallsInSys(t *testing.T) {
	files, all := sources(t)
	for _, s := range all {
		if strings.HasPrefix(s.path, "internal/sys/") {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := fmt.Sprintf("%s.%s", sel.X, sel.Sel.Name)
			switch name {
			case "syscall.Syscall", "syscall.Syscall6", "syscall.RawSyscall", "syscall.RawSyscall6", "syscall.SyscallN":
				t.Errorf("%v: %s outside internal/sys", files.Position(n.Pos()), name)
			case "os.Exit":
				if s.inLibrary() {
					t.Errorf("%v: the library ends the process", files.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// TestDials: every TCP connection of the load balancer is made by [sockopt.Dial], or by a loop, for a socket that
// is connected to itself is no endpoint, and is reset.
func TestDials(t *testing.T) {
	files, all := sources(t)
	for _, s := range all {
		if s.isTest() || !strings.HasPrefix(s.path, "proxy/") || strings.HasPrefix(s.path, "proxy/sockopt/") || strings.Contains(s.path, "/testutil/") {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Dial", "DialTimeout", "DialTCP", "DialContext"}, sel.Sel.Name) || fmt.Sprint(sel.X) == "sockopt" {
				return true
			}
			unix := slices.ContainsFunc(call.Args, func(e ast.Expr) bool {
				l, ok := e.(*ast.BasicLit)
				return ok && strings.HasPrefix(l.Value, `"unix`)
			})
			if !unix {
				t.Errorf("%v: %s: use sockopt.Dial", files.Position(n.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}

// TestEverythingExportedIsDocumented holds for every package that another one
// may import.
func TestEverythingExportedIsDocumented(t *testing.T) {
	files, all := sources(t)
	for _, s := range all {
		if s.isTest() || s.ast.Name.Name == "main" {
			continue
		}
		for _, d := range s.ast.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%v: %s has no comment", files.Position(d.Pos()), name)
			}
		}
	}
}

// undocumented returns the exported names that d declares without a comment.
func undocumented(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if d.Doc == nil && s.Doc == nil && s.Name.IsExported() {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				if d.Doc == nil && s.Doc == nil && s.Comment == nil && s.Names[0].IsExported() {
					names = append(names, s.Names[0].Name)
				}
			}
		}
	}
	return names
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	exported := true
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			exported = id.IsExported()
			return false
		}
		_, isIndex := n.(*ast.IndexExpr)
		_, isStar := n.(*ast.StarExpr)
		return exported && (isIndex || isStar)
	})
	return exported
}
