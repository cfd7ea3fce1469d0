package architecture

import (
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

var update = flag.Bool("update", false, "rewrite docs/api")

// exported are the packages whose API other programs depend on: those of the library, and of the module lane.
var exported = []string{"pool", "pipe", "evring", "arena", "vecio", "loop", "relay", "relay/driver", "lane"}

// TestExportedAPI compares the API of these packages with docs/api.
func TestExportedAPI(t *testing.T) {
	for _, name := range exported {
		got := apiOf(t, name)
		golden := "docs/api/" + name + ".txt"
		if *update {
			must.Do(t, os.WriteFile(root+"/"+golden, []byte(got), 0o644))
		}
		want := strings.Split(read(t, golden), "\n")
		now := strings.Split(got, "\n")
		for _, line := range now {
			if !slices.Contains(want, line) {
				t.Errorf("%s: + %s", name, line)
			}
		}
		for _, line := range want {
			if !slices.Contains(now, line) {
				t.Errorf("%s: - %s", name, line)
			}
		}
		if !t.Failed() && got != strings.Join(want, "\n") {
			t.Errorf("%s is not in the order that -update writes", golden)
		}
	}
	if t.Failed() {
		t.Log("if the change is meant: .ci/run generate")
	}
}

// apiOf lists what a package exports on linux/amd64, one line for each name
// that a program can write, in a fixed order.
func apiOf(t *testing.T, name string) string {
	t.Helper()
	exports := make(map[string]string)
	for _, p := range list(t, "linux", "-deps", "-export", "./"+name) {
		exports[p.ImportPath] = p.Export
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	pkg := must.Get(imp.Import(module + "/" + name))(t)
	var b strings.Builder
	for _, name := range pkg.Scope().Names() { // sorted
		if ast.IsExported(name) {
			writeObject(&b, pkg, pkg.Scope().Lookup(name))
		}
	}
	return b.String()
}

func writeObject(w io.Writer, pkg *types.Package, o types.Object) {
	relative := func(other *types.Package) string {
		if other == pkg {
			return ""
		}
		return strings.TrimPrefix(other.Path(), module+"/")
	}
	switch o := o.(type) {
	case *types.Const:
		fmt.Fprintf(w, "const %s %s = %s\n", o.Name(), types.TypeString(o.Type(), relative), o.Val().ExactString())
	case *types.TypeName:
		writeType(w, o, relative)
	default:
		fmt.Fprintln(w, types.ObjectString(o, relative))
	}
}

func writeType(w io.Writer, o *types.TypeName, relative types.Qualifier) {
	named, ok := o.Type().(*types.Named)
	if !ok || o.IsAlias() {
		fmt.Fprintln(w, types.ObjectString(o, relative))
		return
	}
	head := types.TypeString(named, relative)
	switch u := named.Underlying().(type) {
	case *types.Struct:
		fmt.Fprintf(w, "type %s struct\n", head)
		for f := range u.Fields() {
			if f.Exported() {
				fmt.Fprintf(w, "type %s struct, %s %s\n", o.Name(), f.Name(), types.TypeString(f.Type(), relative))
			}
		}
	case *types.Interface:
		fmt.Fprintf(w, "type %s %s\n", head, types.TypeString(u, relative))
		return // its methods are in the line
	default:
		fmt.Fprintf(w, "type %s %s\n", head, types.TypeString(u, relative))
	}
	methods := types.NewMethodSet(types.NewPointer(named))
	for m := range methods.Methods() {
		if f := m.Obj(); f.Exported() {
			fmt.Fprintln(w, types.ObjectString(f, relative))
		}
	}
}
