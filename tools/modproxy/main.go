// Command modproxy writes the modules of this tree as a module proxy of files, as if they were
// released: see "GOPROXY protocol" in go.dev/ref/mod. With it go install, go get and go mod
// tidy are tried before a release.
//
//	modproxy TREE VERSION DIR
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// modules are the directories of the modules, from the tree.
var modules = []string{".", "proxy", "bench", "lane"}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: modproxy TREE VERSION DIR")
		os.Exit(2)
	}
	tree, version, dir := os.Args[1], os.Args[2], os.Args[3]
	for _, m := range modules {
		if err := write(filepath.Join(tree, m), version, dir); err != nil {
			fmt.Fprintf(os.Stderr, "modproxy: %s: %v\n", m, err)
			os.Exit(1)
		}
	}
}

// write writes the module in source below dir.
func write(source, version, dir string) error {
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return err
	}
	v := module.Version{Path: modfile.ModulePath(mod), Version: version}
	escaped, err := module.EscapePath(v.Path)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": mod} {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(out, version+".zip"))
	if err != nil {
		return err
	}
	if err := zip.CreateFromDir(file, v, source); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
